from collections.abc import Iterator
from typing import final

@final
class OffsetPosition:
    offset: int
    position: int
    def __init__(self, offset: int, position: int) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class TimestampOffset:
    timestamp: int
    offset: int
    def __init__(self, timestamp: int, offset: int) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class LogOffsetMetadata:
    message_offset: int
    segment_base_offset: int
    relative_position_in_segment: int
    def __init__(
        self, message_offset: int, segment_base_offset: int = -1, relative_position_in_segment: int = -1
    ) -> None: ...
    @property
    def message_offset_only(self) -> bool: ...
    def on_older_segment(self, that: LogOffsetMetadata) -> bool: ...
    def on_same_segment(self, that: LogOffsetMetadata) -> bool: ...
    def precedes(self, that: LogOffsetMetadata) -> bool: ...
    def offset_diff(self, that: LogOffsetMetadata) -> int: ...
    def position_diff(self, that: LogOffsetMetadata) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class LogAppendInfo:
    first_offset: int
    last_offset: int
    last_leader_epoch: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time: int
    log_start_offset: int
    source_compression: int
    target_compression: int
    shallow_count: int
    valid_bytes: int
    offsets_monotonic: bool
    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        *,
        last_leader_epoch: int = -1,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        log_append_time: int = -1,
        log_start_offset: int = -1,
        source_compression: int = 0,
        target_compression: int = 0,
        shallow_count: int = 0,
        valid_bytes: int = 0,
        offsets_monotonic: bool = True,
    ) -> None: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def make_append_info(
    first_offset: int,
    last_offset: int,
    last_leader_epoch: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    log_append_time: int,
    log_start_offset: int,
    source_compression: int,
    target_compression: int,
    shallow_count: int,
    valid_bytes: int,
    offsets_monotonic: bool,
) -> LogAppendInfo: ...
def _append_info(*fields: int) -> LogAppendInfo: ...
