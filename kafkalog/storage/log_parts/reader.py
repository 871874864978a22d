"""Reads of a log: one state, no lock.

    bound -> segment -> index -> header walk -> a slice (no record byte is read)

Pure functions make the decisions (`read`, `lookup`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.txns import AbortedRanges
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.records.unpacked_limit import check_unpacked, limit_of
from kafkalog.storage.damage import MisplacedBatch
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.watermark import HighWatermark
from kafkalog.storage.lookup import bounded, offset_for_time
from kafkalog.storage.read import add_aborted, extent_of, locate_or_offset_only, out_of_range, read_state
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.transactions import Transactions
from kafkalog.storage.undecided import Undecided
from kafkalog.types import FetchDataInfo, Isolation, LogOffsetMetadata, OffsetAndTimestamp

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State

P = ParamSpec("P")
T = TypeVar("T")


class LogReader:
    """Reads a log. Threads: any, in parallel with every other part."""

    __slots__ = ("_core", "_misplaced_end", "_watermark", "transactions")

    def __init__(self, core: LogCore, watermark: HighWatermark, misplaced_end: MisplacedBatch | None) -> None:
        self._core = core
        self._watermark = watermark
        self._misplaced_end = misplaced_end
        self.transactions = Transactions(core.path, fs=core.fs)

    @property
    def tail_damage(self) -> MisplacedBatch | None:
        """The last batch, if recovery accepted it although it begins below the end of the previous batch."""
        found, state = self._misplaced_end, self._core.state
        if found is None or self._core.truncation_count or state.log_end_offset != found.last_offset + 1:
            return None
        return found if state.log_start_offset <= found.last_offset else None

    def extent(self, offset: int) -> Extent:
        """Return the segment in which a walk to `offset` begins, up to the log end; OffsetOutOfRange, LogClosed."""
        return self._retry_if_truncated(lambda: extent_of(self._core.state, offset, self._core.path))

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Return the data from `start_offset` on, from one segment, at most `max_length` bytes (LOG-20 to LOG-25).

        With `min_one_message` the first batch is returned whole, whatever its size. `isolation` sets the upper
        bound: the log end, the high watermark, or the last stable offset. OffsetOutOfRange outside log start ... log
        end, IllegalArgument for a negative length, LogClosed.
        """
        return self._retry_if_truncated(self._read, start_offset, max_length, isolation, min_one_message)

    def _read(self, start_offset: int, max_length: int, isolation: Isolation, min_one_message: bool) -> FetchDataInfo:
        if isolation == "log_end":
            state = self._core.state
            return read_state(state, start_offset, max_length, state.end_metadata, min_one_message)
        state = self._core.state
        if start_offset < state.log_start_offset:  # a refused read moves no high watermark to its batch (LOG-29)
            raise out_of_range(start_offset, state.log_start_offset, state.log_end_offset)
        bound = self.readable_end(isolation)
        state = self._core.state
        found = read_state(state, start_offset, max_length, bound, min_one_message)
        if isolation == "committed":
            found.aborted_transactions = ()
            if start_offset < bound.message_offset:
                add_aborted(state, start_offset, found)
        return found

    def _retry_if_truncated(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `query` and return its result; retry if the end moved back or segments were removed meanwhile."""
        core = self._core
        while True:
            truncations, segments = core.truncation_count, core.state.segments
            try:
                found = query(*args, **kwargs)
            except KafkalogError as error:
                self._check_readable()
                if not self._was_truncated(truncations) and core.state.segments is segments:
                    core.health.notice(error)
                    raise
                continue
            if core.health.cause is not None:
                self._check_readable()
            if truncations == core.truncation_count and not truncations & 1 or not self._was_truncated(truncations):
                return found

    def _check_readable(self) -> None:
        """Raise LogClosed after `close`; call it after a read, since a file may have been closed during it."""
        if self._core.health.closed:
            self._core.health.check()

    def _was_truncated(self, before: int) -> bool:
        """Return True if the end moved back since `truncation_count` was `before`: a read may mix two states."""
        return self._core.truncation_count_when_idle() != before

    def readable_end(self, isolation: Isolation) -> LogOffsetMetadata:
        """Return the exclusive upper bound for a reader, with its position (LOG-30).

        It is the log end, the high watermark, or the last stable offset.
        """
        if isolation == "log_end":
            return self._core.state.end_metadata
        if isolation not in ("high_watermark", "committed"):
            raise IllegalArgument(
                f"unknown isolation {isolation!r}", hint='"log_end", "high_watermark" or "committed"'
            )
        state = self._core.state
        if state.high_watermark_base >= 0:
            mark = state.high_watermark_metadata
        else:
            mark = self._watermark.fetch_high_watermark()
            state = self._core.state
        if isolation == "committed" and 0 <= state.first_unstable_offset < mark.message_offset:
            return locate_or_offset_only(state, state.first_unstable_offset)
        return mark

    @property
    def has_damaged_transactions(self) -> bool:
        """False if every file read so far for the transactions was sound; no transaction is undecided then."""
        return self.transactions.is_damaged

    def undecided(self, first_offset: int, next_offset: int) -> Undecided | None:
        """Return the first transaction with records in this range whose end may be hidden by damage."""
        return self.transactions.undecided(self._core.state, first_offset, next_offset)

    def undecided_at_end(self) -> Undecided | None:
        """Return the transaction at the last stable offset if damage may hide its end."""
        return self.transactions.undecided_at_end(self._core.state)

    def aborted_ranges(self, first_offset: int, next_offset: int) -> AbortedRanges:
        """Return the aborted transactions that records in this range, below the last stable offset, may belong to."""
        return self.transactions.aborted_ranges(self._core.state, first_offset, next_offset)

    def offset_for_time(self, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
        """Return the first record at or after `timestamp` ms, or a negative code's offset (LOG-57); None if none.

        Another `isolation` replaces the log end by its bound, and records at or after it are not found (PART-8).
        """
        found = self._retry_if_truncated(lambda: self._offset_for_time(self._core.state, timestamp))
        most_bytes = limit_of(self._core.config)
        if most_bytes is not None and found is not None and found.timestamp >= 0:
            self._check_unpacked(found.offset, most_bytes)
        if isolation == "log_end":
            return found
        return bounded(found, timestamp, self.readable_end(isolation).message_offset)

    def _offset_for_time(self, state: State, timestamp: int) -> OffsetAndTimestamp | None:
        if timestamp >= 0:
            return offset_for_time(state, timestamp, -1, -1)
        epochs = self._core.epochs
        return offset_for_time(state, timestamp, epochs.epoch_for(state.log_start_offset), epochs.latest_epoch)

    def _check_unpacked(self, offset: int, most_bytes: int) -> None:
        """Raise InvalidRecord if a record that a look-up had to decompress, up to `offset`, has more than that."""
        found = self._retry_if_truncated(lambda: self._batch_of(offset))
        if found is None:
            return  # deleted since the look-up
        records = found.records
        data = records.read()
        table = scan(data, base_position=records.position)
        check_unpacked(data, table, most_bytes, records.position, records.path, last_offset=offset)

    def _batch_of(self, offset: int) -> FetchDataInfo | None:
        """Return the batch that holds an offset, also below the log start, where the largest timestamp may be."""
        segment: LogSegment | None = self._core.state.segments.floor(offset)
        return None if segment is None else segment.read(offset, 1, min_one_message=True)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return the position of the batch that holds `offset`; the offset alone outside the log (LOG-85)."""
        return locate_or_offset_only(self._core.state, offset)

    def segment_of(self, offset: int) -> LogSegment | None:
        """Return the segment that holds the offset; None outside the log and after `close`."""
        state = self._core.state
        if self._core.health.closed or not state.log_start_offset <= offset < state.log_end_offset:
            return None
        found: LogSegment | None = state.segments.floor(offset)
        return found
