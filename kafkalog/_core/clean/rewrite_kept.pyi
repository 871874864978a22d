from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.bytes.store import Store
from kafkalog._core.clean.clean_rules import Retention

STEP_DONE: int
STEP_COMPRESS: int
STATUS_CHECKSUM: int
STATUS_OFFSETS: int
STATUS_TOO_LONG: int

@final
class RecordFilter:
    store: Store
    codec: int
    payload: memoryview
    error_row: int
    error_record: int
    bytes_read: int
    messages_read: int
    bytes_retained: int
    messages_retained: int
    invalid_messages: int
    max_offset: int
    max_timestamp: int
    shallow_offset_of_max_timestamp: int
    def __init__(self, retention: Retention, chunk: Buffer, batches: BatchTable) -> None: ...
    def begin_run(self, data: Buffer, table: BatchTable, row_before: int, first: int, last: int) -> None: ...
    def step(self) -> int: ...
    def seal(self) -> None: ...
    def finish(self) -> memoryview: ...
