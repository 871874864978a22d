from typing import final

from kafkalog._core.batch.walk import BatchWalk
from kafkalog._core.log.roll import SegmentTail
from kafkalog._core.log.trace import ProducerTrace

MORE: int
END: int
PARTIAL: int
BAD_SIZE: int
BAD_CRC: int
BAD_ORDER: int
BAD_RANGE: int
LEAST_CHUNK: int

@final
class RecoveryPass(BatchWalk):
    batches: int
    ends_below: bool
    bad_offset: int
    tail: SegmentTail
    producers: ProducerTrace
    def __init__(
        self, base_offset: int, end: int, index_interval_bytes: int, offset_slots: int, time_slots: int
    ) -> None: ...
    @property
    def offset_index(self) -> bytes: ...
    @property
    def time_index(self) -> bytes: ...
    @property
    def leader_epochs(self) -> list[tuple[int, int]]: ...
