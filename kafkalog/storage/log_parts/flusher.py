"""Syncing a log to disk: all of it, or only the records (format.md section 8, LOG-49 to LOG-52).

A flush holds no lock while a file is synced: it works on one state, and checks afterwards for changes made
meanwhile. A failed sync is never retried; the log rejects further writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import ENOENT
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_state import flushed_to
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.unsynced import PendingSync
from kafkalog.util.descriptors import TOO_MANY_FILES

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State

T = TypeVar("T")


class SyncRun(NamedTuple):
    """A sync in progress: the log's state when it began, at `began_s` of the performance counter."""

    truncations: int
    state: State
    pending: PendingSync
    snapshots: tuple[tuple[int, str], ...]
    began_s: float


class LogFlusher:
    """Flushes a log. Threads: any; locks are held only briefly."""

    __slots__ = ("_core", "last_flush_monotonic_ms", "last_flush_time")

    def __init__(self, core: LogCore) -> None:
        self._core = core
        self.last_flush_time: int = core.milliseconds()
        self.last_flush_monotonic_ms: int = core.clock.monotonic_ms()

    def flush(self, offset: int | None = None) -> None:
        """Sync everything before `offset` to disk, directory entries too; None: everything appended so far.

        The recovery point is raised to it (LOG-51). A failed sync raises StorageError and poisons the log.
        """
        self._core.health.check()
        self.flush_files(offset)

    def commit(self) -> None:
        """Sync all records appended so far, so that they survive a loss of power; costs one sync.

        Indexes are left to a later `flush`, and the recovery point is unchanged: after a crash, opening rebuilds
        them from the records behind it. A failed sync raises StorageError and poisons the log.
        """
        core = self._core
        core.health.check()
        done, _ = self._synced(self._sync_records)
        end = done.state.log_end_offset
        with core.lock:
            core.health.check_disk()  # again: a concurrent sync may have failed
            core.unsynced.entries_synced(done.pending)
            if done.truncations == core.truncation_count:
                core.durable = max(core.durable, end)
            seconds = self._count_flush_locked(done)
        core.emit("flush", offset=end, duration_ms=seconds * 1000)
        core.write_epochs()

    def flush_if_due(self) -> None:
        """Flush if at least `flush.messages` records lie behind the recovery point (LOG-50)."""
        state = self._core.state
        if state.log_end_offset - state.recovery_point >= self._core.flush_messages:
            self.flush()

    def flush_later(self, offset: int) -> None:
        """Schedule a flush up to `offset`; without a scheduler, the next `flush` does it."""
        if self._core.scheduler is not None:
            self._core.scheduler.schedule("flush-log", lambda: self._flush_if_usable(offset))

    def _flush_if_usable(self, offset: int) -> None:
        """Flush, unless the log was closed or deleted while the task was pending or running."""
        if self._core.health.cause is None:
            with suppress(LogClosed):
                self.flush(offset)

    def flush_files(self, offset: int | None = None, *, is_closing: bool = False) -> None:
        """Flush as `flush` does, even if the log rejects writes; `is_closing`: the caller has closed it."""
        core = self._core
        done, covered = self._synced(lambda run: self._sync_files(run, offset), is_closing)
        end = done.state.log_end_offset if offset is None else min(offset, done.state.log_end_offset)
        advances = bool(covered) or end > done.state.recovery_point  # an emptied log has no segment below its end
        seconds = 0.0
        with core.lock:
            core.health.check_disk()
            core.unsynced.synced(done.pending)
            producer_snapshots = core.producers.snapshots
            producer_snapshots.unsynced = tuple(one for one in producer_snapshots.unsynced if one not in done.snapshots)
            if advances:
                if done.truncations == core.truncation_count:
                    core.state = flushed_to(core.state, end)
                    core.durable = max(core.durable, core.state.recovery_point)
                self.last_flush_time = core.milliseconds()
                self.last_flush_monotonic_ms = core.clock.monotonic_ms()
                seconds = self._count_flush_locked(done)
        if advances:
            core.emit("flush", offset=end, duration_ms=seconds * 1000)
        core.write_epochs()

    def _count_flush_locked(self, done: SyncRun) -> float:
        """Count a flush and return its duration in seconds."""
        seconds = perf_counter() - done.began_s
        self._core.metrics.flushes.add(seconds)
        return seconds

    def _synced(self, sync: Callable[[SyncRun], T], is_closing: bool = False) -> tuple[SyncRun, T]:
        """Call `sync` without the lock and return the state it began with and its result; retry if files were lost."""
        core = self._core
        while True:
            truncations = core.truncation_count
            with core.lock:
                snapshots = core.producers.snapshots.unsynced
                run = SyncRun(truncations, core.state, core.unsynced.pending_sync(), snapshots, perf_counter())
            try:
                return run, sync(run)
            except BaseException as error:
                self._flush_failed(error, run.state, truncations, is_closing)

    def _sync_files(self, run: SyncRun, offset: int | None) -> tuple[LogSegment, ...]:
        """Sync the segments up to `offset` (None: all) and all other unsynced files; return the segments."""
        state, pending = run.state, run.pending
        start = state.recovery_point
        upto = state.log_end_offset + 1 if offset is None else min(offset, state.log_end_offset)
        covered: tuple[LogSegment, ...] = tuple(state.segments.values(start, upto)) if upto > start else ()
        self._sync_snapshots(run.snapshots)
        self._sync_epochs(state)
        for segment in covered:
            segment.flush()
        for segment in pending.segments:
            if segment not in covered and state.segments.get(segment.base_offset) is segment:
                segment.flush()
        if pending.entries or run.snapshots:
            self._core.fs.fsync_dir(self._core.path)
        return covered

    def _sync_records(self, run: SyncRun) -> None:
        core = self._core
        state = run.state
        self._sync_epochs(state)
        for segment in state.segments.values(max(state.recovery_point, core.durable), state.log_end_offset + 1):
            segment.records.flush()
        if run.pending.entries:
            core.fs.fsync_dir(core.path)

    def _sync_epochs(self, state: State) -> None:
        """Sync the epochs of a log with records: for those below the recovery point no other copy exists."""
        if not self._core.epochs.is_synced and state.log_end_offset > state.log_start_offset:
            self._core.epochs.sync()

    def _sync_snapshots(self, snapshots: tuple[tuple[int, str], ...]) -> None:
        """Sync the snapshots first, since the recovery point will move beyond them (KAFKA-9892)."""
        for _, path in snapshots:
            try:
                with self._core.fs.open_file(path, "rw") as file:
                    file.sync()
            except FileNotFoundError:  # deleted with its segment, or replaced by an older one
                continue

    def sync_entries(self) -> None:
        """Sync the names of files that were created or removed."""
        core = self._core
        done, _ = self._synced(lambda _: core.fs.fsync_dir(core.path))
        with core.lock:
            core.unsynced.entries_synced(done.pending)

    def sync_cut(self, segment: LogSegment) -> None:
        """Sync the new end of a segment: data that was cut off must not reappear beneath new records."""
        truncations, state = self._core.truncation_count, self._core.state
        try:
            segment.records.flush()
        except BaseException as error:
            self._flush_failed(error, state, truncations)

    def _flush_failed(self, error: BaseException, state: State, truncations: int, is_closing: bool = False) -> None:
        """Poison the log and raise, unless the unsynced file was deleted, truncated or renamed meanwhile (LOG-52).

        A log that was closed meanwhile, as a deleted one is before its files go, raises LogClosed.
        """
        core = self._core
        with core.lock:
            is_gone = isinstance(error, LogClosed) or isinstance(error, OSError) and error.errno == ENOENT
            if is_gone:
                segments = core.state.segments
                if truncations != core.truncation_count:
                    return
                if any(segments.get(segment.base_offset) is not segment for segment in state.segments):
                    return
                if isinstance(error, LogClosed) or core.health.closed and not is_closing:
                    core.health.check()
            if isinstance(error, OSError) and error.errno not in TOO_MANY_FILES:  # else nothing was synced or lost
                core.health.poison(error)
            core.metrics.flush_failures += 1
        core.emit("flush_error", error=error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            raise StorageError.from_os(error, "sync the partition directory", path=core.path) from error
        raise error
