from collections.abc import Iterator
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.bytes.buffers import Column

STATUS_OK: int
STATUS_COMPRESSED: int
STATUS_MAGIC: int
STATUS_MESSAGE_SIZE: int
STATUS_BATCH_RANGE: int
STATUS_TEXT: dict[int, str]

class DamagedField(ValueError): ...

@final
class RecordTable:
    batches: BatchTable
    count: int
    first_batch: int
    last_batch: int
    status: int
    error_batch: int
    error_position: int
    error_record: int
    offsets: Column
    timestamps: Column
    key_sizes: Column
    value_sizes: Column
    record_sizes: Column
    key_positions: Column
    error_text: str
    def key(self, i: int) -> bytes | None: ...
    def value(self, i: int) -> bytes | None: ...
    def headers(self, i: int) -> tuple[tuple[str, bytes | None], ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> Record: ...
    def __iter__(self) -> Iterator[Record]: ...
    def find(self, offset: int) -> int: ...
    def find_timestamp(self, timestamp: int, start_offset: int) -> int: ...
    def batch_of(self, i: int) -> int: ...
    def timestamp_type(self, i: int) -> int: ...
    def leader_epoch(self, i: int) -> int: ...
    def is_control(self, i: int) -> bool: ...
    def message(self, i: int) -> tuple[int, int]: ...

def decode(
    buf: Buffer,
    batches: BatchTable,
    first: int = 0,
    last: int = -1,
    *,
    base_position: int = 0,
    lenient: bool = False,
    ordered: bool = False,
) -> RecordTable: ...
