from collections.abc import Callable
from typing import Any

from kafkalog._core.plan import SegmentTail

Brought = tuple[int, int, int, int]

def write_indexed(segment: Any, put: Callable[[], object], brought: list[Brought], tail: SegmentTail) -> None: ...
def extend_offsets(index: Any, brought: list[Brought]) -> bool: ...
def extend_times(index: Any, brought: list[Brought]) -> bool: ...
