from typing import final

from kafkalog._core.clean.offset_map import SkimpyOffsetMap

@final
class LiveOffsets:
    first: int
    end: int
    left_out: bool
    def __init__(self, first_offset: int = 0, end_offset: int = 0, most_bytes: int = 0) -> None: ...
    def settle(self, offset_map: SkimpyOffsetMap, records: int) -> None: ...
    def count(self, first_offset: int, last_offset: int) -> int: ...
