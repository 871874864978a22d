from collections.abc import Callable

from kafkalog._core.log.roll import SegmentTail

IndexEntry = tuple[int, int, int, int]

def write_indexed(
    segment: object, put: Callable[[], object], new_entries: list[IndexEntry], tail: SegmentTail
) -> None: ...
def extend_offsets(index: object, new_entries: list[IndexEntry]) -> bool: ...
def extend_times(index: object, new_entries: list[IndexEntry]) -> bool: ...
