"""The half of a log that changes its segments: roll, cut, delete, flush, close, and undo what failed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from typing import Final

from kafkalog._core.plan import AppendPlan
from kafkalog.config import LogConfig
from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.storage.append import LeaderLimits, ValidatorMetrics
from kafkalog.storage.failure import LogHealth
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_state import LogState, at_end, flushed_to, high_watermark_updated, log_start_incremented
from kafkalog.storage.names import DELETED_SUFFIX, parse_topic_partition_dir
from kafkalog.storage.roll import plan_roll, remove_stale_files
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.truncate import TruncatePlan, plan_delete_before, plan_truncate
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules

Chore = Callable[[], object]
_LOG: Final = logging.getLogger(__name__)


class LogOwner:
    """State, lock and segments of one log; `UnifiedLog` adds appends, reads and offsets.

    Steps that must not stop half-way hold back Ctrl-C; one that fails leaves a log whose state says what is in its
    files, or one that takes no more writes. Files are synced, epochs written and tasks scheduled outside the lock.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_chores",
        "_clock",
        "_config",
        "_cuts",
        "_epochs",
        "_follows",
        "_fs",
        "_health",
        "_leftovers",
        "_limits",
        "_lock",
        "_milliseconds",
        "_rules",
        "_scheduler",
        "_state",
        "last_flush_time",
        "leader_epoch",
        "name",
        "path",
        "topic_partition",
        "validator_metrics",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        state: LogState,
        epochs: LeaderEpochCache,
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Schedules | None,
        leader_epoch: int,
        high_watermark_follows_end: bool,
    ) -> None:
        self.path = directory
        self.name = os.path.basename(os.path.normpath(directory))
        self.topic_partition: TopicPartition = parse_topic_partition_dir(self.name)
        self.leader_epoch = leader_epoch
        self.validator_metrics = ValidatorMetrics()
        self.last_flush_time: int = clock.milliseconds()
        self._fs = fs
        self._clock = clock
        self._milliseconds = clock.milliseconds
        self._scheduler = scheduler
        self._follows = high_watermark_follows_end
        self._epochs = epochs  # changed under self._lock
        self._lock = threading.Lock()
        self._health = LogHealth(directory, self.name)
        self._state = state  # replaced under self._lock, read without
        self._active: LogSegment = state.segments.active  # guarded by self._lock
        self._chores: list[Chore] = []  # guarded by self._lock; run after it is released
        self._leftovers: set[int] = set()  # guarded by self._lock; bases of files that could not be removed
        self._cuts = 0  # guarded by self._lock; grows when a cut of the end begins and when it ends
        self._set_config_locked(config)

    def _set_config_locked(self, config: LogConfig) -> None:
        self._config = config
        self._limits = LeaderLimits(config)
        self._rules = self._active.roll_rules(config)  # guarded by self._lock

    def _ready_locked(self) -> LogState:
        """The state, when the log may be written; what an interrupted append left behind is cut off first."""
        if self._health.cause is not None:
            self._health.check()
        if self._active.records.size != self._state.end_position:
            self._settle_locked()
        return self._state

    def _publish_locked(self, state: LogState) -> None:
        """Make `state` the log's; its last segment takes the appends."""
        active: LogSegment = state.segments.active
        if active is not self._active:
            self._active = active
            self._rules = active.roll_rules(self._config)
        self._state = state

    # Undoing

    def _undo_write_locked(self, state: LogState, plan: AppendPlan, error: BaseException) -> None:
        """After a failed write: the segment as `state` has it, or no more writes. The offset goes into the error."""
        if isinstance(error, KafkalogError) and error.offset is None:
            error.offset = plan.first_offset
        if self._state is state:
            with deferred_interrupts():
                self._settle_locked()

    def _settle_locked(self) -> None:
        """Cut the active segment back to the state's end; a log where that fails is poisoned, and the error raised."""
        try:
            state = self._state
            if self._active.records.size != state.end_position or self._active.tail.size != state.end_position:
                self._active.truncate_to(state.log_end_offset)
                self._publish_locked(at_end(state, state.segments, state.log_end_offset))
        except BaseException as error:
            self._health.poison(error)
            raise

    # Rolling

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """The new active segment, which begins at the log end, or at `expected_next_offset` where that is higher.

        An empty active segment with that base is replaced (LOG-17). StorageError: the log goes on with the old one.
        """
        with self._lock:
            self._ready_locked()
            segment = self._roll_locked(expected_next_offset)
        self._do_chores()
        return segment

    def _roll_locked(self, expected_offset: int | None) -> LogSegment:
        with deferred_interrupts():
            state = self._state
            plan = plan_roll(state, expected_offset)
            old = self._active
            self._remove_leftovers()
            if plan.replaced is None:
                remove_stale_files(self.path, plan.base_offset, self._fs)
            else:
                old.change_file_suffixes("", DELETED_SUFFIX)
            try:
                segment = self._new_segment(plan.base_offset)
            except BaseException:
                if plan.replaced is not None:
                    old.change_file_suffixes(DELETED_SUFFIX, "")
                raise
            if plan.replaced is None:
                self._finish_segment_locked(old, segment)
            else:
                self._chores.append(lambda: self._delete_later((old,)))
            segments = state.segments.with_added(segment)
            self._publish_locked(at_end(state, segments, plan.base_offset))
            self._chores.append(lambda: self._flush_later(plan.base_offset))
            return segment

    def _new_segment(self, base_offset: int) -> LogSegment:
        """A segment with all its files; none of them stays when one cannot be made."""
        config = self._config
        segment: LogSegment | None = None
        try:
            segment = LogSegment.open(
                self.path,
                base_offset,
                config,
                fs=self._fs,
                clock=self._clock,
                init_file_size=config.init_file_size,
                preallocate=config.preallocate,
            )
            segment.become_active()
            return segment
        except BaseException:
            self._drop_new(segment, base_offset)
            raise

    def _drop_new(self, segment: LogSegment | None, base_offset: int) -> None:
        """Remove the files of a segment that did not come to be; what cannot be removed now is tried again later."""
        if segment is not None:
            segment.close_handlers()
        self._leftovers.add(base_offset)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """An empty file between two segments would hide records: the loader passes it over, but it should not stay."""
        for base_offset in tuple(self._leftovers):
            try:
                remove_stale_files(self.path, base_offset, self._fs)
            except StorageError:
                continue
            self._leftovers.discard(base_offset)

    def _finish_segment_locked(self, old: LogSegment, new: LogSegment) -> None:
        """Close the book on the old active segment; where that fails it stays active, and the new one goes.

        Where it cannot be made active again either, the log takes no more writes.
        """
        try:
            old.on_become_inactive()
        except BaseException:
            self._drop_new(new, new.base_offset)
            try:
                old.become_active()
            except BaseException as worse:
                self._health.poison(worse)
            raise

    # Cutting and deleting

    def truncate_to(self, offset: int) -> bool:
        """True when records were cut: the log then ends at `offset` (LOG-53). False where it ended there or before.

        A batch that holds the offset inside goes whole, while the log end is the offset asked for. IllegalArgument
        below 0; StorageError.
        """
        with self._lock:
            state = self._ready_locked()
            plan = plan_truncate(state, offset)
            if plan is None:
                self._epochs.truncate_from_end(offset)
            elif plan.start_anew:
                self._start_anew_locked(offset, None)
            else:
                with self._cutting_locked():
                    self._cut_locked(state, plan)
        self._do_chores()
        return plan is not None

    @contextmanager
    def _cutting_locked(self) -> Iterator[None]:
        """A cut of the end: not interrupted, and visible to readers who took the state before it."""
        with deferred_interrupts():
            self._cuts += 1
            try:
                yield
            finally:
                self._cuts += 1

    @property
    def cuts(self) -> int:
        """A number that changes when a cut of the log's end begins, and when it ends."""
        return self._cuts

    def settled_cuts(self) -> int:
        """`cuts`, once no cut is going on: equal to what it was before a read, where none touched what was read."""
        with self._lock:
            return self._cuts

    def _cut_locked(self, state: LogState, plan: TruncatePlan) -> None:
        """Delete from the end, then cut: whatever fails, what is left is the front of the log."""
        segments = state.segments
        try:
            for segment in reversed(plan.deleted):
                segment.change_file_suffixes("", DELETED_SUFFIX)
                segments = segments.without((segment.base_offset,))
            segments.active.truncate_to(plan.log_end_offset)
        except BaseException as error:
            self._health.poison(error)
            raise
        end = plan.log_end_offset
        self._epochs.truncate_from_end(end)
        self._publish_locked(
            at_end(
                state,
                segments,
                end,
                log_start_offset=min(state.log_start_offset, end),
                leader_epoch=self._epochs.latest_epoch,
            )
        )
        if plan.deleted:
            self._chores.append(lambda: self._delete_later(plan.deleted))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Empty the log: it begins, ends and has its high watermark at `offset` (LOG-55). StorageError."""
        with self._lock:
            self._ready_locked()
            self._start_anew_locked(offset, log_start_offset)
        self._do_chores()

    def _start_anew_locked(self, offset: int, log_start_offset: int | None) -> None:
        with self._cutting_locked():
            state = self._state
            old = tuple(state.segments)
            try:
                for segment in reversed(old):
                    segment.change_file_suffixes("", DELETED_SUFFIX)
                remove_stale_files(self.path, offset, self._fs)
                segments: LogSegments[LogSegment] = LogSegments((self._new_segment(offset),))
            except BaseException as error:
                self._health.poison(error)
                raise
            self._epochs.clear()
            start = offset if log_start_offset is None else log_start_offset
            emptied = at_end(state, segments, offset, log_start_offset=start, leader_epoch=-1)
            self._publish_locked(high_watermark_updated(emptied, emptied.end_metadata))
            self._chores.append(lambda: self._delete_later(old))

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """True when the log start was raised to `offset`; deletes nothing. OffsetOutOfRange above high watermark."""
        with self._lock:
            changed = self._increment_log_start_locked(offset)
        self._do_chores()
        return changed

    def _increment_log_start_locked(self, offset: int) -> bool:
        state = log_start_incremented(self._ready_locked(), offset)
        if state is None:
            return False
        self._epochs.truncate_from_start(offset)
        self._state = state
        return True

    def delete_before(self, offset: int) -> int:
        """The new log start: records below `offset` are given up (-1: all below the high watermark).

        Segments that lie below it whole are deleted. OffsetOutOfRange above the high watermark, StorageError.
        """
        with self._lock:
            self._increment_log_start_locked(self._state.high_watermark if offset == -1 else offset)
            with deferred_interrupts():
                self._delete_first_segments_locked()
            start: int = self._state.log_start_offset
        self._do_chores()
        return start

    def _delete_first_segments_locked(self) -> None:
        state = self._state
        gone = plan_delete_before(state, state.log_start_offset)
        if not gone:
            return
        self._state = state.replace(segments=state.segments.without(s.base_offset for s in gone))
        for segment in gone:
            segment.change_file_suffixes("", DELETED_SUFFIX)
        self._chores.append(lambda: self._delete_later(gone))

    def _delete_later(self, segments: Iterable[LogSegment]) -> None:
        """Remove the files of segments renamed to .deleted, after file.delete.delay.ms where there is a scheduler.

        They stay open for readers that took the log's state before.
        """

        def delete() -> None:
            for segment in segments:
                segment.unlink_files(self._fs)

        if self._scheduler is None:
            delete()
        else:
            self._scheduler.schedule("delete-file", delete, delay_ms=self._config.file_delete_delay_ms)

    def _do_chores(self) -> None:
        """What the last steps left to do outside the lock: write epochs, schedule flushes and deletes."""
        while self._chores:
            try:
                chore = self._chores.pop(0)
            except IndexError:  # another thread took the last one
                break
            chore()
            del chore  # with it go deleted segments: their room may be what the epochs need on a full disk
        self._write_epochs()

    def _do_chores_after_append(self) -> None:
        """What an append left to do; it is done, so what fails here is told by the next flush, and tried again."""
        try:
            self._do_chores()
        except StorageError as error:
            _LOG.warning("put off until the next append or flush: %s", error)
            if self._epochs.has_changed:
                self._chores.append(self._epochs.write_if_changed)

    # Flushing and closing

    def _flush_later(self, offset: int) -> None:
        if self._scheduler is not None:
            self._scheduler.schedule("flush-log", lambda: self.flush(offset))

    def flush(self, offset: int | None = None) -> None:
        """Return when everything before `offset` is on disk, directory entries too; None: all that is appended.

        The recovery point is raised to it (LOG-51). A failed sync is a StorageError and poisons the log.
        """
        self._health.check()
        self._flush(offset)

    def _flush(self, offset: int | None = None) -> None:
        while not self._flush_once(offset):
            pass

    def _flush_once(self, offset: int | None) -> bool:
        """True when done; False where a segment was cut off or deleted under it, so that it has to begin again."""
        cuts = self._cuts
        state = self._state
        end = state.log_end_offset if offset is None else min(offset, state.log_end_offset)
        start = state.recovery_point
        upto = end + 1 if offset is None else end
        if upto <= start:
            return self._write_epochs()
        try:
            covered = state.segments.values(start, upto)
            for segment in covered:
                segment.flush()
            if covered and covered[-1].base_offset >= start:
                self._fs.fsync_dir(self.path)
        except BaseException as error:
            self._flush_failed(error, state)
            return False
        with self._lock:
            if cuts == self._cuts:
                self._state = flushed_to(self._state, end)
            self.last_flush_time = self._milliseconds()
        return self._write_epochs()

    def _write_epochs(self) -> bool:
        if self._epochs.has_changed:
            self._epochs.write_if_changed()
        return True

    def _flush_failed(self, error: BaseException, state: LogState) -> None:
        """Poison the log and raise, unless what could not be synced was deleted or cut meanwhile (LOG-52)."""
        with self._lock:
            is_gone = isinstance(error, LogClosed) or isinstance(error, OSError) and error.errno == ENOENT
            if is_gone and not self.closed:
                there = self._state.segments
                if any(there.get(segment.base_offset) is not segment for segment in state.segments):
                    return
            if isinstance(error, LogClosed):
                self._health.check()
            if isinstance(error, OSError):
                self._health.poison(error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            raise StorageError.from_os(error, "sync the partition directory", path=self.path) from error
        raise error

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._health.closed

    def close(self) -> None:
        """Flush, add the final time entry, trim and close all files. A second call does nothing.

        Every file is closed even where one fails; the first error is raised then, and the log was not closed well.
        """
        with deferred_interrupts():
            if self.closed:
                return
            failure: BaseException | None = None
            with self._lock:
                try:
                    self._ready_locked()
                    self._remove_leftovers()
                except BaseException as error:
                    failure = error
                self._health.close()  # before the flush: what is appended after it would not be on disk
            try:
                if failure is None:
                    self._flush()
            except BaseException as error:
                failure = error
            with self._lock:
                for segment in self._state.segments:
                    try:
                        segment.close() if failure is None else segment.close_handlers()
                    except BaseException as error:
                        failure = failure or error
            if failure is not None:
                raise failure

    def close_handlers(self) -> None:
        """Give all files back without writing anything: what a crash would leave. The log is closed after it."""
        with self._lock:
            self._health.close()
            for segment in self._state.segments:
                segment.close_handlers()
