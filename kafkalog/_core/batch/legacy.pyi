from typing import final

from typing_extensions import Buffer

@final
class MessageSet:
    size: int
    count: int
    magic: int
    def __init__(self, magic: int) -> None: ...
    def append(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, *, attributes: int = 0
    ) -> None: ...
    def build(self) -> bytearray: ...

def wrapper(
    payload: Buffer, *, magic: int, codec: int, offset: int, timestamp: int = -1, append_time: bool = False
) -> bytearray: ...
