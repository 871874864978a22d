from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

class KeyWalk:
    records: int
    status: int
    error_batch: int
    error_position: int
    error_record: int
    @property
    def error_text(self) -> str: ...
    def take(self, buf: Buffer, batches: BatchTable, first: int, last: int, base_position: int = 0) -> bool: ...

@final
class SegmentDigest:
    batches: int
    def __init__(self, secret: bytes) -> None: ...
    def take(self, buf: Buffer, batches: BatchTable, first: int, last: int, base_position: int = 0) -> None: ...
    @property
    def value(self) -> bytes: ...

def hash_key(secret: bytes, key: Buffer) -> int: ...
