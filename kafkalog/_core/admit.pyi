from typing import final

from typing_extensions import Buffer

from kafkalog._core.scan import BatchTable

FAULT_TIMESTAMP: int
FAULT_NO_KEY: int
FAULT_MAGIC: int
FAULT_STAMPED: int
STATUS_CHECKSUM: int
MOST_FAULTS: int

@final
class RecordCheck:
    row: int
    status: int
    position: int
    record: int
    faults: list[tuple[int, int, int, int]]
    total: int
    count: int
    size: int
    max_timestamp: int
    consecutive: bool
    fresh: bool

def check_rows(
    buf: Buffer,
    batches: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    oldest: int = ...,
    newest: int = ...,
    check_times: bool = True,
    need_keys: bool = False,
    inner: bool = False,
    base_position: int = 0,
) -> RecordCheck: ...
def first_to_change(
    buf: Buffer,
    batches: BatchTable,
    first: int = 0,
    oldest: int = ...,
    newest: int = ...,
    check_times: bool = True,
    need_keys: bool = False,
) -> int: ...
def end_of_magic(batches: BatchTable, first: int = 0) -> int: ...
