"""Opening a partition directory after a clean or an unclean shutdown (LOAD-1 to LOAD-33).

    leftovers      files of interrupted cleans, splits and deletes               leftovers.py
    segments       each `.log` with its indexes; missing or damaged indexes are rebuilt
    recovery       unclean only: from the recovery point on, up to the first damage    recovery.py
    kept           sound batches behind a cut are kept before it is made, or the opening fails    kept.py
    log start      a log that ends below it is restarted there
    producers      from the newest snapshot and the log behind it

Index damage is never fatal (KAFKA-1112, KAFKA-13603). Each cut or removal is logged.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from typing import Final, NamedTuple

from kafkalog._core.log.recovery import BAD_RANGE
from kafkalog._core.log.roll import SegmentTail
from kafkalog.config.topic import LogConfig
from kafkalog.errors import FormatError, IllegalState, SegmentOffsetOverflow
from kafkalog.storage.damage import MisplacedBatch, next_sound
from kafkalog.storage.directory import Directory, list_directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.leader_epoch import EpochEntry, LeaderEpochCache
from kafkalog.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    TIME_INDEX_SUFFIX,
    base_name,
    log_file_name,
    parse_base_offset,
)
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.recovery.kept import Loss, find_loss, keep, whole_segments
from kafkalog.storage.recovery.leftovers import clear_leftovers, remove_file, renamed_txn_indexes
from kafkalog.storage.recovery.rebuild_producers import rebuild_producers, snapshot_bases
from kafkalog.storage.recovery.recover_log import Progress, RecoveryRun
from kafkalog.storage.recovery.recover_segment import FoundSegment, rebuild_indexes, recover_segment, scan_segment
from kafkalog.storage.recovery.soundness import (
    ends_whole,
    last_entries_agree,
    misplaced_end,
    offset_index_fits,
    reaches_beyond,
    time_index_fits,
    unsound_end,
)
from kafkalog.storage.recovery.split import has_overflow, split_segment
from kafkalog.storage.recovery.unopened_segment import open_listed
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """A log's segments and offsets as on disk; `removed` are segments renamed for their delayed delete.

    `removed_files` are snapshots deleted with them. `is_untouched` says that no file was created or renamed.
    `misplaced_end` describes a last batch that recovery accepted although it begins below the end of the previous
    one.
    """

    segments: LogSegments[LogSegment]
    log_start_offset: int
    recovery_point: int
    next_offset: int
    removed: tuple[LogSegment, ...]
    removed_files: tuple[str, ...]
    is_untouched: bool
    misplaced_end: MisplacedBatch | None


class LogLoader:
    """One opening of one directory; call `load` once.

    `recovery_point` and `log_start_offset` come from the directory's checkpoints; `progress` and `threads` are as in
    `RecoveryRun`; `listed` is a recent listing of the directory. With `refuses_loss`, `load` raises if sound batches
    would be removed; otherwise they are kept. Threads: the caller's and those of the recovery; many directories may
    load in parallel.
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
        log_start_offset: int,
        recovery_point: int,
        had_clean_shutdown: bool,
        progress: Progress | None,
        threads: int | None,
        listed: Directory,
        keeps_begun_epochs: bool,
        refuses_loss: bool,
    ) -> None:
        self._directory = directory
        self._found = listed
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._fs = fs
        self._clock = clock
        self._log_start = log_start_offset
        self._keeps_begun_epochs = keeps_begun_epochs
        self._found_epochs: list[EpochEntry] = []  # of recovered segments
        self._refuses_loss = refuses_loss
        self._recovery_point = recovery_point
        self._clean = had_clean_shutdown
        self._progress = progress
        self._threads = threads
        self._segments: dict[int, LogSegment] = {}
        self._unindexed: list[LogSegment] = []
        self._tails: dict[int, SegmentTail] = {}  # of the recovered segments
        self._snapshots_at: list[int] = []  # see `snapshot_bases`
        self._misplaced: set[int] = set()  # those whose last batch begins below the end of the previous one
        self._renamed_txns = renamed_txn_indexes(self._found.names, self._clean)
        self._removed: list[LogSegment] = []
        self._removed_files: list[str] = []
        self._touched = False  # names in the directory have changed

    def load(self) -> Loaded:
        """Load the log and prepare its last segment for appends. StorageError; CorruptRecord (see `ends_whole`).

        IllegalState if `producers` is not empty: loading would add to it (LOAD-19).
        """
        if not self._producers.is_empty:
            raise IllegalState("the producer state is not empty before the log is loaded", path=self._directory)
        try:
            if clear_leftovers(self._found, self._fs, self._keep, self._log_start, self._clean):
                self._look_again()
            while True:
                try:
                    self._open_segments()
                    if not self._clean:
                        self._recover()
                    self._remove_overlapping_empty()
                    break
                except SegmentOffsetOverflow as error:
                    self._split(error)
            end = self._start_anew_if_below_log_start()
            return self._finish(end)
        except BaseException:
            for segment in (*self._segments.values(), *self._removed):
                segment.close_handlers()
            raise

    def _look_again(self) -> None:
        self._touched = True
        self._found = list_directory(self._directory, self._fs)
        self._producers.snapshots.refresh(self._found.names)

    # Segments

    def _open_segments(self) -> None:
        """Check names and sizes, and the end of the log; other files are opened on first use."""
        found = (parse_base_offset(name) for name in self._found.names if name.endswith(LOG_SUFFIX))
        logs = {base for base in found if base is not None}
        indexes = frozenset([name for name in self._found.names if name.endswith(INDEX_SUFFIXES)])
        for name in sorted(indexes):
            if name[:OFFSET_DIGITS] + LOG_SUFFIX in self._found.sizes:
                continue  # the common case: the name is not parsed
            base = parse_base_offset(name)
            if base is not None and base not in logs:
                _LOG.warning("removed %s, which has no .log file", os.path.join(self._directory, name))
                remove_file(self._directory, name, self._fs)
        bases = sorted(logs)
        for at, base in enumerate(bases):
            self._open_segment(base, bases[at + 1] if at + 1 < len(bases) else None, indexes)

    def _open_segment(self, base: int, following: int | None, indexes: frozenset[str]) -> None:
        """Open one segment; recover it without `.index` or with a damaged transaction index (LOAD-7, LOAD-8).

        Also recover it if its transaction index was renamed by a delete that did not complete.

        After an unclean shutdown this waits until the log before it is recovered, which may not be readable yet.
        """
        self._segments[base] = segment = open_listed(
            self._found,
            base,
            self._config,
            offsets=MAX_RELATIVE_OFFSET + 1 if following is None else following - base,
            fs=self._fs,
            clock=self._clock,
            is_on_disk=self._clean,
            trust_indexes=not self._clean,
        )
        stem = base_name(base)
        has_index, has_times, has_txns = [stem + suffix in indexes for suffix in INDEX_SUFFIXES]
        if self._clean and following is None and not segment.size and not (has_index or has_times or has_txns):
            self._producers.snapshots.remove_outside(self._log_start, base)
            return  # new, and closed before its first record: its indexes are created when it becomes active
        if not has_index or base in self._renamed_txns or has_txns and not self._is_txn_index_sound(segment):
            if segment.size:
                _LOG.warning("rebuilding all indexes of %s: one is missing or damaged", segment.path)
            if self._clean:
                self._reindex(segment, following)
            else:
                self._unindexed.append(segment)
        elif self._clean and not (has_times and (following is not None or self._ends_well(segment))):
            if segment.size:
                _LOG.warning("rebuilding the indexes of %s: they or its end are not as closed", segment.path)
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
        """Return True if the last segment's indexes match its data and the data ends with a complete batch."""
        return last_entries_agree(segment) and ends_whole(segment)

    def _indexes_fit(self, segment: LogSegment, offsets: int) -> bool:
        """Return True if both indexes exist and match the data, which has room for `offsets` offsets."""
        stem = os.path.join(self._directory, base_name(segment.base_offset))
        return offset_index_fits(self._fs, stem + INDEX_SUFFIX, segment.size, offsets) and time_index_fits(
            self._fs, stem + TIME_INDEX_SUFFIX, offsets
        )

    def _reindex(self, segment: LogSegment, bound: int | None, found: FoundSegment | None = None) -> None:
        """Rebuild all files derived from a segment whose data was flushed; damage in the data stays.

        `bound` is the base offset of the next segment, None for the last one. In the last segment a torn batch at
        the end is cut, and other damage raises CorruptRecord.
        """
        if bound is None:
            is_whole = ends_whole(segment)
            found = scan_segment(segment).within(None, None)
            if is_whole and found.is_cut or self._clean and self._loss(segment, found) is not None:
                raise unsound_end(segment, found.found.tail.size)
            self._recover_one(segment, found, keeps_snapshots=segment.base_offset in self._renamed_txns)
            return
        found = (scan_segment(segment) if found is None else found).within(bound, None)
        is_complete = found.end_offset == bound and self._loss(segment, found) is None
        keeps_snapshots = segment.base_offset in self._renamed_txns
        self._recover_one(segment, found, cuts=is_complete, keeps_snapshots=keeps_snapshots)

    def _rebuild(self, segment: LogSegment, bound: int | None) -> None:
        """Rebuild the indexes of a segment whose data was flushed; call `_reindex` if a batch is not sound."""
        if bound is None:
            if not ends_whole(segment):
                self._reindex(segment, bound)
                return
            found = scan_segment(segment)
        elif (found := scan_segment(segment)).found.tail.size < found.found.end:
            self._reindex(segment, bound, found)
            return
        segment.pin_indexes()
        rebuild_indexes(segment, found)
        self._settle(segment)

    def _settle(self, segment: LogSegment) -> None:
        """Record that a segment's files have changed; after a clean shutdown, sync them, since no later flush does."""
        segment.files_changed()
        if self._clean:
            segment.flush()
        segment.unpin_indexes()

    def _split(self, error: SegmentOffsetOverflow) -> None:
        """Split the segment that `error` names, and list the directory again."""
        segment = next((s for s in self._segments.values() if s.path == error.path), None)
        if segment is None or not has_overflow(segment):
            raise error
        for part in split_segment(segment, self._directory, self._config, self._fs, self._clock):
            part.close_handlers()
        self._removed.append(segment)
        for other in self._segments.values():
            if other is not segment:
                other.close_handlers()
        self._segments.clear()
        self._unindexed.clear()
        self._tails.clear()
        self._look_again()

    def _remove_overlapping_empty(self) -> None:
        """Remove empty segments that a failed roll left below the end of the previous one: they would hide its records.
        """
        segments = list(self._segments.values())
        for empty, prior in zip(segments[:0:-1], segments[-2::-1], strict=True):
            if not empty.size and reaches_beyond(prior, empty.base_offset):
                _LOG.warning("removed %s, which is empty and overlaps the previous segment", empty.path)
                empty.delete_if_exists()
                self._producers.snapshots.remove(empty.base_offset)
                del self._segments[empty.base_offset]

    # Recovery

    def _recover(self) -> None:
        """Recover the segments from the one that holds the recovery point on; remove those behind damage."""
        point = min(self._recovery_point, 2**63 - 1)
        unflushed = LogSegments(self._segments.values()).values(point, 2**63 - 1) if self._segments else ()
        self._check_flushed(unflushed[0].base_offset if unflushed else 2**63 - 1)
        self._snapshots_at = snapshot_bases(self._segments, [s.base_offset for s in self._unindexed if s in unflushed])
        run = RecoveryRun(self._directory, unflushed, self._progress, self._threads)
        stopped_at = None
        with closing(run.scanned()) as scanned:
            for done, found in enumerate(scanned):
                if found.status == BAD_RANGE:
                    found = self._judge(unflushed, done, found)
                if found.is_cut and not _continues(found, unflushed[done + 1 :]):
                    stopped_at = done, found  # files are read ahead: move none before the scan has ended
                    break
                run.segment_recovered(found, self._recover_one(unflushed[done], found))
        if stopped_at is not None:
            done, found = stopped_at
            run.segment_recovered(found, self._recover_one(unflushed[done], found, unflushed[done + 1 :]))
            self._remove_later(unflushed[done + 1 :])
        run.report_end()

    @staticmethod
    def _judge(segments: tuple[LogSegment, ...], done: int, found: FoundSegment) -> FoundSegment:
        """Return the result of a pass; an offset that does not fit counts as damage if the log continues below it."""
        segment, position = segments[done], found.found.tail.size
        behind = next_sound(segment.records.slice(0, 0).file, position, segment.size, found.end_offset)
        bound = segments[done + 1].base_offset if done + 1 < len(segments) else None
        return found.within(bound, None if behind is None else behind.base_offset)

    def _check_flushed(self, upto: int) -> None:
        """Repair the indexes of segments below `upto`: their data was flushed, but their trimming may be lost."""
        segments = list(self._segments.values())
        for segment, following in zip(segments, segments[1:], strict=False):
            if segment.base_offset >= upto:
                return
            if segment in self._unindexed:
                self._reindex(segment, following.base_offset)
            elif not self._indexes_fit(segment, following.base_offset - segment.base_offset):
                _LOG.warning("rebuilding the indexes of %s, which are damaged", segment.path)
                self._rebuild(segment, following.base_offset)
            else:
                continue
            segment.flush()  # no later flush covers segments before the recovery point

    def _recover_one(
        self,
        segment: LogSegment,
        found: FoundSegment | None = None,
        following: tuple[LogSegment, ...] = (),
        *,
        cuts: bool = True,
        keeps_snapshots: bool = False,
    ) -> int:
        """Recover one segment and return the number of bytes cut; write a producer snapshot at its end (LOAD-27).

        The producers are first rebuilt up to its base offset. Sound batches behind the cut, in the segment and in
        `following`, are kept first. With `cuts` false the data stays unchanged, with `keeps_snapshots` later snapshots.
        """
        found = scan_segment(segment) if found is None else found
        if cuts and (loss := self._loss(segment, found, following)) is not None:
            self._keep(loss)
        producers = self._producers.fresh(segment.base_offset if keeps_snapshots else None)
        segments = LogSegments(s for s in self._segments.values() if s.base_offset < segment.base_offset)
        rebuild_producers(
            producers, segments, self._log_start, segment.base_offset, self._clock.milliseconds(), clean=False,
            snapshots_at=self._snapshots_at,
        )  # fmt: skip
        segment.pin_indexes()
        cut = recover_segment(segment, producers, self._epochs, found, cuts=cuts)
        latest = self._found_epochs[-1].epoch if self._found_epochs else -1
        self._found_epochs += found.epochs_above(latest)
        self._settle(segment)
        self._tails[segment.base_offset] = found.found.tail
        if found.found.ends_below:
            self._misplaced.add(segment.base_offset)
        if not keeps_snapshots:
            producers.take_snapshot()
        self._producers.snapshots.refresh()
        return cut

    def _loss(self, segment: LogSegment, found: FoundSegment, following: tuple[LogSegment, ...] = ()) -> Loss | None:
        """Return the sound batches lost if the segment is cut and `following` removed; None if there are none."""
        if not found.is_cut:
            return None
        base, position, bases = segment.base_offset, found.found.tail.size, [one.base_offset for one in following]
        return find_loss(self._directory, base, position, found.end_offset, found.damage, bases, self._fs)

    def _keep(self, loss: Loss) -> None:
        """Keep the sound batches that would be lost; whole segments leave the log."""
        if self._refuses_loss:
            raise loss.refusal()
        self._touched = True
        bases = {one.base_offset for one in loss.files if not one.is_copy} & self._segments.keys()
        for base in bases:
            self._segments[base].close_handlers()
        keep(loss, self._fs, self._clock)
        for base in bases:
            del self._segments[base]

    def _remove_later(self, segments: tuple[LogSegment, ...]) -> None:
        """Rename segments that were not kept, and all snapshots, for a delayed delete, the last one first."""
        self._touched = True
        for segment in reversed(segments):
            if segment.base_offset in self._segments:
                _LOG.warning("%s is behind damage or below the log start: it will be deleted", segment.path)
                segment.change_file_suffixes("", DELETED_SUFFIX)
                del self._segments[segment.base_offset]
                self._removed.append(segment)
            marked = self._producers.snapshots.mark_deleted(segment.base_offset)
            if marked is not None:
                self._removed_files.append(marked)

    def _start_anew_if_below_log_start(self) -> int | None:
        """Return the log end; None if there is no log, or it ended below the log start and was removed (LOAD-13)."""
        if not self._segments:
            return None
        end = self._segments[max(self._segments)].read_next_offset()
        if end >= self._log_start:
            return end
        _LOG.warning("%s ends at %d, below its log start %d: restarted there", self._directory, end, self._log_start)
        files = whole_segments(self._directory, self._segments, self._fs)
        reason = f"its log start is {self._log_start}, above its end"
        segments = tuple(self._segments.values())
        if files:
            self._keep(Loss(self._directory, max(self._segments), 0, end, reason, files))
        self._producers.truncate_fully_and_start_at(self._log_start)
        self._remove_later(segments)
        self._tails.clear()
        self._epochs.clear()
        self._found_epochs.clear()
        return None

    def _finish(self, end: int | None) -> Loaded:
        if not self._segments:
            self._touched = True
            self._segments[self._log_start] = LogSegment.open(
                self._directory, self._log_start, self._config,
                fs=self._fs, clock=self._clock, preallocated_bytes=self._config.init_file_size,
            )  # fmt: skip
        segments = LogSegments(self._segments.values())
        next_offset = segments.active.read_next_offset() if end is None else end
        kept_all = self._clean and end is not None
        point = next_offset if kept_all else min(self._recovery_point, next_offset)
        start = max(self._log_start, segments[0].base_offset)
        epochs_end = next_offset + self._keeps_begun_epochs
        if all(entry.start_offset >= epochs_end for entry in self._epochs.entries):
            # a deletion moved the first epoch up, then a power loss undid the deletion and left damage below that
            self._epochs.extend(self._found_epochs)
        self._epochs.truncate_from_end(epochs_end)
        self._epochs.truncate_from_start(self._log_start)  # last: a log whose records were all deleted keeps its epoch
        if not self._clean:
            self._producers.snapshots.remove_damaged(point)
        self._producers.snapshots.remove_strays(segments.base_offsets)
        self._load_producers(segments, start, next_offset)
        active = segments.active
        active.become_active(self._tails.get(active.base_offset))
        for name in self._renamed_txns.values():
            remove_file(self._directory, name, self._fs)
        removed, files = tuple(self._removed), tuple(self._removed_files)
        is_untouched = self._clean and not self._touched
        misplaced = misplaced_end(active) if active.base_offset in self._misplaced else None
        return Loaded(segments, start, point, next_offset, removed, files, is_untouched, misplaced)

    def _load_producers(self, segments: LogSegments[LogSegment], start: int, next_offset: int) -> None:
        """Load the producers; if a transaction index is incomplete, rebuild all indexes of its segment."""
        now_ms = self._clock.milliseconds()
        lagging = rebuild_producers(self._producers, segments, start, next_offset, now_ms, clean=self._clean)
        if lagging:
            for segment in lagging:
                _LOG.warning("rebuilding all indexes of %s: its transaction index is incomplete", segment.path)
                following = segments.higher(segment.base_offset)
                self._reindex(segment, None if following is None else following.base_offset)
            self._producers.forget()
            rebuild_producers(self._producers, segments, start, next_offset, now_ms, clean=False)


def begin_log(directory: str, config: LogConfig, *, fs: FileSystem, clock: Clock) -> Loaded:
    """Create the first segment of a log, at offset 0, in a newly created directory; nothing is synced."""
    name = log_file_name(0)
    FileRecords.create(os.path.join(directory, name), fs=fs, preallocated_bytes=config.init_file_size)
    segment = open_listed(
        Directory(directory, (name,), {name: 0}), 0, config, offsets=MAX_RELATIVE_OFFSET + 1, fs=fs, clock=clock,
        is_on_disk=False, trust_indexes=True,
    )  # fmt: skip
    segment.begin()
    return Loaded(LogSegments((segment,)), 0, 0, 0, (), (), False, None)


def _continues(found: FoundSegment, following: tuple[LogSegment, ...]) -> bool:
    """Return True if the next segment begins where this one ends: the bytes cut off hold no record.

    They are preallocated space or an undone failed write, and the trim at the roll was not synced.
    """
    return bool(following) and following[0].base_offset == found.end_offset
