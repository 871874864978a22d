from typing_extensions import Buffer

NOT_HERE: int
NOT_READABLE: int

def find_record_by_time(buf: Buffer, start: int, timestamp: int, start_offset: int) -> tuple[int, int, int]: ...
