from typing import Any, Generic, final

from typing_extensions import TypeVar

from kafkalog._core.log.plan import AppendPlan
from kafkalog._core.log.values import LogOffsetMetadata

S = TypeVar("S", default=Any)

@final
class LogState(Generic[S]):
    log_start_offset: int
    log_end_offset: int
    end_base: int
    end_position: int
    high_watermark: int
    high_watermark_base: int
    high_watermark_position: int
    first_unstable_offset: int
    recovery_point: int
    leader_epoch: int
    segments: S
    appends: int
    appended_batches: int
    appended_bytes: int
    appended_offsets: int
    def __init__(
        self,
        segments: S,
        *,
        log_start_offset: int,
        log_end_offset: int,
        end_base: int,
        end_position: int,
        high_watermark: int,
        high_watermark_base: int = -1,
        high_watermark_position: int = -1,
        recovery_point: int = 0,
        leader_epoch: int = -1,
        first_unstable_offset: int = -1,
    ) -> None: ...
    @property
    def end_metadata(self) -> LogOffsetMetadata: ...
    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata: ...
    @property
    def last_stable_offset(self) -> int: ...
    def appended(self, plan: AppendPlan, high_watermark_follows: bool) -> LogState[S]: ...
    def replace(self, **changes: object) -> LogState[S]: ...
