from typing_extensions import Buffer

from kafkalog._core.batch.record import Record

NOT_HERE: int
NOT_READABLE: int

def pick(buf: Buffer, offset: int, at_end: bool = False) -> Record | None: ...
def pick_by_time(
    buf: Buffer,
    known_offset: int,
    known_timestamp: int,
    timestamp: int,
    start_offset: int,
    at_end: bool = False,
) -> tuple[int, int, int]: ...
def find_record_by_time(buf: Buffer, start: int, timestamp: int, start_offset: int) -> tuple[int, int, int]: ...
