from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

from kafkalog._core.keys.key_pages import KeyPages

IS_DAMAGED: int
MOST_BLOCK_BITS: int

def bucket_bits(entries: int) -> int: ...
def block_bytes(entries: int, bits: int, marks: int) -> int: ...

@final
class KeyIndex(KeyPages):
    def __init__(
        self,
        read: Callable[[int, int], bytes],
        *,
        pages_at: int,
        pages_bytes: int,
        checksums: bytes,
        blocks: list[tuple[int, int, int]],
        base_offset: int,
        next_offset: int,
        segment_bytes: int,
    ) -> None: ...
    def find_last(self, hashed: int, below: int) -> int: ...
    def find_all(self, hashed: int, start: int, stop: int, most: int = ...) -> list[int] | None: ...
    def find_last_many(self, hashes: Buffer, below: int, found: Buffer) -> bool: ...
    def place(self, offset: int) -> tuple[int, int]: ...
