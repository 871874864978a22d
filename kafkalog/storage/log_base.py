"""What every step on a log stands on: its state and lock, undoing what failed, and chores after the lock."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from kafkalog._core.plan import AppendPlan
from kafkalog._core.staged import Staged
from kafkalog._core.state import LogState
from kafkalog.config import LogConfig
from kafkalog.config_keys import MAX_LONG
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.records.validate import ValidatorMetrics
from kafkalog.storage.append import leader_limits
from kafkalog.storage.damage import MisplacedBatch
from kafkalog.storage.failure import LogHealth, Report
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_metrics import LOGS, LogMetrics
from kafkalog.storage.log_state import at_end
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.storage.rebuild_producers import rebuild_producers
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.unsynced import Unsynced
from kafkalog.types import TopicPartition
from kafkalog.util import events
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules

Chore = Callable[[], object]
_LOG: Final = logging.getLogger(__name__)


class LogBase:
    """State and lock of one log; `LogFlusher` puts it on disk, `LogOwner` changes its segments.

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
        "_durable",
        "_epochs",
        "_flush_messages",
        "_follows",
        "_fs",
        "_health",
        "_is_being_cleaned",
        "_leftovers",
        "_limits",
        "_lock",
        "_milliseconds",
        "_misplaced_end",
        "_producers",
        "_rules",
        "_scheduler",
        "_staged",
        "_state",
        "_unsynced",
        "last_flush_monotonic_ms",
        "last_flush_time",
        "leader_epoch",
        "metrics",
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
        self.metrics = LogMetrics()  # changed under self._lock
        self.last_flush_time: int = clock.milliseconds()
        self.last_flush_monotonic_ms: int = clock.monotonic_ms()
        self._fs = fs
        self._clock = clock
        self._milliseconds = clock.milliseconds
        self._scheduler = scheduler
        self._follows = high_watermark_follows_end
        self._epochs = epochs  # changed under self._lock
        self._producers = producers  # guarded by self._lock
        self._staged: Staged | None = None  # guarded by self._lock; of an append that is being published
        self._lock = threading.Lock()
        self._health = LogHealth(directory, self.name, on_disk_failure)
        self._state = state  # replaced under self._lock, read without
        self._active: LogSegment = state.segments.active  # guarded by self._lock
        self._active.records.guard = self._lock
        self._chores: list[Chore] = []  # guarded by self._lock; run after it is released
        self._leftovers: set[int] = set()  # guarded by self._lock; bases of files that could not be removed
        self._durable = 0  # guarded by self._lock; below it records are on disk, whether or not their indexes are
        self._unsynced = Unsynced()  # guarded by self._lock
        self._is_being_cleaned = False  # guarded by self._lock
        self._misplaced_end: MisplacedBatch | None = None  # set once, by the opening
        self._cuts = 0  # guarded by self._lock; grows when a cut of the end begins and when it ends
        self._set_config_locked(config)
        LOGS.add(self)

    def _set_config_locked(self, config: LogConfig) -> None:
        self._config = config
        self._limits = leader_limits(config)
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
        staged = self._staged
        state = self._state
        if staged is not None and staged.end_offset <= state.log_end_offset:
            self._producers.commit(staged, state.log_end_offset, state.high_watermark)
        self._staged = None

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
            sync=False,
        )
        if state.high_watermark < state.log_end_offset:
            return state
        self._producers.on_high_watermark(state.high_watermark)
        return self._with_unstable_locked(state)

    def _publish_locked(self, state: LogState) -> None:
        """Make `state` the log's; its last segment takes the appends."""
        active: LogSegment = state.segments.active
        if active is not self._active:
            active.records.guard = self._lock  # appends go by it: an idle file may be closed under it
            self._active = active
            self._rules = active.roll_rules(self._config)
        self._state = state

    @property
    def closed(self) -> bool:
        """True after `close` or `abandon`."""
        return self._health.closed

    @property
    def failed(self) -> bool:
        """True where the log takes no writes since an earlier failure."""
        return self._health.cause is not None and not self._health.closed

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

    def _tell_locked(self, event: str, **values: Any) -> None:
        """Have those who asked for it told of an event, once the lock is released."""
        if events.wanted(event):
            self._chores.append(lambda: self._tell(event, **values))

    def _tell(self, event: str, **values: Any) -> None:
        events.emit(event, self.path, self.topic_partition, **values)

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
                self._chores.append(self._write_epochs)

    def _write_epochs(self) -> None:
        """Write the epochs' file where it does not say what is known; again if the directory was renamed meanwhile."""
        while self._epochs.has_changed:
            path = self.path
            try:
                self._epochs.write_if_changed()
            except StorageError as error:
                with self._lock:  # a rename holds it
                    was_renamed = self.path != path
                if error.errno != errno.ENOENT or not was_renamed:
                    raise
