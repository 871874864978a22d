from typing import final

from typing_extensions import Buffer

from kafkalog._core.arrow.columns import Columns
from kafkalog._core.batch.scan import BatchTable

STATUS_TEXT: dict[int, str]

@final
class ColumnBuilder:
    kinds: bytes
    status: int
    error_batch: int
    error_position: int
    error_record: int
    def __init__(
        self,
        kinds: bytes,
        *,
        topic: bytes = b"",
        partition: int = 0,
        start_offset: int = 0,
        stop_offset: int = ...,
        every: bool = False,
        most_rows: int = 65536,
        most_bytes: int = 8388608,
        chosen: tuple[bytes, ...] | None = None,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def error_text(self) -> str: ...
    def feed(
        self, buf: Buffer, batches: BatchTable, first: int = 0, last: int = -1, *, base_position: int = 0
    ) -> int: ...
    def take(self) -> Columns: ...
