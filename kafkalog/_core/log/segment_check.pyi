from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.walk import BatchWalk

MORE: int
END: int
PARTIAL: int
BAD_SIZE: int
BAD_CRC: int
BAD_MAGIC: int
BAD_HEADER: int
BAD_ORDER: int
BAD_RANGE: int

@final
class BatchCheck(BatchWalk):
    next_offset: int
    last_good: int
    batches: int
    records: int
    gaps: int
    gap_position: int
    gap_from: int
    gap_to: int
    thinned: int
    max_timestamp: int
    first_offset: int
    def __init__(self, base_offset: int, end: int, *, check_crc: bool = True, log_start_offset: int = 0) -> None: ...
    def expect_entries(self, offset_entries: Buffer, time_entries: Buffer) -> None: ...
    def skip_to(self, position: int) -> None: ...
    def set_end(self, end: int) -> None: ...
    @property
    def batch(self) -> tuple[int, int, int, int, int, int]: ...
    @property
    def counts(self) -> tuple[int, int]: ...
    @property
    def checksums(self) -> tuple[int, int]: ...
    @property
    def index_result(self) -> tuple[int, int, int, int, int, int]: ...
    @property
    def time_result(self) -> tuple[int, int, int, int, int, int]: ...
    @property
    def epoch_runs(self) -> list[tuple[int, int, int, int]]: ...
    @property
    def abort_markers(self) -> list[tuple[int, int, int]]: ...

def find_header(buf: Buffer, start: int, length: int, left: int, base_offset: int) -> int: ...
