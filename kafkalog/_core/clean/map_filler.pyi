from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.txns import AbortedRanges

@final
class MapFiller:
    messages_read: int
    unusual: int
    is_full: bool
    status: int
    error_batch: int
    error_position: int
    error_record: int
    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        aborted: AbortedRanges,
        *,
        start_offset: int,
        end_offset: int,
        most: int,
        live: LiveOffsets | None = None,
    ) -> None: ...
    @property
    def error_text(self) -> str: ...
    def take(self, buf: Buffer, batches: BatchTable, first: int, last: int, base_position: int = 0) -> bool: ...
