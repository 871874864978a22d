from typing import final

from typing_extensions import Buffer

from kafkalog._core.scan import BatchTable

FAULT_TIMESTAMP: int
FAULT_NO_KEY: int

@final
class RecordCheck:
    status: int
    position: int
    faults: list[tuple[int, int]]
    total: int

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
def check_records(
    buf: Buffer,
    batches: BatchTable,
    i: int,
    oldest: int = ...,
    newest: int = ...,
    check_times: bool = True,
    need_keys: bool = False,
    base_position: int = 0,
) -> RecordCheck | None: ...
