from collections.abc import Set as AbstractSet
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

TOMBSTONE: int
EMPTY: int

@final
class RedactedRow:
    data: bytearray | None
    status: int
    record: int
    found: list[int]
    changed: list[int]

def redact_row(
    buf: Buffer,
    batches: BatchTable,
    row: int,
    offsets: Buffer,
    *,
    value: int,
    erases_key: bool = False,
    keys: AbstractSet[bytes] | None = None,
    base_position: int = 0,
) -> RedactedRow: ...
