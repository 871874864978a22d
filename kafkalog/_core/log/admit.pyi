from typing import Any, final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

FAULT_TIMESTAMP: int
FAULT_NO_KEY: int
FAULT_MAGIC: int
FAULT_STAMPED: int
STATUS_CHECKSUM: int
STATUS_RECORD_SIZE: int
MOST_FAULTS: int

WRONG_EPOCH: int
BASE_OFFSET_NOT_ZERO: int
BATCH_TOO_LARGE: int
WRONG_CHECKSUM: int

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
    most_bytes: int = ...,
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
def refusal(
    table: BatchTable,
    from_client: bool,
    offsets_free: bool,
    from_raft: bool,
    leader_epoch: int,
    max_message_bytes: int,
) -> tuple[int, int] | None: ...

@final
class LeaderLimits:
    max_message_bytes: int
    segment_size: int
    before_ms: int
    after_ms: int
    check_times: bool
    need_keys: bool
    writes_as_is: bool
    rules: Any
    def __init__(
        self,
        *,
        max_message_bytes: int,
        segment_size: int,
        before_ms: int,
        after_ms: int,
        check_times: bool,
        need_keys: bool,
        writes_as_is: bool,
        rules: object = None,
    ) -> None: ...
    def takes(self, buf: Buffer, table: BatchTable, now: int, any_base_offset: bool = False) -> bool: ...
    def first_to_change(self, buf: Buffer, table: BatchTable, first: int, now: int) -> int: ...
