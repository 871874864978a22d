from typing import final

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
