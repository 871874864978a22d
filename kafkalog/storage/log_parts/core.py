"""State, lock and health shared by the parts of a log; rollback of failed writes, and work deferred past the lock."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkalog._core.log.log_fields import LogFields
from kafkalog._core.log.log_lock import LogLock
from kafkalog.config.keys import MAX_LONG
from kafkalog.config.topic import LogConfig
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.storage.append import leader_limits
from kafkalog.storage.failure import LogHealth, Report
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_counters import LogCounters
from kafkalog.storage.log_state import at_end
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.storage.recovery.rebuild_producers import rebuild_producers
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.unsynced import Unsynced
from kafkalog.types import TopicPartition
from kafkalog.util import events
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules
from kafkalog.util.waiting import held

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State

_LOG: Final = logging.getLogger(__name__)


class LogCore(LogFields):
    """State, lock and health of one log.

    The parts of a log work on its core, and on each other only as their constructors show. Steps that must not stop
    half-way defer Ctrl-C. After a failed step, either the state matches the files, or the log rejects further
    writes. Files are synced, epochs written and tasks scheduled outside the lock.

    `LogFields` holds the fields that compiled appends use; everything else is here. All fields are changed under
    `lock`; `state`, an immutable value, and single fields are read without it.
    """

    __slots__ = (
        "clock", "config", "durable", "epochs", "fs", "is_undecided", "metrics", "name", "path", "scheduler",
        "topic_partition", "truncation_count", "unsynced",
    )  # fmt: skip
    active: LogSegment
    producers: ProducerStateManager
    health: LogHealth
    state: State

    if TYPE_CHECKING:

        def ready_locked(self) -> State: ...

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        state: State,
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
        self.metrics = LogCounters()
        self.fs = fs
        self.clock = clock
        self.milliseconds = clock.milliseconds
        self.scheduler = scheduler
        self.follows = high_watermark_follows_end
        self.epochs = epochs
        self.producers = producers
        self.staged = None
        self.lock = LogLock()
        self.health = LogHealth(directory, self.name, on_disk_failure)
        self.state = state
        self.active = state.segments.active
        self.active.records.guard = self.lock
        self.after_unlock: list[Callable[[], object]] = []
        self.durable = 0  # below it records are on disk, even if their indexes are not
        self.unsynced = Unsynced()
        self.is_undecided = False  # a truncation rebuilt the producers, and the high watermark has not moved since
        self.truncation_count = 0  # incremented when a truncation of the end begins and when it ends
        self.set_config_locked(config)

    def set_config_locked(self, config: LogConfig) -> None:
        """Apply `config` from the next decision on (LOG-76)."""
        self.config = config
        self.limits = leader_limits(config)
        self.flush_messages = 0 if config.flush_messages == MAX_LONG else config.flush_messages
        self.rules = self.active.roll_rules(config)

    def make_ready_locked(self) -> State:
        """Do the work of `ready_locked` that is pending, or raise if the log rejects writes."""
        if self.health.cause is not None:
            self.health.check()
        if self.staged is not None:
            self.apply_staged_locked()
        if self.active.records.size != self.state.end_position:
            self.settle_locked()
        return self.state

    def apply_staged_locked(self) -> None:
        """Apply a published append to the producers; it is in the log even if the call was interrupted."""
        staged = self.staged
        state = self.state
        if staged is not None and staged.end_offset <= state.log_end_offset:
            self.producers.commit(staged, state.log_end_offset, self.decided_below(state))
        self.staged = None

    def decided_below(self, state: State) -> int:
        """Return the offset below which a marker has decided its transaction: the high watermark when it last moved."""
        return -1 if self.is_undecided else state.high_watermark

    def with_unstable_locked(self, state: State) -> State:
        """Return `state` with the producers' first unstable offset, not below the log start (LOG-30)."""
        self.unstable_is_stale = False
        first = self.producers.first_unstable_offset
        if first >= 0:
            first = locate_or_offset_only(state, max(first, state.log_start_offset)).message_offset
        return state if first == state.first_unstable_offset else state.replace(first_unstable_offset=first)

    def high_watermark_moved_locked(self) -> None:
        """Mark transactions as decided if their markers lie below the high watermark."""
        if self.staged is not None:
            self.apply_staged_locked()
        self.is_undecided = False
        if self.state.first_unstable_offset >= 0 or self.producers.producers.has_transactions:
            self.producers.on_high_watermark(self.state.high_watermark)
            self.state = self.with_unstable_locked(self.state)

    def rebuild_producers_locked(self, state: State) -> State:
        """Rebuild the producers for `state`, whose end was truncated, and return the new state (LOG-53).

        If the high watermark lies below the new end, the first unstable offset stays the same until the next append.
        """
        rebuild_producers(
            self.producers,
            state.segments,
            state.log_start_offset,
            state.log_end_offset,
            self.milliseconds(),
            clean=False,
            sync=False,
        )
        self.unstable_is_stale = self.is_undecided = state.high_watermark < state.log_end_offset
        if self.is_undecided:
            return state
        self.producers.on_high_watermark(state.high_watermark)
        return self.with_unstable_locked(state)

    def publish_locked(self, state: State) -> None:
        """Make `state` the log's state; its last segment receives the appends."""
        active: LogSegment = state.segments.active
        if active is not self.active:
            active.records.guard = self.lock  # appends rely on it: an idle file may be closed under it
            self.active = active
        self.rules = active.roll_rules(self.config)  # a segment that was cut to nothing restarts its age
        self.state = state

    def stop_writes(self, cause: BaseException) -> None:
        """Stop all writes: wait for the current one, then reject further ones with `cause`."""
        with self.lock:
            self.health.poison(cause)

    def resume_writes(self, cause: BaseException) -> None:
        """Accept writes again after `stop_writes(cause)`."""
        with self.lock:
            self.health.resume(cause)

    def fence(self, cause: BaseException) -> None:
        """Reject new writes because the data directory's disk has failed; return without waiting."""
        if self.health.cause is None:
            self.health.cause = cause

    @contextmanager
    def cutting_locked(self) -> Iterator[None]:
        """Enclose a truncation of the end: it cannot be interrupted, and readers with an older state can detect it."""
        with deferred_interrupts():
            self.truncation_count += 1
            try:
                yield
            finally:
                self.truncation_count += 1

    def truncation_count_when_idle(self) -> int:
        """Return `truncation_count` once no truncation is in progress; a read is valid if it did not change."""
        with held(self.lock):
            return self.truncation_count

    def undo_write_locked(self, state: State, first_offset: int, error: BaseException) -> None:
        """Restore the segment to `state` after a failed write, or reject further writes; set the error's offset."""
        if isinstance(error, KafkalogError) and error.offset is None:
            error.offset = first_offset
        if self.state is state:
            with deferred_interrupts():
                self.settle_locked()
        self.health.notice(error)

    def settle_locked(self) -> None:
        """Truncate the active segment to the state's end; if that fails, poison the log and raise the error."""
        try:
            state = self.state
            if self.active.records.size != state.end_position or self.active.tail.size != state.end_position:
                self.active.truncate_to(state.log_end_offset)
                self.publish_locked(at_end(state, state.segments, state.log_end_offset))
        except BaseException as error:
            self.health.poison(error)
            raise

    def emit_locked(self, event: str, **values: object) -> None:
        """Report an event to its subscribers after the lock is released."""
        if events.has_hooks(event):
            self.after_unlock.append(lambda: self.emit(event, **values))

    def emit(self, event: str, **values: object) -> None:
        """Report an event to its subscribers now."""
        events.emit(event, self.path, self.topic_partition, **values)

    def run_after_unlock(self) -> None:
        """Run the work deferred until the lock is released: write epochs, schedule flushes and deletes."""
        while self.after_unlock:
            try:
                task = self.after_unlock.pop(0)
            except IndexError:  # another thread ran the last one
                break
            task()
            del task  # releases deleted segments: the epochs may need their space on a full disk
        self.write_epochs()

    def run_after_append(self) -> None:
        """Run the work deferred by a successful append; the next flush retries and reports failures."""
        try:
            self.run_after_unlock()
        except StorageError as error:
            _LOG.warning("retrying at the next append or flush: %s", error)
            self.health.notice(error)
            if self.epochs.has_changed:
                self.after_unlock.append(self.write_epochs)

    def write_epochs(self) -> None:
        """Write the epochs' file if it is out of date; retry if the directory was renamed meanwhile."""
        while self.epochs.has_changed:
            path = self.path
            try:
                self.epochs.write_if_changed()
            except StorageError as error:
                with self.lock:  # a rename holds it
                    was_renamed = self.path != path
                if error.errno != errno.ENOENT or not was_renamed:
                    raise
