"""Cheap polling of a directory that another process changes; the result is one `ViewState`."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, KafkalogError, StorageError
from kafkalog.storage.directory import missing_target
from kafkalog.storage.names import SWAP_SUFFIX
from kafkalog.storage.readonly.end import SegmentEnd, empty_end, find_end, has_last_batch
from kafkalog.storage.readonly.files import Descriptors
from kafkalog.storage.readonly.listing import (
    UnopenedSegment,
    is_being_changed,
    list_segments,
    no_segments,
    unreadable,
)
from kafkalog.storage.readonly.segment import ViewSegment, hold_batch
from kafkalog.storage.segments import LogSegments
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, LOG_START_FILE, OffsetCheckpoint
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

LISTING_MS: Final = 1000
"""Longest time (ms) between listings, even if the directory's times are unchanged (another machine may set them)."""
FRESH_MS: Final = 100
"""A modification time younger than this (ms) may hide a later change: file times advance in ticks of a few ms."""
LISTING_ATTEMPTS: Final = 20


class Checkpointed(NamedTuple):
    """Offsets of the partition in the data directory's checkpoint files, and the problems of those files.

    Without an entry the log starts with its first segment, and the high watermark is unknown.
    """

    log_start: int
    high_watermark: int | None
    problems: tuple[KafkalogError, ...]


class ViewState:
    """Result of one look at the directory: the segments, and the log's start and end.

    `length` and `mtime_ns` are those of the last segment's file before it was read. `cuts` is the number of looks so
    far that found the end of the look before gone: the log was truncated.
    """

    __slots__ = (
        "active", "checkpoints", "cuts", "end", "end_position", "high_watermark", "length", "log_end_offset",
        "mtime_ns", "segments", "start_offset",
    )  # fmt: skip

    def __init__(
        self,
        segments: LogSegments[ViewSegment],
        end: SegmentEnd,
        checkpoints: Checkpointed,
        length: int,
        mtime_ns: int,
        cuts: int = 0,
    ) -> None:
        self.segments = segments
        self.cuts = cuts
        self.active = segments.active
        self.end = end
        self.log_end_offset: int = end.next_offset
        self.end_position: int = end.size
        self.checkpoints = checkpoints
        self.start_offset: int = min(max(checkpoints.log_start, segments[0].base_offset), end.next_offset)
        mark = checkpoints.high_watermark
        self.high_watermark: int = (
            end.next_offset if mark is None else min(max(mark, self.start_offset), end.next_offset)
        )
        self.length = length
        self.mtime_ns = mtime_ns


class DirectoryWatch:
    """State of a partition directory at the last look; if nothing has changed, a look costs two `stat` calls.

    Threads: one at a time (the view's lock).
    """

    def __init__(
        self,
        path: str,
        topic_partition: TopicPartition,
        fs: FileSystem,
        clock: Clock,
        checkpoints: CheckpointCache | None,
    ) -> None:
        self._path = path
        self._topic_partition = topic_partition
        self._fs = fs
        self._checkpoints = checkpoints
        self._clock = clock
        self._descriptors = Descriptors()
        self._listed_ms = 0  # monotonic
        self.looked_ms = 0
        self._directory_mtime_ns = -1
        self._fresh = True  # the directory may change again within this tick

    def looked(self, state: ViewState) -> ViewState:
        """Return the current state, given that of the last look; `state` itself if nothing has changed."""
        self.looked_ms = self._clock.milliseconds()
        return self.listed(state) if self._directory_changed() else self._followed(state)

    def _directory_changed(self) -> bool:
        now = self._clock.monotonic_ms()
        if self._fresh or now - self._listed_ms >= LISTING_MS:
            return True
        return self._directory_time() != self._directory_mtime_ns

    def _directory_time(self) -> int:
        try:
            return self._fs.stat(self._path).st_mtime_ns
        except OSError as error:
            raise unreadable(self._path, error) from error

    def listed(self, old: ViewState | None) -> ViewState:
        """Return a new state from a listing; list again if a file vanishes between listing and opening."""
        missing: str | None = None
        for attempt in range(LISTING_ATTEMPTS):
            self._fresh = True  # until the listing is complete: an interrupted one is repeated
            mtime_ns = self._directory_time()
            now_ms, listed_ms = self._clock.milliseconds(), self._clock.monotonic_ms()
            listed = list_segments(self._fs, self._path)
            if not listed:
                if attempt == LISTING_ATTEMPTS - 1 or not is_being_changed(self._fs, self._path):
                    raise no_segments(self._fs, self._path)
                self._clock.sleep(attempt)  # its owner is creating the first segment, or replacing all of them
                continue
            try:
                state = self._state_of(listed, old)
                self._directory_mtime_ns, self._listed_ms = mtime_ns, listed_ms
                self._fresh = now_ms - mtime_ns // 1_000_000 < FRESH_MS
                return state
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                missing = error.path
                self._clock.sleep(attempt)
        if missing is not None and os.path.islink(missing):
            raise missing_target(missing)
        raise StorageError(
            "file names keep changing while the directory is listed",
            path=self._path,
            hint="try again later",
        )

    def _state_of(self, listed: tuple[UnopenedSegment, ...], old: ViewState | None) -> ViewState:
        known = {} if old is None else {(s.base_offset, s.inode): s for s in old.segments}
        segments = LogSegments(self._segment_of(entry, known) for entry in listed)
        last = segments.active
        for segment, following in zip(segments[:-1], segments[1:], strict=True):
            segment.measure()  # each one: it may have been truncated, written and rolled again since the last look
            segment.is_last = False
            segment.following = following
            is_replaced = segment.file_name.endswith(SWAP_SUFFIX) or following.file_name.endswith(SWAP_SUFFIX)
            segment.is_elsewhere = partial(hold_batch, following) if is_replaced or self._fs.has_overlaps else None
        was_last = last.is_last
        last.is_last, last.is_elsewhere, last.following = True, None, None
        checkpoints = self._checkpointed()
        known_end = old.end if old is not None and was_last and old.active is last else None
        was_cut = old is not None and known_end is None and _was_cut(old, segments)
        end, length, mtime_ns, ends_elsewhere = self._end_of(last, known_end)
        cuts = 0 if old is None else old.cuts + (was_cut or ends_elsewhere)
        return ViewState(segments, end, checkpoints, length, mtime_ns, cuts)

    def _segment_of(
        self, entry: UnopenedSegment, known: dict[tuple[int, int], ViewSegment]
    ) -> ViewSegment:
        segment = known.get((entry.base_offset, entry.inode))
        if segment is None:
            segment = ViewSegment(self._path, entry, fs=self._fs, descriptors=self._descriptors)
        elif segment.file_name != entry.name:
            segment.file_name = entry.name
        return segment

    def _followed(self, state: ViewState) -> ViewState:
        """Return the state updated with changes to the last segment's end since the last look."""
        stat = state.active.stat()
        if stat.st_size == state.length and stat.st_mtime_ns == state.mtime_ns and not self._fresh_file(stat):
            return state
        end, length, mtime_ns, was_cut = self._end_of(state.active, state.end)
        if end == state.end and length == state.length and mtime_ns == state.mtime_ns and not was_cut:
            return state
        return ViewState(state.segments, end, state.checkpoints, length, mtime_ns, state.cuts + was_cut)

    def _fresh_file(self, stat: os.stat_result) -> bool:
        return self._clock.milliseconds() - stat.st_mtime_ns // 1_000_000 < FRESH_MS

    def _end_of(self, last: ViewSegment, known: SegmentEnd | None) -> tuple[SegmentEnd, int, int, bool]:
        """Return the end of the last segment, the length and time of its file before the look, and if `known` is gone.

        The walk starts at `known` if that is still valid, else at the last index entry, else at the start.
        """
        file = last.file  # opened first: `stat` then asks the file itself
        stat = last.stat()
        last.set_size(stat.st_size)
        was_cut = known is not None and (known.size > stat.st_size or not has_last_batch(file, known))
        if known is None or was_cut:
            last.forget_indexes()
            known = last.advised_end() or empty_end(last.base_offset)
        end = find_end(file, last.base_offset, known, stat.st_size)
        last.set_size(end.size)
        return end, stat.st_size, stat.st_mtime_ns, was_cut

    def _checkpointed(self) -> Checkpointed:
        """Read the partition's entries in the checkpoints beside its directory; they lag behind a running broker."""
        problems: list[KafkalogError] = []
        start = self._checkpoint(LOG_START_FILE, problems)
        mark = self._checkpoint(HIGH_WATERMARK_FILE, problems)
        return Checkpointed(0 if start is None else start, mark, tuple(problems))

    def _checkpoint(self, name: str, problems: list[KafkalogError]) -> int | None:
        path = os.path.join(os.path.dirname(self._path), name)
        try:
            if self._checkpoints is not None:
                return self._checkpoints.read(path).get(self._topic_partition)
            return OffsetCheckpoint(path, fs=self._fs).read().get(self._topic_partition)
        except (CorruptCheckpoint, StorageError) as error:
            problems.append(error)
            return None


def _was_cut(old: ViewState, segments: LogSegments[ViewSegment]) -> bool:
    """Return True if the last segment of `old`, with what follows now, lacks what was its end: only cuts remove that.

    Below the log's start retention has removed it.
    """
    last = old.active
    if last.base_offset < segments[0].base_offset:
        return False
    if segments.get(last.base_offset) is not last or old.end.size > last.size:
        return True
    return not has_last_batch(last.file, old.end)
