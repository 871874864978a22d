from collections.abc import Iterator
from typing import final

from typing_extensions import Buffer

from kafkalog._core.bytes.buffers import Column

REASON_END: int
REASON_PARTIAL: int
REASON_SIZE: int
REASON_MAGIC: int
REASON_LIMIT: int
FAULT_COUNT: int
FAULT_CONTROL: int
FAULT_SEQUENCE: int

@final
class BatchHeader:
    base_offset: int
    last_offset: int
    next_offset: int
    position: int
    size: int
    magic: int
    attributes: int
    compression: int
    timestamp_type: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_timestamp: int
    max_timestamp: int
    count: int
    crc: int
    computed_crc: int
    is_valid: bool
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None

@final
class BatchTable:
    count: int
    stop_position: int
    stop_reason: int
    stop_value: int
    valid_bytes: int
    first_invalid: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    record_count: int
    max_batch_size: int
    monotonic: bool
    has_producers: bool
    codec: int
    last_leader_epoch: int
    def sound_rows(self, next_offset: int, bound: int) -> int: ...
    def begins_behind_gap(self, i: int, next_offset: int) -> bool: ...
    def row_of(self, offset: int, stop: int) -> int: ...
    def alone(self, i: int) -> BatchTable: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> BatchHeader: ...
    def __iter__(self) -> Iterator[BatchHeader]: ...
    def base_offset(self, i: int) -> int: ...
    def last_offset_of(self, i: int) -> int: ...
    def position(self, i: int) -> int: ...
    def size(self, i: int) -> int: ...
    def magic(self, i: int) -> int: ...
    def attributes(self, i: int) -> int: ...
    def max_timestamp_of(self, i: int) -> int: ...
    def records_in(self, i: int) -> int: ...
    def leader_epoch(self, i: int) -> int: ...
    def header_fault(self, i: int, from_client: bool = True) -> int: ...
    base_offsets: Column
    last_offsets: Column
    positions: Column
    sizes: Column
    max_timestamps: Column
    counts: Column

@final
class HeaderWalk:
    base_offset: int
    last_offset: int
    position: int
    size: int
    resume_position: int
    stop_reason: int
    stop_value: int

def scan(
    buf: Buffer,
    start: int = 0,
    stop: int = -1,
    *,
    check_crc: bool = True,
    file_mode: bool = False,
    base_position: int = 0,
    max_batches: int = 0,
    headers_only: bool = False,
) -> BatchTable: ...
def find_offset(buf: Buffer, target: int, start: int = 0) -> HeaderWalk: ...
def find_max_timestamp(buf: Buffer, target: int, start: int = 0) -> HeaderWalk: ...
