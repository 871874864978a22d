from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.roll import RollRules, SegmentTail
from kafkalog._core.log.values import LogAppendInfo

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
