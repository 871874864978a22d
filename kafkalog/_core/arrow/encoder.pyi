from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

from kafkalog._core.arrow.rows import Rows

@final
class Parcel(Buffer):
    topic: str
    partition: int
    records: int
    first_record: int
    batches: int
    max_timestamp: int
    largest: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class ArrowEncoder:
    waiting_bytes: int
    records: int
    def __init__(
        self,
        resolve: Callable[[str], tuple[int, int, int]],
        *,
        topic: str | None = None,
        batch_rows: int = ...,
        sticky_bytes: int = 16384,
        first_partition: int = 0,
        waiting_bytes: int = ...,
    ) -> None: ...
    def feed(self, rows: Rows, first: int, now_ms: int) -> int: ...
    def seal(self) -> None: ...
    def take(self) -> list[Parcel]: ...
