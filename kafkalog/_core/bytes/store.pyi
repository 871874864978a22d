from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

MOST_BYTES: int

@final
class Block:
    exports: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Store:
    size: int
    def __init__(self, capacity: int = 0) -> None: ...
    def fill(self, function: Callable[[Buffer, Buffer], int], data: Buffer, n: int) -> int: ...
    def fill_sized(
        self,
        function: Callable[[Buffer, Buffer], int],
        data: Buffer,
        n: int,
        *,
        big_endian: bool,
        raw_flag: int = 0,
    ) -> int: ...
    def append(self, data: Buffer) -> None: ...
    def take(self) -> Block: ...
    def __len__(self) -> int: ...
