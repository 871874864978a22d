"""Mode "r": one partition directory, read while another process may own it.

It takes no lock, writes nothing and maps nothing. All knowledge of the directory is one immutable `ViewState`, which
`refresh()` replaces as a whole; reads take the state once and need no lock.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from operator import itemgetter
from typing import Final, TypeVar

from kafkalog._core.log.txns import AbortedRanges
from kafkalog.errors import (
    CorruptCheckpoint,
    CorruptRecord,
    IllegalArgument,
    KafkalogError,
    LogClosed,
    StorageError,
)
from kafkalog.storage.damage import MisplacedBatch, damage_at, lost_end
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_counters import LOGS, LogCounters
from kafkalog.storage.lookup import bounded, first_at
from kafkalog.storage.read import out_of_range
from kafkalog.storage.readonly.files import was_closed_cleanly
from kafkalog.storage.readonly.listing import partition_of
from kafkalog.storage.readonly.read import cut_at, extent_of, largest_timestamp, read_state
from kafkalog.storage.readonly.segment import ViewSegment
from kafkalog.storage.readonly.watch import DirectoryWatch, ViewState
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.trailing_zeros import is_untrimmed, only_zeros
from kafkalog.storage.transactions import AbortedTransaction, Transactions
from kafkalog.storage.undecided import Undecided
from kafkalog.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FetchDataInfo,
    Isolation,
    OffsetAndTimestamp,
)
from kafkalog.util.checkpoint import RECOVERY_POINT_FILE, OffsetCheckpoint
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.closing import Closing
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.paths import real_path

T = TypeVar("T")

_PAUSES_MS: Final = (20, 80, 200, 700)
"""Increasing pauses before another look, in ms: a busy broker may take that long to rename one segment's files."""
_BUSY_MS: Final = 2000
"""A directory changed within this time (ms) has an active owner."""
LOOK_MS: Final = 10
"""Time (ms) between the looks of reads that take less time than a look."""
LOOKS: Final = 3
"""Number of times the same data must look damaged while its owner may be changing it."""


class LogView(Closing):
    """The partition directory `path`, open for reading; it has the same read interface as `UnifiedLog`.

    It ends at the last complete valid batch; `problems` describes the data behind it. `checkpoints` is shared by the
    views of many partitions, which all read the same files. If the directory cannot be opened: PartitionNotFound,
    NotAPartition, or StorageError (permissions). Threads: safe.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        *,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        checkpoints: CheckpointCache | None = None,
    ) -> None:
        self.path = real_path(path)
        self.topic_partition = partition_of(fs, self.path)
        self.closed = False
        self._lock = threading.Lock()
        watch = DirectoryWatch(self.path, self.topic_partition, fs, clock, checkpoints)
        self._watch = watch  # guarded by self._lock
        self.state = self._watch.listed(None)  # replaced under self._lock, read without
        """Immutable result of the last look; another object after a look that found a change."""
        self._transactions = Transactions(self.path, fs=fs)
        self.fs = fs
        """File system used for reading."""
        self._clock = clock
        self._epoch_problem: KafkalogError | None = None
        self._whole_state: ViewState | None = None  # the last one whose end was found to be no damage
        self.metrics = LogCounters()
        LOGS.add(self)

    @property
    def name(self) -> str:
        """`<topic>-<partition>`."""
        return str(self.topic_partition)

    # State as of the last look

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self.state.start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset after the last complete valid batch."""
        return self.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offset below which all replicas have all records, as last read from the data directory's checkpoint.

        A running broker writes it every few seconds. Without an entry it is the log end, as for a log of one
        replica.
        """
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset before which every transaction is decided; the log end if none is open (LOG-30).

        It may reach the log end, since the checkpointed high watermark lags behind. StorageError.
        """
        return self._of_transactions(self._last_stable_offset)

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each open transaction, by producer id. StorageError."""
        return self._of_transactions(self._transactions.open_transactions)

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the last batch; -1 if there is none."""
        return self.state.end.leader_epoch

    @property
    def segments(self) -> LogSegments[ViewSegment]:
        """Segments, lowest offset first."""
        return self.state.segments

    def segment_of(self, offset: int) -> ViewSegment | None:
        """Return the segment that holds the offset; None outside the log and after `close`."""
        state = self.state
        if self.closed or not state.start_offset <= offset < state.log_end_offset:
            return None
        return state.segments.floor(offset)

    @property
    def active_segment(self) -> ViewSegment:
        """The last segment."""
        return self.state.active

    @property
    def size(self) -> int:
        """Bytes of the segments' data files up to the log end."""
        return self.state.segments.size_in_bytes

    @property
    def damage(self) -> CorruptRecord | None:
        """Damage at the log end, if data there is not a complete valid batch: torn, damaged, or being written."""
        return self.state.end.problem

    @property
    def has_reserved_space(self) -> bool:
        """True if only zeros follow the log end: space that the owner reserved and has not cut off."""
        return self.state.end.problem is None and self.state.length > self.state.end_position

    @property
    def tail_damage(self) -> CorruptRecord | None:
        """Damage at the log end other than a torn write: missing records, or a complete batch at wrong offsets.

        In a data directory that was closed cleanly, an incomplete write counts too, and so do zeros in a segment that
        was trimmed, and an end before the recovery point: a clean close has everything below that on disk. Kafka 4.4
        may close a log without trimming it: its indexes then have free space too.
        """
        state = self.state
        if state is self._whole_state:
            return None
        found = self._damage_after(state)
        if found is None or isinstance(found, MisplacedBatch) or self.closed:
            return found
        self.refresh()  # the owner may have written since the last look, and closed the log
        if self.state.log_end_offset > state.log_end_offset or self._damage_after(self.state) is None:
            return None
        return found

    def _damage_after(self, state: ViewState) -> CorruptRecord | None:
        problem, before = state.end.problem, state.end.damage
        if isinstance(before, MisplacedBatch) and before.last_offset >= state.log_end_offset:
            return before  # its offsets may be right, and the log end higher
        if isinstance(problem, MisplacedBatch):
            return problem
        is_torn = state.length > state.end_position
        if not was_closed_cleanly(self.path, self.fs):
            self._whole_state = None if is_torn else state
            return None
        where = state.active.path, state.log_end_offset, state.end_position
        point = self._recovery_point()
        if is_torn and (point is None or point > state.log_end_offset or not self._is_untrimmed(state)):
            return problem or damage_at("zeros follow the last batch", *where)
        if point is not None and point > state.log_end_offset:
            return lost_end(state.active.path, point, state.log_end_offset, state.end_position)
        self._whole_state = state
        return None

    @staticmethod
    def _is_untrimmed(state: ViewState) -> bool:
        """Return True if the index and the bytes show what follows the log end as space that the owner reserved."""
        active, index = state.active, state.active.offset_index
        last_indexed = index.entry(index.entries - 1).position if index.entries else 0
        if not is_untrimmed(index.has_room, last_indexed, state.end_position):
            return False
        return state.end.problem is None or only_zeros(active.file, state.end_position, state.length)

    def _recovery_point(self) -> int | None:
        """Return the partition's recovery point; 0 if it has none, None if the checkpoint is damaged. StorageError."""
        if self.name != os.path.basename(self.path):
            return 0  # a future log, or one to be deleted: the checkpoint has the live one
        points = OffsetCheckpoint(os.path.join(os.path.dirname(self.path), RECOVERY_POINT_FILE), fs=self.fs)
        try:
            return points.read().get(self.topic_partition, 0)
        except CorruptCheckpoint:
            return None

    @property
    def problems(self) -> tuple[KafkalogError, ...]:
        """Problems found so far; each error names file, position and cause. None is raised here.

        An affected file is checked again after a pause, several times in a directory that is changing: its owner
        replaces the files of a segment one by one.
        """
        for pause_ms in _PAUSES_MS:
            if not (any(segment.problems for segment in self.state.segments) or self._transactions.problems):
                break
            self._clock.sleep(pause_ms)
            if not self._is_changing():
                break
        state = self.state
        at_end = [state.end.damage, state.end.problem]
        found = [*at_end, None if (trouble := self.tail_damage) in at_end else trouble, *state.checkpoints.problems]
        found += [problem for segment in state.segments for problem in segment.problems]
        found += [self._epoch_problem, *self._transactions.problems]
        return tuple(problem for problem in found if problem is not None)

    def _is_changing(self) -> bool:
        try:
            changed_ms = self.fs.stat(self.path).st_mtime_ns // 1_000_000
        except OSError:
            return False
        return self._clock.milliseconds() - changed_ms < _BUSY_MS

    # Following the directory

    def refresh(self) -> None:
        """Read the directory again: new data, new segments, truncation, deletion.

        Costs two `stat` calls if nothing has changed. LogClosed; PartitionNotFound if the directory is missing.
        """
        with self._lock:
            self._check_open()
            self.state = self._watch.looked(self.state)

    def look(self) -> None:
        """Refresh if the last look is 10 ms old: for a read of one record, which takes less time than a look."""
        if not 0 <= self._clock.milliseconds() - self._watch.looked_ms < LOOK_MS:  # negative: the clock was set
            self.refresh()

    # Reading

    def extent(self, offset: int) -> Extent:
        """Return the segment in which a walk to `offset` begins, up to its last complete valid batch.

        OffsetOutOfRange below the log start and above the log end; StorageError (ENOENT) for a missing file.
        """
        for attempt in range(LOOKS):
            self._check_open()
            state = self.state
            if state.start_offset <= offset <= state.log_end_offset:
                return extent_of(state, offset)
            if attempt:
                break
            self._refresh_fully()
        raise out_of_range(offset, self.state.start_offset, self.state.log_end_offset, self.path)

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Return the location of the data from `start_offset` on: complete batches of one segment, unread.

        At most `max_length` bytes, but with `min_one_message` at least the first batch. The slice is empty at the
        log end, and from the bound of `isolation` on (high watermark or last stable offset, LOG-21). "committed"
        adds the aborted transactions of the range found. OffsetOutOfRange below the log start and above the log end,
        also after the owner has truncated or deleted data the view had seen.
        """
        if isolation != "log_end":
            return self._read_bounded(start_offset, max_length, isolation, min_one_message)
        for attempt in range(1, LOOKS + 1):
            self._check_open()
            state = self.state
            if state.start_offset <= start_offset <= state.end.next_offset:
                try:
                    return read_state(state, start_offset, max_length, min_one_message)
                except StorageError as error:
                    if error.errno != errno.ENOENT or attempt == LOOKS:
                        raise
            elif attempt > 1:
                break
            self._refresh_fully()
        raise out_of_range(start_offset, self.state.start_offset, self.state.log_end_offset, self.path)

    def _read_bounded(
        self, start_offset: int, max_length: int, isolation: Isolation, min_one_message: bool
    ) -> FetchDataInfo:
        """Read as `read` does, up to the high watermark or the last stable offset."""
        bound = self._bound(isolation)
        found = self.read(start_offset, max_length, "log_end", min_one_message)
        if found.records.size:
            found = cut_at(found, self.segments.get(found.fetch_offset_metadata.segment_base_offset), bound)
        if isolation == "committed":
            found.aborted_transactions = self._aborted_in(found, bound) if found.records.size else ()
        return found

    def _bound(self, isolation: Isolation) -> int:
        return self.high_watermark if isolation == "high_watermark" else self.last_stable_offset

    def _aborted_in(self, found: FetchDataInfo, bound: int) -> tuple[AbortedTransaction, ...]:
        where = found.fetch_offset_metadata
        following = self.segments.higher(where.segment_base_offset)
        end = bound if following is None else min(bound, following.base_offset)
        first, query = where.message_offset, self._transactions.aborted_transactions
        return tuple(self._retry_if_changed(lambda state: query(state, first, end)))

    def _last_stable_offset(self, state: ViewState) -> int:
        first = self._transactions.first_unstable_offset(state)
        return state.log_end_offset if first is None else min(max(first, state.start_offset), state.log_end_offset)

    @property
    def has_damaged_transactions(self) -> bool:
        """False if every file read so far for the transactions was sound; no transaction is undecided then."""
        return self._transactions.is_damaged

    def undecided(self, first_offset: int, next_offset: int) -> Undecided | None:
        """Return the first transaction with records in this range whose end may be hidden by damage."""
        return self._of_transactions(lambda state: self._transactions.undecided(state, first_offset, next_offset))

    def undecided_at_end(self) -> Undecided | None:
        """Return the transaction at the last stable offset if damage may hide its end, also damage at the log's end."""
        found = self._of_transactions(self._transactions.undecided_at_end)
        if found is not None or (damage := self.tail_damage) is None:
            return found
        opened = min(self.open_transactions.items(), key=itemgetter(1), default=None)
        return None if opened is None else Undecided(*opened, self.log_end_offset, damage)

    def aborted_ranges(self, first_offset: int, next_offset: int) -> AbortedRanges:
        """Return the aborted transactions that records in this range, below the last stable offset, may belong to."""
        return self._of_transactions(lambda state: self._transactions.aborted_ranges(state, first_offset, next_offset))

    def _of_transactions(self, query: Callable[[ViewState], T]) -> T:
        """Return `query(state)`; repeat it if it met damage, and the owner has cut the log since the last look."""
        for _ in range(LOOKS):
            cuts = self.state.cuts
            found = self._retry_if_changed(query)
            if not self._transactions.has_met_damage:
                break
            self.refresh()
            if self.state.cuts == cuts:
                break
        return found

    def _retry_if_changed(self, query: Callable[[ViewState], T]) -> T:
        """Return `query(state)`; refresh and retry if a file is missing or was truncated or rewritten."""
        for _ in range(LOOKS - 1):
            self._check_open()
            try:
                return query(self.state)
            except CorruptRecord:
                self._refresh_fully()
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._refresh_fully()
        return query(self.state)

    def _refresh_fully(self) -> None:
        with self._lock:
            self._check_open()
            self.state = self._watch.listed(self.state)

    def offset_for_time(self, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
        """Return the first record with a timestamp (ms) at or above `timestamp`; None if there is none.

        -1 gives the log end, -2 the log start, -3 the first record with the largest timestamp (which may lie below
        the log start, in a segment that still exists). Another `isolation` replaces the log end by its bound, and
        records at or after it are not found, as for the reference's ListOffsets (PART-8).
        """
        found = self._retry_if_changed(lambda state: self._offset_for_time(state, timestamp))
        if isolation == "log_end":
            return found
        return bounded(found, timestamp, self._bound(isolation))

    def _offset_for_time(self, state: ViewState, timestamp: int) -> OffsetAndTimestamp | None:
        if timestamp == LATEST_TIMESTAMP:
            return OffsetAndTimestamp(state.end.next_offset, -1, state.end.leader_epoch)
        if timestamp == EARLIEST_TIMESTAMP:
            return OffsetAndTimestamp(state.start_offset, -1, self._epoch_of(state.start_offset))
        if timestamp == MAX_TIMESTAMP:
            return largest_timestamp(state)
        found = first_at(state.segments, timestamp, state.start_offset, state.log_end_offset)
        if found is None and (trouble := self.tail_damage) is not None:
            raise trouble  # the record may have been there
        return found

    def _epoch_of(self, offset: int) -> int:
        """Return the leader epoch that the partition's epoch file gives for an offset; -1 if it gives none."""
        try:
            self._epoch_problem = None
            return LeaderEpochCache.read(self.path, fs=self.fs).epoch_for(offset)
        except (CorruptCheckpoint, StorageError, IllegalArgument) as error:
            self._epoch_problem = error
            return -1

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed(f"log {self.name} is closed")

    def close(self) -> None:
        """Close the files. Slices still held by readers keep theirs until they are dropped."""
        with self._lock:
            self.closed = True
            for segment in self.state.segments:
                segment.release()

    def __repr__(self) -> str:
        state = self.state
        closed = " closed" if self.closed else ""
        return f"<LogView {self.name} [{state.start_offset}, {state.end.next_offset}){closed} {self.path}>"
