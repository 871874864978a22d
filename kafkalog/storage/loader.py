"""Opening a partition directory, after a clean end or an unclean one (LOAD-1 to LOAD-33).

    leftovers      files of interrupted cleans, splits and deletes               leftovers.py
    segments       each `.log` with its indexes; those that are missing or damaged are made anew
    recovery       unclean only: from the recovery point on, up to the first damage    recovery.py
    kept           sound batches behind a cut are kept before it is made, or the opening refuses    kept.py
    log start      a log that ends below it begins anew there
    producers      from the newest snapshot and what lies behind it

Index trouble is never fatal (KAFKA-1112, KAFKA-13603); what is cut or given up is told to the log.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from typing import Final, NamedTuple

from kafkalog._core.plan import SegmentTail
from kafkalog._core.recovery import BAD_RANGE
from kafkalog.config import LogConfig
from kafkalog.errors import FormatError, IllegalState, SegmentOffsetOverflow
from kafkalog.storage.damage import MisplacedBatch, next_sound
from kafkalog.storage.directory import Directory, list_directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.kept import Loss, find_loss, keep, whole_segments
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.leftovers import clear_leftovers, remove_file, renamed_txn_indexes
from kafkalog.storage.listed_segment import open_listed
from kafkalog.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_name,
    log_file_name,
    parse_base_offset,
)
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.rebuild_producers import rebuild_producers
from kafkalog.storage.recovery import FoundSegment, rebuild_indexes, recover_segment, scan_segment
from kafkalog.storage.recovery_run import Progress, RecoveryRun
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.soundness import (
    ends_whole,
    last_entries_agree,
    misplaced_end,
    offset_index_fits,
    time_index_fits,
    unsound_end,
)
from kafkalog.storage.split import has_overflow, split_segment
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """A log's segments and offsets as they are on disk; `given_up` are segments renamed for their delayed delete.

    `given_up_files` are snapshots that go with them. `is_untouched` says that no file was made or renamed.
    `misplaced_end` is the damage of a last batch that recovery took though it begins below the end of the one before.
    """

    segments: LogSegments[LogSegment]
    log_start_offset: int
    recovery_point: int
    next_offset: int
    given_up: tuple[LogSegment, ...]
    given_up_files: tuple[str, ...]
    is_untouched: bool
    misplaced_end: MisplacedBatch | None


class LogLoader:
    """One opening of one directory; `load` does it, once.

    `recovery_point` and `log_start_offset` are what the directory's checkpoints say; `progress` and `threads` as in
    `RecoveryRun`; `listed` is what is in the directory, if that was looked at just now. With `refuses_loss` it raises
    where sound batches would be given up, which else are kept. Threads: one, and those; many directories may load in
    parallel.
    """

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        fs: FileSystem,
        clock: Clock,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
        listed: Directory | None = None,
        keeps_begun_epochs: bool = False,
        refuses_loss: bool = False,
    ) -> None:
        self._directory = directory
        self._found = list_directory(directory, fs) if listed is None else listed
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._fs = fs
        self._clock = clock
        self._log_start = log_start_offset
        self._keeps_begun_epochs = keeps_begun_epochs
        self._refuses_loss = refuses_loss
        self._recovery_point = recovery_point
        self._clean = had_clean_shutdown
        self._progress = progress
        self._threads = threads
        self._segments: dict[int, LogSegment] = {}
        self._unindexed: list[LogSegment] = []
        self._tails: dict[int, SegmentTail] = {}  # of the segments that were recovered
        self._renamed_txns = renamed_txn_indexes(self._found.names)
        self._given_up: list[LogSegment] = []
        self._given_up_files: list[str] = []
        self._touched = False  # names in the directory have changed

    def load(self) -> Loaded:
        """The log; its last segment is ready for appends. StorageError; CorruptRecord (see `ends_whole`).

        IllegalState where `producers` knows something already: it would be added to (LOAD-19).
        """
        if not self._producers.is_empty:
            raise IllegalState("the producers of a log are known before it is loaded", path=self._directory)
        try:
            self._clear_leftovers()
            while True:
                try:
                    self._open_segments()
                    if not self._clean:
                        self._recover()
                    self._drop_hiding()
                    break
                except SegmentOffsetOverflow as error:
                    self._split(error)
            end = self._start_anew_if_below_log_start()
            return self._finish(end)
        except BaseException:
            for segment in (*self._segments.values(), *self._given_up):
                segment.close_handlers()
            raise

    def _clear_leftovers(self) -> None:
        if clear_leftovers(self._found, self._fs, self._log_start):
            self._look_again()

    def _look_again(self) -> None:
        self._touched = True
        self._found = list_directory(self._directory, self._fs)
        self._producers.snapshots.refresh(self._found.names)

    # Segments

    def _open_segments(self) -> None:
        """Look at names and sizes, and at the end of the log; other files are opened when they are used."""
        logs: set[int] = set()
        indexes: list[tuple[int, str]] = []
        for name in self._found.names:
            base = parse_base_offset(name)
            if base is not None:
                if name.endswith(LOG_SUFFIX):
                    logs.add(base)
                elif name.endswith(INDEX_SUFFIXES):
                    indexes.append((base, name))
        for base, name in sorted(indexes):
            if base not in logs:
                _LOG.warning("%s has no .log file: removed", os.path.join(self._directory, name))
                remove_file(self._directory, name, self._fs)
        bases = sorted(logs)
        names = frozenset([name for _, name in indexes])
        for at, base in enumerate(bases):
            self._open_segment(base, bases[at + 1] if at + 1 < len(bases) else None, names)

    def _open_segment(self, base: int, following: int | None, indexes: frozenset[str]) -> None:
        """Open one segment. Without `.index`, or with a damaged transaction index, it is recovered (LOAD-7, LOAD-8).

        So is one whose transaction index was renamed by a delete that came to nothing.

        After an unclean end that has to wait until what lies before it is recovered: it may not be readable yet.
        """
        self._segments[base] = segment = open_listed(
            self._found,
            base,
            self._config,
            offsets=MAX_RELATIVE_OFFSET + 1 if following is None else following - base,
            fs=self._fs,
            clock=self._clock,
            is_on_disk=self._clean,
            believes_indexes=not self._clean,
        )
        stem = base_name(base)
        has_index, has_times, has_txns = [stem + suffix in indexes for suffix in INDEX_SUFFIXES]
        if self._clean and following is None and not segment.size and not (has_index or has_times or has_txns):
            return  # new, and closed before its first record: its indexes are made where it becomes active
        if not has_index or base in self._renamed_txns or has_txns and not self._is_txn_index_sound(segment):
            if segment.size:
                _LOG.warning("%s: an index is missing or damaged, all are made anew", segment.path)
            if self._clean:
                self._reindex(segment, following)
            else:
                self._unindexed.append(segment)
        elif self._clean and not (has_times and (following is not None or self._ends_well(segment))):
            if segment.size:
                _LOG.warning("the indexes of %s are missing or damaged: they are made anew", segment.path)
            self._rebuild(segment, following)

    @staticmethod
    def _is_txn_index_sound(segment: LogSegment) -> bool:
        try:
            segment.txn_index.sanity_check()
        except FormatError as error:
            _LOG.warning("%s", error)
            return False
        return True

    @staticmethod
    def _ends_well(segment: LogSegment) -> bool:
        """True when the indexes of the last segment fit its data, and that ends with a whole batch."""
        return last_entries_agree(segment) and ends_whole(segment)

    def _indexes_fit(self, segment: LogSegment, offsets: int) -> bool:
        """True when both indexes are there and fit the data, which has room for so many offsets."""
        stem = os.path.join(self._directory, base_name(segment.base_offset))
        return offset_index_fits(self._fs, stem + INDEX_SUFFIX, segment.size, offsets) and time_index_fits(
            self._fs, stem + TIME_INDEX_SUFFIX, offsets
        )

    def _reindex(self, segment: LogSegment, bound: int | None, found: FoundSegment | None = None) -> None:
        """Rebuild all that is derived from a segment whose data was flushed; damage in it stays where it is.

        `bound` is the base offset of the next segment, None for the last one. There a torn batch at the end goes, and
        other damage is CorruptRecord.
        """
        if bound is None:
            is_whole = ends_whole(segment)
            found = scan_segment(segment).within(None, None)
            if is_whole and found.is_cut or self._clean and self._loss(segment, found) is not None:
                raise unsound_end(segment, found.found.tail.size)
            self._recover_one(segment, found)
            return
        found = (scan_segment(segment) if found is None else found).within(bound, None)
        is_complete = found.end_offset == bound and self._loss(segment, found) is None
        self._recover_one(segment, found, cuts=is_complete)

    def _rebuild(self, segment: LogSegment, bound: int | None) -> None:
        """Rebuild the indexes of a segment whose data was flushed; what is no sound batch is left to `_reindex`."""
        if bound is None:
            if not ends_whole(segment):
                self._reindex(segment, bound)
                return
        elif (found := scan_segment(segment)).found.tail.size < found.found.end:
            self._reindex(segment, bound, found)
            return
        segment.pin_indexes()
        rebuild_indexes(segment)
        self._settle(segment)

    def _settle(self, segment: LogSegment) -> None:
        """A segment's files are changed; behind the recovery point no later flush comes to sync them."""
        segment.files_changed()
        if self._clean:
            segment.flush()
        segment.unpin_indexes()

    def _split(self, error: SegmentOffsetOverflow) -> None:
        """Split the segment that `error` names, then begin again with the files as they are now."""
        segment = next((s for s in self._segments.values() if s.path == error.path), None)
        if segment is None or not has_overflow(segment):
            raise error
        for part in split_segment(segment, self._directory, self._config, self._fs, self._clock):
            part.close_handlers()
        self._given_up.append(segment)
        for other in self._segments.values():
            if other is not segment:
                other.close_handlers()
        self._segments.clear()
        self._unindexed.clear()
        self._tails.clear()
        self._look_again()

    def _drop_hiding(self) -> None:
        """Take out empty segments that begin below the end of the one before: they would hide its records.

        Such a file is left by a roll that failed and could not be undone, or was cut short by a crash.
        """
        segments = list(self._segments.values())
        for empty, before in zip(segments[:0:-1], segments[-2::-1], strict=True):
            if not empty.size and before.size and before.read_next_offset() > empty.base_offset:
                _LOG.warning("%s is empty and overlaps the segment before it: removed", empty.path)
                empty.delete_if_exists()
                self._producers.snapshots.remove(empty.base_offset)
                del self._segments[empty.base_offset]

    # Recovery

    def _recover(self) -> None:
        """Recover the segments from the one that holds the recovery point on; what follows damage is given up."""
        point = min(self._recovery_point, 2**63 - 1)
        unflushed = LogSegments(self._segments.values()).values(point, 2**63 - 1) if self._segments else ()
        self._check_flushed(unflushed[0].base_offset if unflushed else 2**63 - 1)
        run = RecoveryRun(self._directory, unflushed, self._progress, self._threads)
        ends = None
        with closing(run.scanned()) as scanned:
            for done, found in enumerate(scanned):
                found = self._judged(unflushed, done, found)
                if found.is_cut and not _goes_on(found, unflushed[done + 1 :]):
                    ends = done, found  # files are read ahead: none is moved before that is over
                    break
                run.note(found, self._recover_one(unflushed[done], found))
        if ends is not None:
            done, found = ends
            run.note(found, self._recover_one(unflushed[done], found, unflushed[done + 1 :]))
            self._give_up(unflushed[done + 1 :])
        run.tell_end()

    @staticmethod
    def _judged(segments: tuple[LogSegment, ...], done: int, found: FoundSegment) -> FoundSegment:
        """Return what a pass found, with an offset that does not fit as damage where the log goes on below it."""
        if found.status != BAD_RANGE:
            return found
        segment, position = segments[done], found.found.tail.size
        behind = next_sound(segment.records.slice(0, 0).file, position, segment.size, found.end_offset)
        bound = segments[done + 1].base_offset if done + 1 < len(segments) else None
        return found.within(bound, None if behind is None else behind.base_offset)

    def _check_flushed(self, upto: int) -> None:
        """Make the indexes of segments below `upto` sound: their data was flushed, what trimmed them may be lost."""
        segments = list(self._segments.values())
        for segment, following in zip(segments, segments[1:], strict=False):
            if segment.base_offset >= upto:
                return
            if segment in self._unindexed:
                self._reindex(segment, following.base_offset)
            elif not self._indexes_fit(segment, following.base_offset - segment.base_offset):
                _LOG.warning("the indexes of %s are damaged: they are made anew", segment.path)
                self._rebuild(segment, following.base_offset)
            else:
                continue
            segment.flush()  # no later flush comes back to what lies behind the recovery point

    def _recover_one(
        self,
        segment: LogSegment,
        found: FoundSegment | None = None,
        following: tuple[LogSegment, ...] = (),
        *,
        cuts: bool = True,
    ) -> int:
        """The bytes cut; with the producers as they were at its base, and a snapshot of them at its end (LOAD-27).

        What is sound behind the cut, in the segment and in those that go with it, is kept before. Without `cuts` the
        data stays as it is.
        """
        found = scan_segment(segment) if found is None else found
        if cuts:
            self._keep(self._loss(segment, found, following))
        producers = self._producers.fresh()
        segments = LogSegments(s for s in self._segments.values() if s.base_offset < segment.base_offset)
        rebuild_producers(
            producers, segments, self._log_start, segment.base_offset, self._clock.milliseconds(), clean=False
        )
        segment.pin_indexes()
        cut = recover_segment(segment, producers, self._epochs, found, cuts=cuts)
        self._settle(segment)
        self._tails[segment.base_offset] = found.found.tail
        producers.take_snapshot()
        self._producers.snapshots.refresh()
        return cut

    def _loss(
        self, segment: LogSegment, found: FoundSegment, following: tuple[LogSegment, ...] = ()
    ) -> Loss | None:
        """What is sound of what goes where a segment is cut, and of those that go with it; None for nothing."""
        if not found.is_cut:
            return None
        base, position, bases = segment.base_offset, found.found.tail.size, [one.base_offset for one in following]
        return find_loss(self._directory, base, position, found.end_offset, found.damage, bases, self._fs)

    def _keep(self, loss: Loss | None) -> None:
        """Keep what is sound of what goes; whole segments are out of the log then."""
        if loss is None:
            return
        if self._refuses_loss:
            raise loss.refusal()
        self._touched = True
        moved = [self._segments[one.base_offset] for one in loss.files if not one.is_copy]
        for segment in moved:
            segment.close_handlers()
        keep(loss, self._fs, self._clock)
        for segment in moved:
            del self._segments[segment.base_offset]

    def _give_up(self, segments: tuple[LogSegment, ...]) -> None:
        """Rename segments that were not kept, and all snapshots, for a delayed delete, the last one first."""
        self._touched = True
        for segment in reversed(segments):
            if segment.base_offset in self._segments:
                _LOG.warning("%s lies behind damage, or below the log start: given up", segment.path)
                segment.change_file_suffixes("", DELETED_SUFFIX)
                del self._segments[segment.base_offset]
                self._given_up.append(segment)
            marked = self._producers.snapshots.mark_deleted(segment.base_offset)
            if marked is not None:
                self._given_up_files.append(marked)

    def _start_anew_if_below_log_start(self) -> int | None:
        """The log end; None where there is no log, or it ended below the log start and was given up (LOAD-13)."""
        if not self._segments:
            return None
        end = self._segments[max(self._segments)].read_next_offset()
        if end >= self._log_start:
            return end
        _LOG.warning("%s ends at %d, below its log start %d: it begins anew", self._directory, end, self._log_start)
        files = whole_segments(self._directory, self._segments, self._fs)
        reason = f"its log start is {self._log_start}, above its end"
        segments = tuple(self._segments.values())
        self._keep(Loss(self._directory, max(self._segments), 0, end, reason, files) if files else None)
        self._give_up(segments)
        self._tails.clear()
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(self._log_start)
        return None

    def _finish(self, end: int | None) -> Loaded:
        if not self._segments:
            self._touched = True
            self._segments[self._log_start] = LogSegment.open(
                self._directory,
                self._log_start,
                self._config,
                fs=self._fs,
                clock=self._clock,
                init_file_size=self._config.init_file_size,
                preallocate=self._config.preallocate,
            )
        segments = LogSegments(self._segments.values())
        next_offset = segments.active.read_next_offset() if end is None else end
        kept_all = self._clean and end is not None
        point = next_offset if kept_all else min(self._recovery_point, next_offset)
        start = max(self._log_start, segments[0].base_offset)
        self._epochs.truncate_from_start(self._log_start)
        self._epochs.truncate_from_end(next_offset + self._keeps_begun_epochs)
        if not self._clean:
            self._producers.snapshots.remove_damaged(point)
        self._producers.snapshots.remove_strays(segments.base_offsets)
        self._load_producers(segments, start, next_offset)
        segments.active.become_active(self._tails.get(segments.active.base_offset))
        for name in self._renamed_txns.values():
            remove_file(self._directory, name, self._fs)
        given_up, files = tuple(self._given_up), tuple(self._given_up_files)
        is_untouched = self._clean and not self._touched
        misplaced = None if self._clean else misplaced_end(segments.active)
        return Loaded(segments, start, point, next_offset, given_up, files, is_untouched, misplaced)

    def _load_producers(self, segments: LogSegments[LogSegment], start: int, next_offset: int) -> None:
        """Know the producers; a transaction index that misses what they did is made anew, with its segment's others."""
        now_ms = self._clock.milliseconds()
        lagging = rebuild_producers(self._producers, segments, start, next_offset, now_ms, clean=self._clean)
        if lagging:
            for segment in lagging:
                _LOG.warning("%s: its transaction index is not complete, all indexes are made anew", segment.path)
                following = segments.higher(segment.base_offset)
                self._reindex(segment, None if following is None else following.base_offset)
            self._producers.forget()
            rebuild_producers(self._producers, segments, start, next_offset, now_ms, clean=False)


def begin_log(directory: str, config: LogConfig, *, fs: FileSystem, clock: Clock) -> Loaded:
    """Make the first segment of a log, at offset 0, in a directory that was made just now; nothing is synced."""
    name = log_file_name(0)
    path, size = os.path.join(directory, name), config.init_file_size
    FileRecords.create(path, fs=fs, init_file_size=size, preallocate=config.preallocate)
    segment = open_listed(
        Directory(directory, (name,), {name: 0}), 0, config, offsets=MAX_RELATIVE_OFFSET + 1, fs=fs, clock=clock,
        is_on_disk=False, believes_indexes=True,
    )  # fmt: skip
    segment.begin()
    return Loaded(LogSegments((segment,)), 0, 0, 0, (), (), False, None)


def _goes_on(found: FoundSegment, following: tuple[LogSegment, ...]) -> bool:
    """True when the next segment begins where this one ends: what is cut off is no record.

    It is room reserved ahead, or a write that failed and was undone, and the trim at the roll was not synced.
    """
    return bool(following) and following[0].base_offset == found.end_offset
