from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

STATUS_HEADERS: int
STATUS_NEGATIVE_TIME: int
STATUS_OFFSETS: int
STATUS_TOO_LONG: int

@final
class Rewritten:
    data: bytearray | None
    status: int
    row: int
    record: int
    count: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int

def rewrite(
    buf: Buffer,
    batches: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    magic: int = 2,
    first_offset: int | None = None,
    from_offset: int | None = None,
    relative: bool = False,
    append_time: int = -1,
    leader_epoch: int = -1,
    drop_headers: bool = False,
) -> Rewritten: ...
def message_run(batches: BatchTable, first: int, last: int, limit_bytes: int) -> int: ...
