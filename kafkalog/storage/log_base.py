"""What every step on a log stands on: its state and lock, undoing what failed, chores after the lock, and flushing."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from errno import ENOENT
from typing import Final

from kafkalog._core.plan import AppendPlan
from kafkalog._core.producers import Staged
from kafkalog.config import LogConfig
from kafkalog.config_keys import MAX_LONG
from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.storage.append import LeaderLimits, ValidatorMetrics
from kafkalog.storage.failure import LogHealth, Report
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_state import LogState, at_end, flushed_to
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.storage.rebuild_producers import rebuild_producers
from kafkalog.storage.segment import LogSegment
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules

Chore = Callable[[], object]
_LOG: Final = logging.getLogger(__name__)


class LogBase:
    """State and lock of one log; `LogOwner` adds what changes its segments, `UnifiedLog` appends, reads and offsets.

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
        "_flush_messages",
        "_follows",
        "_fs",
        "_health",
        "_leftovers",
        "_limits",
        "_lock",
        "_milliseconds",
        "_producers",
        "_rules",
        "_scheduler",
        "_staged",
        "_state",
        "last_flush_monotonic_ms",
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
        producers: ProducerStateManager,
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Schedules | None,
        leader_epoch: int,
        high_watermark_follows_end: bool,
        on_disk_failure: Report | None = None,
    ) -> None:
        self.path = directory
        self.name = os.path.basename(os.path.normpath(directory))
        self.topic_partition: TopicPartition = parse_topic_partition_dir(self.name)
        self.leader_epoch = leader_epoch
        self.validator_metrics = ValidatorMetrics()
        self.last_flush_time: int = clock.milliseconds()
        self.last_flush_monotonic_ms: int = clock.monotonic_ms()
        self._fs = fs
        self._clock = clock
        self._milliseconds = clock.milliseconds
        self._scheduler = scheduler
        self._follows = high_watermark_follows_end
        self._epochs = epochs  # changed under self._lock
        self._producers = producers  # guarded by self._lock
        self._staged: tuple[Staged, int] | None = None  # guarded by self._lock; of an append, with its log end
        self._lock = threading.Lock()
        self._health = LogHealth(directory, self.name, on_disk_failure)
        self._state = state  # replaced under self._lock, read without
        self._active: LogSegment = state.segments.active  # guarded by self._lock
        self._chores: list[Chore] = []  # guarded by self._lock; run after it is released
        self._leftovers: set[int] = set()  # guarded by self._lock; bases of files that could not be removed
        self._cuts = 0  # guarded by self._lock; grows when a cut of the end begins and when it ends
        self._set_config_locked(config)

    def _set_config_locked(self, config: LogConfig) -> None:
        self._config = config
        self._limits = LeaderLimits(config)
        self._flush_messages = 0 if config.flush_messages == MAX_LONG else config.flush_messages
        self._rules = self._active.roll_rules(config)  # guarded by self._lock

    def _ready_locked(self) -> LogState:
        """The state, when the log may be written; what an interrupted append left behind is cut off first."""
        if self._health.cause is not None:
            self._health.check()
        if self._staged is not None:
            self._apply_staged_locked()
        if self._active.records.size != self._state.end_position:
            self._settle_locked()
        return self._state

    def _apply_staged_locked(self) -> None:
        """Let the producers know of an append that is published: whatever interrupted us, it is in the log."""
        pending, self._staged = self._staged, None
        state = self._state
        if pending is not None and pending[1] <= state.log_end_offset:
            self._producers.commit(pending[0], state.log_end_offset, state.high_watermark)

    def _with_unstable_locked(self, state: LogState) -> LogState:
        """`state` with the first unstable offset that the producers know, not below the log start (LOG-30)."""
        first = self._producers.first_unstable_offset
        if first >= 0:
            first = locate_or_offset_only(state, max(first, state.log_start_offset)).message_offset
        return state if first == state.first_unstable_offset else state.replace(first_unstable_offset=first)

    def _high_watermark_moved_locked(self) -> None:
        """Transactions whose markers lie below the high watermark are decided."""
        if self._staged is not None:
            self._apply_staged_locked()
        if self._state.first_unstable_offset >= 0 or self._producers.producers.has_transactions:
            self._producers.on_high_watermark(self._state.high_watermark)
            self._state = self._with_unstable_locked(self._state)

    def _rebuild_producers_locked(self, state: LogState) -> LogState:
        """`state`, the end of which was cut, with the producers as they were there (LOG-53).

        Where the high watermark lies below the cut, the first unstable offset stays what it was until the next append.
        """
        rebuild_producers(
            self._producers,
            state.segments,
            state.log_start_offset,
            state.log_end_offset,
            self._milliseconds(),
            clean=False,
        )
        if state.high_watermark < state.log_end_offset:
            return state
        self._producers.on_high_watermark(state.high_watermark)
        return self._with_unstable_locked(state)

    def _publish_locked(self, state: LogState) -> None:
        """Make `state` the log's; its last segment takes the appends."""
        active: LogSegment = state.segments.active
        if active is not self._active:
            self._active = active
            self._rules = active.roll_rules(self._config)
        self._state = state

    @property
    def closed(self) -> bool:
        """True after `close` or `abandon`."""
        return self._health.closed

    def stop_writes(self, cause: BaseException) -> None:
        """Return when no write is going on, and none will succeed; it is refused with `cause`."""
        with self._lock:
            self._health.poison(cause)

    def resume_writes(self, cause: BaseException) -> None:
        """Take writes again that `stop_writes(cause)` stopped."""
        with self._lock:
            self._health.resume(cause)

    def fence(self, cause: BaseException) -> None:
        """Let no further write begin: the data directory's disk has failed. Waits for nothing."""
        if self._health.cause is None:
            self._health.cause = cause

    # Undoing

    def _undo_write_locked(self, state: LogState, plan: AppendPlan, error: BaseException) -> None:
        """After a failed write: the segment as `state` has it, or no more writes. The offset goes into the error."""
        if isinstance(error, KafkalogError) and error.offset is None:
            error.offset = plan.first_offset
        if self._state is state:
            with deferred_interrupts():
                self._settle_locked()
        self._health.notice(error)

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
            self._health.notice(error)
            if self._epochs.has_changed:
                self._chores.append(self._epochs.write_if_changed)

    # Flushing and closing

    def _flush_later(self, offset: int) -> None:
        if self._scheduler is not None:
            self._scheduler.schedule("flush-log", lambda: self._flush_if_usable(offset))

    def _flush_if_usable(self, offset: int) -> None:
        if self._health.cause is None:
            self.flush(offset)

    def flush(self, offset: int | None = None) -> None:
        """Return when everything before `offset` is on disk, directory entries too; None: all that is appended.

        The recovery point is raised to it (LOG-51). A failed sync is a StorageError and poisons the log.
        """
        self._health.check()
        self._flush(offset)

    def _flush_if_due(self) -> None:
        """Flush where an append made it `flush.messages` offsets that are not on disk; errors as `flush`."""
        state = self._state
        if state.log_end_offset - state.recovery_point >= self._flush_messages:
            self.flush()

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
            self._flush_failed(error, state, cuts)
            return False
        with self._lock:
            if cuts == self._cuts:
                self._state = flushed_to(self._state, end)
            self.last_flush_time = self._milliseconds()
            self.last_flush_monotonic_ms = self._clock.monotonic_ms()
        return self._write_epochs()

    def _write_epochs(self) -> bool:
        if self._epochs.has_changed:
            self._epochs.write_if_changed()
        return True

    def _flush_failed(self, error: BaseException, state: LogState, cuts: int) -> None:
        """Poison the log and raise, unless what could not be synced was deleted, cut or renamed meanwhile (LOG-52)."""
        with self._lock:
            is_gone = isinstance(error, LogClosed) or isinstance(error, OSError) and error.errno == ENOENT
            if is_gone and not self.closed:
                there = self._state.segments
                if cuts != self._cuts or any(there.get(s.base_offset) is not s for s in state.segments):
                    return
            if isinstance(error, LogClosed):
                self._health.check()
            if isinstance(error, OSError):
                self._health.poison(error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            raise StorageError.from_os(error, "sync the partition directory", path=self.path) from error
        raise error

