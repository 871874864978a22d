from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.batch.unpack import Unpacker
from kafkalog._core.bytes.store import Block, Store

@final
class Arena:
    first: int
    store: Store
    table: BatchTable
    status: int
    payload_position: int
    def __init__(
        self, source: Buffer, batches: BatchTable, first: int, *, base_position: int = 0, capacity: int = 0
    ) -> None: ...
    rows: int
    size: int
    def fill(self, unpacker: Unpacker, last: int, *, enough: int, limit_bytes: int) -> int: ...
    def copy_plain(self, i: int, last: int) -> int: ...
    def begin(self, i: int) -> memoryview | None: ...
    def end(self) -> int: ...
    def cancel(self) -> None: ...
    def finish(self) -> Block: ...
