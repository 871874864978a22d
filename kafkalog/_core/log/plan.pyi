from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.values import LogAppendInfo

NO_ROLL: int
ROLL_FOR_SIZE: int
ROLL_FOR_TIME: int
ROLL_FOR_INDEX: int
ROLL_FOR_OFFSET: int

@final
class SegmentTail:
    size: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    rolling_timestamp: int
    bytes_since_index_entry: int
    offset_slots: int
    time_slots: int
    last_time_entry: int
    def __init__(
        self,
        size: int = 0,
        last_offset: int = -1,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        rolling_timestamp: int = -1,
        bytes_since_index_entry: int = 0,
        offset_slots: int = 0,
        time_slots: int = 0,
        last_time_entry: int = -1,
    ) -> None: ...
    @property
    def index_full(self) -> bool: ...

@final
class RollRules:
    base_offset: int
    max_size: int
    max_wait_ms: int
    created_ms: int
    index_interval_bytes: int
    def __init__(
        self, base_offset: int, max_size: int, max_wait_ms: int, created_ms: int, index_interval_bytes: int
    ) -> None: ...

@final
class AppendPlan:
    roll_reason: int
    start_row: int
    stop_row: int
    start_byte: int
    stop_byte: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    last_leader_epoch: int
    tail: SegmentTail
    entries: list[tuple[int, int, int, int]] | None
    @property
    def size(self) -> int: ...

def plan_append(
    table: BatchTable,
    row: int,
    tail: SegmentTail,
    rules: RollRules,
    now: int,
    whole: bool,
    fresh: bool,
) -> AppendPlan: ...
def place_append(
    buf: Buffer,
    table: BatchTable,
    first_offset: int,
    leader_epoch: int,
    append_time: int,
    tail: SegmentTail,
    rules: RollRules,
    now: int,
) -> AppendPlan: ...
def append_info(
    table: BatchTable,
    first_offset: int,
    last_leader_epoch: int,
    append_time: int,
    log_start_offset: int,
    source: BatchTable | None = None,
) -> LogAppendInfo: ...
def rows_up_to_epoch(table: BatchTable, leader_epoch: int) -> int: ...
def offsets_rise(table: BatchTable, rows: int) -> bool: ...
def first_without_epoch(table: BatchTable, rows: int) -> int: ...
def first_old_format(table: BatchTable, rows: int) -> int: ...
