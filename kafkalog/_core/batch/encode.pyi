from collections.abc import Iterable, Mapping
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog._core.batch.record import Record

EMPTY_BATCH_BYTES: int
_Headers = Iterable[tuple[str | bytes, Buffer | None]] | Mapping[str, Buffer | None]
RecordLike = Buffer | tuple[object, ...] | Record | Mapping[str, object]

class BadRecord(ValueError):
    index: int
    field: str
    def __init__(self, message: str, index: int, field: str) -> None: ...

@final
class BatchBuilder:
    size: int
    limit: int
    count: int
    base_timestamp: int
    max_timestamp: int
    min_timestamp: int
    last_delta: int
    delta_of_max_timestamp: int
    def __init__(self, limit: int = 16384, *, delete_horizon_ms: int | None = None) -> None: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int = -1,
        headers: _Headers = (),
        *,
        offset_delta: int = -1,
    ) -> bool: ...
    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        append_time: int = -1,
    ) -> bytearray: ...

    def build_ready(self) -> ReadyBatch | None: ...

def encode_ready(records: Iterable[RecordLike], *, timestamp: int) -> ReadyBatch | None: ...
def encode_batch(
    records: Iterable[RecordLike], *, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray: ...
