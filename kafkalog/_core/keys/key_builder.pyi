from typing import final

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.keys.key_walk import KeyWalk

INDEX_PAGE_BYTES: int

@final
class KeyBuilder(KeyWalk):
    count: int
    def __init__(self, secret: bytes, base_offset: int, stop_offset: int) -> None: ...
    def mark(self, batches: BatchTable, first: int, last: int) -> None: ...
    def finish(self) -> tuple[bytes, int, int, int]: ...
