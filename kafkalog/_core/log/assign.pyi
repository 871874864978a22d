from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

def assign(
    buf: Buffer,
    batches: BatchTable,
    first_offset: int,
    leader_epoch: int = -1,
    append_time: int = -1,
    *,
    first: int = 0,
    last: int = -1,
    base_position: int = 0,
) -> int: ...
def stamp_batch(
    buf: Buffer, batches: BatchTable, i: int, *, append_time_type: bool, timestamp: int
) -> None: ...
def assign_messages(
    buf: Buffer,
    batches: BatchTable,
    first_offset: int,
    *,
    append_time_type: bool = False,
    timestamp: int = -1,
    records: int = -1,
) -> int: ...
