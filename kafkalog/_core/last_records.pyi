from collections.abc import Iterable
from typing import final

from kafkalog._core.scan import BatchTable

@final
class LastRecords:
    def __init__(self, producers: Iterable[tuple[int, int, int]] = ()) -> None: ...
    def __len__(self) -> int: ...
    def is_last(self, table: BatchTable, i: int) -> bool: ...
