"""Mode "r": one partition directory read while another process may own it.

Takes no lock, writes nothing, maps nothing. What is known of the directory is one immutable `ViewState`,
replaced whole by `refresh()`; reads take the state once and need no lock.
"""

from __future__ import annotations

import errno
import os
import threading
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from kafkalog.errors import (
    CorruptCheckpoint,
    KafkalogError,
    LogClosed,
    NotAPartition,
    OffsetOutOfRange,
    StorageError,
)
from kafkalog.storage.glance import record_at_time
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.view_end import SegmentEnd, empty_end, extend_end, still_there
from kafkalog.storage.view_listing import (
    ListedSegment,
    list_segments,
    no_segments,
    not_a_directory,
    unreadable,
)
from kafkalog.storage.view_segment import Descriptors, ViewSegment
from kafkalog.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FetchDataInfo,
    Isolation,
    LogOffsetMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kafkalog.util.checkpoint import LOG_START_FILE, OffsetCheckpoint
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

LISTING_MS: Final = 1000
"""The directory is listed at least this often, whatever its times say (they may come from another machine)."""
FRESH_MS: Final = 100
"""A modification time this young does not show the next change: file times go by ticks of a few ms."""
LISTING_ATTEMPTS: Final = 20


class ViewState:
    """What one look at the directory found: the segments, and where the log starts and ends.

    `length` and `mtime_ns` are those of the last segment's file before it was read.
    """

    __slots__ = (
        "active", "end", "end_offset", "largest_so_far", "length", "mtime_ns", "problem", "segments", "start_offset",
    )  # fmt: skip

    def __init__(
        self,
        segments: LogSegments[ViewSegment],
        end: SegmentEnd,
        start_offset: int,
        problem: KafkalogError | None,
        length: int,
        mtime_ns: int,
    ) -> None:
        self.segments = segments
        self.active = segments.active
        self.end = end
        self.end_offset: int = end.next_offset
        self.start_offset: int = min(max(start_offset, segments[0].base_offset), end.next_offset)
        self.problem = problem
        self.length = length
        self.mtime_ns = mtime_ns
        self.largest_so_far: list[int] | None = None

    def first_with_time(self, timestamp: int) -> int:
        """The number of the first segment that has a record at or after `timestamp`; the count of all for none."""
        largest = self.largest_so_far
        if largest is None:
            largest = list(accumulate((s.largest_timestamp() for s in self.segments), max))
            self.largest_so_far = largest
        return bisect_left(largest, timestamp)


class LogView:
    """The partition directory `path`, open for reading; the same read interface as `UnifiedLog`.

    It ends at the last whole valid batch; `problems` says what lies behind it. PartitionNotFound,
    NotAPartition, or StorageError (permissions) when it cannot be opened. Threads: safe.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, fs: FileSystem = OS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.path = os.path.realpath(os.fspath(path))
        self._fs = fs
        self._clock = clock
        self._lock = threading.Lock()
        self._descriptors = Descriptors()
        self._checkpoint_problem: CorruptCheckpoint | StorageError | None = None  # guarded by self._lock
        self._listed_ms = 0  # guarded by self._lock; monotonic
        self._directory_mtime_ns = -1  # guarded by self._lock
        self._fresh = True  # guarded by self._lock: what was seen may be changing within this tick
        self.topic_partition = self._partition()
        self.closed = False
        with self._lock:
            self._state = self._listed_locked(None)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, fs: FileSystem = OS, clock: Clock = SYSTEM_CLOCK
    ) -> LogView:
        """The view of the directory `path`, as the constructor makes it."""
        return cls(path, fs=fs, clock=clock)

    @property
    def name(self) -> str:
        """`<topic>-<partition>`."""
        return str(self.topic_partition)

    # What the last look found

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole valid batch."""
        return self._state.end_offset

    @property
    def high_watermark(self) -> int:
        """The log end: how far replicas have come is not in the partition's directory."""
        return self._state.end.next_offset

    @property
    def last_stable_offset(self) -> int:
        """The log end, until transactions are read."""
        return self._state.end.next_offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last batch; -1 where there is none."""
        return self._state.end.leader_epoch

    @property
    def segments(self) -> LogSegments[ViewSegment]:
        """The segments, lowest offset first."""
        return self._state.segments

    @property
    def active_segment(self) -> ViewSegment:
        """The last segment."""
        return self._state.active

    @property
    def size(self) -> int:
        """Bytes of the segments' data files up to the log end."""
        return self._state.segments.size_in_bytes

    @property
    def problems(self) -> tuple[KafkalogError, ...]:
        """What is wrong as far as was looked: each error names file, position and what; none is raised here."""
        state = self._state
        found = [state.end.problem, state.problem, *(p for s in state.segments for p in s.problems)]
        return tuple(problem for problem in found if problem is not None)

    # Following the directory

    def refresh(self) -> None:
        """Looks at the directory again: new data, new segments, truncation, deletion.

        Two `stat` calls where nothing has changed. LogClosed; PartitionNotFound when the directory is gone.
        """
        with self._lock:
            self._check_open()
            if self._directory_changed_locked():
                self._state = self._listed_locked(self._state)
            else:
                self._follow_active_locked()

    def _partition(self) -> TopicPartition:
        """The partition that the directory's name says, once it is known to be a directory."""
        try:
            self._fs.stat(os.path.join(self.path, ""))
        except NotADirectoryError:
            raise not_a_directory(self.path) from None
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            return parse_topic_partition_dir(os.path.basename(self.path))
        except NotAPartition as error:
            if not list_segments(self._fs, self.path):
                raise no_segments(self._fs, self.path) from None
            raise NotAPartition(error.message, path=self.path, hint=error.hint) from None

    def _directory_changed_locked(self) -> bool:
        now = self._clock.monotonic_ms()
        if self._fresh or now - self._listed_ms >= LISTING_MS:
            return True
        try:
            mtime_ns = self._fs.stat(self.path).st_mtime_ns
        except OSError as error:
            raise unreadable(self.path, error) from error
        return mtime_ns != self._directory_mtime_ns

    def _note_listing_locked(self) -> None:
        """Remembers when the directory was last changed, before it is listed."""
        try:
            mtime_ns = self._fs.stat(self.path).st_mtime_ns
        except OSError as error:
            raise unreadable(self.path, error) from error
        self._listed_ms = self._clock.monotonic_ms()
        self._directory_mtime_ns = mtime_ns
        self._fresh = self._clock.milliseconds() - mtime_ns // 1_000_000 < FRESH_MS

    def _listed_locked(self, old: ViewState | None) -> ViewState:
        """A new state from a listing; a file that vanishes between listing and opening means: list again."""
        for attempt in range(LISTING_ATTEMPTS):
            self._note_listing_locked()
            listed = list_segments(self._fs, self.path)
            if not listed:
                raise no_segments(self._fs, self.path)
            try:
                return self._state_of_locked(listed, old)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._clock.sleep(attempt)
        raise StorageError(
            "the directory's files keep changing their names while they are listed",
            path=self.path,
            hint="try again when its owner has settled",
        )

    def _state_of_locked(self, listed: tuple[ListedSegment, ...], old: ViewState | None) -> ViewState:
        known = {} if old is None else {(s.base_offset, s.inode): s for s in old.segments}
        segments = LogSegments(self._segment_of(entry, known) for entry in listed)
        last = segments.active
        for segment in segments[:-1]:
            if segment.is_last or not segment.is_measured:
                segment.measure()
                segment.is_last = False
        was_last = last.is_last
        last.is_last = True
        start_offset = self._checkpointed_start_locked()
        known_end = old.end if old is not None and was_last and old.active is last else None
        end, length, mtime_ns = self._end_of(last, known_end)
        return ViewState(segments, end, start_offset, self._checkpoint_problem, length, mtime_ns)

    def _segment_of(
        self, entry: ListedSegment, known: dict[tuple[int, int], ViewSegment]
    ) -> ViewSegment:
        segment = known.get((entry.base_offset, entry.inode))
        if segment is None:
            segment = ViewSegment(self.path, entry, fs=self._fs, descriptors=self._descriptors)
        elif segment.file_name != entry.name:
            segment.file_name = entry.name
        return segment

    def _follow_active_locked(self) -> None:
        """Takes in what was written to, or cut from, the last segment since the last look."""
        state = self._state
        stat = state.active.stat()
        if stat.st_size == state.length and stat.st_mtime_ns == state.mtime_ns and not self._fresh_file(stat):
            return
        end, length, mtime_ns = self._end_of(state.active, state.end)
        if end == state.end and length == state.length and mtime_ns == state.mtime_ns:
            return
        self._state = ViewState(
            state.segments, end, state.start_offset, state.problem, length, mtime_ns
        )

    def _fresh_file(self, stat: os.stat_result) -> bool:
        return self._clock.milliseconds() - stat.st_mtime_ns // 1_000_000 < FRESH_MS

    def _end_of(self, last: ViewSegment, known: SegmentEnd | None) -> tuple[SegmentEnd, int, int]:
        """Where the last segment ends, with the length and time of its file as they were before the look.

        From `known` on where that still holds, else from the last index entry, else from the start.
        """
        stat = last.stat()
        file = last.file
        last.set_size(stat.st_size)
        if known is None or known.size > stat.st_size or not still_there(file, known):
            last.forget_indexes()
            known = last.advised_end() or empty_end(last.base_offset)
        end = extend_end(file, last.base_offset, known, stat.st_size)
        last.set_size(end.size)
        return end, stat.st_size, stat.st_mtime_ns

    def _checkpointed_start_locked(self) -> int:
        """The log start that the parent directory's checkpoint has for this partition; 0 without one."""
        parent = os.path.dirname(self.path)
        try:
            offsets = OffsetCheckpoint(os.path.join(parent, LOG_START_FILE), fs=self._fs).read()
        except (CorruptCheckpoint, StorageError) as error:
            self._checkpoint_problem = error
            return 0
        self._checkpoint_problem = None
        return offsets.get(self.topic_partition, 0)

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Where the data from `start_offset` on lies: whole batches of one segment, no record byte read.

        At most `max_length` bytes, but never less than the first batch with `min_one_message`. At the log
        end the slice is empty. OffsetOutOfRange below the log start and above the log end, also when
        the owner has cut or deleted what the view had seen.
        """
        for attempt in (1, 2):
            self._check_open()
            state = self._state
            if state.start_offset <= start_offset <= state.end.next_offset:
                try:
                    return self._read_state(state, start_offset, max_length, min_one_message)
                except StorageError as error:
                    if error.errno != errno.ENOENT or attempt == 2:
                        raise
            if attempt == 1:
                self._refresh_fully()
        raise self.out_of_range(start_offset)

    def _refresh_fully(self) -> None:
        with self._lock:
            self._check_open()
            self._state = self._listed_locked(self._state)

    def _read_state(
        self, state: ViewState, start_offset: int, max_length: int, min_one_message: bool
    ) -> FetchDataInfo:
        segment = state.segments.floor(start_offset)
        while segment is not None:
            found = segment.translate_offset(start_offset)
            if found is not None:
                base_offset, position, size = found
                bound = state.end.size if segment is state.active else segment.size
                if position < bound:
                    if min_one_message and max_length < size:
                        max_length = size
                    return FetchDataInfo(
                        LogOffsetMetadata(base_offset, segment.base_offset, position),
                        segment.records.slice(position, min(max_length, bound - position)),
                        max_length < size,
                    )
            hidden = segment.hidden_at(start_offset, state.end if segment is state.active else None)
            if hidden is not None:  # whoever reads there learns what is wrong
                where = LogOffsetMetadata(start_offset, segment.base_offset, hidden)
                return FetchDataInfo(where, segment.records.slice(hidden, segment.size - hidden), True)
            segment = state.segments.higher(segment.base_offset)
        last = state.active
        where = LogOffsetMetadata(state.end.next_offset, last.base_offset, state.end.size)
        return FetchDataInfo(where, last.records.slice(state.end.size, 0))

    def out_of_range(self, offset: int) -> OffsetOutOfRange:
        """The error for an offset that the log does not hold (any more, or yet)."""
        state = self._state
        start, end = state.start_offset, state.end.next_offset
        hint = f"log {self.name} holds offsets [{start}, {end})"
        if offset < start:
            return OffsetOutOfRange("the offset lies before the log start", path=self.path, offset=offset, hint=hint)
        return OffsetOutOfRange("the offset lies after the log end", path=self.path, offset=offset, hint=hint)

    def offset_for_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record whose timestamp (ms) is at or above `timestamp`; None where there is none.

        -1 gives the log end, -2 the log start, -3 the first record with the largest timestamp (which may lie
        below the log start, in a segment that is still there).
        """
        self._check_open()
        state = self._state
        if timestamp == LATEST_TIMESTAMP:
            return OffsetAndTimestamp(state.end.next_offset, -1, state.end.leader_epoch)
        if timestamp == EARLIEST_TIMESTAMP:
            return OffsetAndTimestamp(state.start_offset, -1)
        if timestamp == MAX_TIMESTAMP:
            return self._largest_timestamp(state)
        return self._first_at(state, timestamp, state.start_offset)

    def _first_at(self, state: ViewState, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; those the view has not seen yet are left out.

        A segment that promises one and has none (compaction emptied it) is passed over.
        """
        for number in range(state.first_with_time(timestamp), len(state.segments)):
            segment = state.segments[number]
            found = record_at_time(segment, timestamp, start_offset)
            if found is None:
                found = segment.find_offset_by_timestamp(timestamp, start_offset)
            if found is not None:
                return found if found.offset < state.end_offset else None
        return None

    def _largest_timestamp(self, state: ViewState) -> OffsetAndTimestamp | None:
        largest = max(segment.largest_timestamp() for segment in state.segments)
        return None if largest < 0 else self._first_at(state, largest, 0)

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed(f"log {self.name} is closed")

    def close(self) -> None:
        """Gives up the files. Slices that readers still hold keep theirs until they are dropped."""
        with self._lock:
            self.closed = True
            for segment in self._state.segments:
                segment.release()

    def __enter__(self) -> LogView:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._state
        closed = " closed" if self.closed else ""
        return f"<LogView {self.name} [{state.start_offset}, {state.end.next_offset}){closed} {self.path}>"
