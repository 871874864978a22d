"""Retention rules of a clean that need more than the batch, and the interface to the others (CLN-6 to CLN-22)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog._core.clean.clean_rules import Retention
from kafkalog._core.clean.last_records import LastRecords
from kafkalog._core.clean.live_offsets import LiveOffsets
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.producer_state import ProducerState
from kafkalog.cleaner.scanned_ranges import ScannedRange
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.records.compression import DECODED_LIMIT_BYTES
from kafkalog.records.filter import FilterResult, filter_to

if TYPE_CHECKING:
    from typing_extensions import Buffer


def legacy_delete_horizon_ms(last_clean_mtime_ms: int | None, delete_retention_ms: int) -> int:
    """Return the file time after which a segment keeps its v0 and v1 tombstones, which have no horizon (CLN-8).

    `last_clean_mtime_ms` is the modification time of the last segment below the first dirty offset; None without one.
    """
    return 0 if last_clean_mtime_ms is None else last_clean_mtime_ms - delete_retention_ms


def last_records_of(producers: Iterable[ProducerState]) -> LastRecords:
    """Return the last offset of each active producer, or its epoch if it has no data (CLN-11).

    Called for each group of segments, under the log's lock: producers append while the clean runs.
    """
    return LastRecords((state.producer_id, state.last_offset, state.producer_epoch) for state in producers)


class Retainer:
    """Filters a log's segments chunk by chunk and returns what is kept. Threads: belongs to the clean.

    `now_ms` is the time of the clean, read once. `upper_bound_offset` is its end: the batch before that is kept even
    without records, so that the next offset does not go back (CLN-12). The offset map is not consulted for offsets that
    `live` covers.
    """

    __slots__ = ("_path", "_retention")

    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        transactions: CleanedTransactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound_offset: int,
        live: LiveOffsets | None = None,
    ) -> None:
        self._retention = Retention(
            offset_map,
            transactions.core,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            upper_bound_offset=upper_bound_offset,
            live=live,
        )
        self._path: str | None = None

    def begin_segment(self, path: str, *, retain_legacy_deletes: bool, last_records: LastRecords) -> None:
        """Begin the chunks of a file; `retain_legacy_deletes` if it changed after the legacy horizon."""
        self._path = path
        self._retention.begin_segment(retain_legacy_deletes, last_records)

    def filter(self, chunk: Buffer, position: int = 0, *, is_checked: bool = False) -> FilterResult:
        """Return what is kept of a chunk's complete batches; the chunk begins at byte `position`. See `filter_to`."""
        return filter_to(
            chunk,
            self._retention,
            path=self._path,
            position=position,
            limit_bytes=DECODED_LIMIT_BYTES,
            is_checked=is_checked,
        )

    def drops(self, scanned_range: ScannedRange) -> bool:
        """Return True if nothing of a range is kept, so that it need not be read again."""
        return scanned_range.is_plain and self._retention.drops(scanned_range.first_offset, scanned_range.last_offset)
