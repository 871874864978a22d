from typing import final

from kafkalog._core.clean.cleaned_txns import CleanedTxns
from kafkalog._core.clean.last_records import LastRecords
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.offset_map import SkimpyOffsetMap

STATUS_MARKER: int

@final
class Retention:
    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        transactions: CleanedTxns,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound_offset: int,
        live: LiveOffsets | None = None,
    ) -> None: ...
    def drops(self, first_offset: int, last_offset: int) -> bool: ...
    def begin_segment(self, retain_legacy_deletes: bool, last_records: LastRecords) -> None: ...
