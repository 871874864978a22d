from typing import final

from typing_extensions import Buffer

@final
class LineEncoder:
    def __init__(
        self,
        partitions: int = 1,
        *,
        batch_bytes: int = 16384,
        chunk_bytes: int = ...,
        delimiter: bytes = b"\n",
        key_delimiter: bytes | None = None,
        null: bytes | None = None,
        key: bytes | None = None,
        encoded_headers: bytes = b"\x00",
    ) -> None: ...
    def feed(self, buf: Buffer, size: int, timestamp: int, *, final: bool = False) -> int: ...
    def add(self, value: bytes | None, key: bytes | None, timestamp: int) -> int: ...
    def ready_bytes(self, partition: int = 0) -> int: ...
    def records(self, partition: int = 0) -> int: ...
    def seal(self) -> None: ...
    def take(self, partition: int = 0) -> bytearray: ...
