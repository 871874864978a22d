"""The part of a log that puts it on disk: all of it, or just the records (format.md section 8, LOG-49 to LOG-52).

A flush takes no lock while a file is synced: what it is about is one state, and what happened meanwhile is looked at
after it. A sync that failed is never tried again; the log takes no more writes.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOENT
from time import perf_counter
from typing import NamedTuple, TypeVar

from kafkalog._core.state import LogState
from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.storage.log_base import LogBase
from kafkalog.storage.log_state import flushed_to
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.unsynced import Taken
from kafkalog.util.descriptors import TOO_MANY_FILES

T = TypeVar("T")


class Begun(NamedTuple):
    """What a sync is about: the log as it was when it began, at `began_s` of the performance counter."""

    cuts: int
    state: LogState
    taken: Taken
    snapshots: tuple[tuple[int, str], ...]
    began_s: float


class LogFlusher(LogBase):
    """Flushing a log; rules as for `LogBase`."""

    __slots__ = ()

    def flush(self, offset: int | None = None) -> None:
        """Return when everything before `offset` is on disk, directory entries too; None: all that is appended.

        The recovery point is raised to it (LOG-51). A failed sync is a StorageError and poisons the log.
        """
        self._health.check()
        self._flush(offset)

    def commit(self) -> None:
        """Return when all records appended so far would outlive a loss of power; costs one sync.

        Indexes are left to a later `flush`, and the recovery point where it is: an opening after a crash makes them
        anew from the records behind it. A failed sync is a StorageError and poisons the log.
        """
        self._health.check()
        done, _ = self._synced(self._sync_records)
        end = done.state.log_end_offset
        with self._lock:
            self._unsynced.entries_synced(done.taken)
            if done.cuts == self._cuts:
                self._durable = max(self._durable, end)
            seconds = self._note_flush_locked(done)
        self._tell("flush", offset=end, duration_ms=seconds * 1000)
        self._write_epochs()

    def _flush_if_due(self) -> None:
        """Flush where `flush.messages` or more records lie behind the recovery point (LOG-50)."""
        state = self._state
        if state.log_end_offset - state.recovery_point >= self._flush_messages:
            self.flush()

    def _flush_later(self, offset: int) -> None:
        if self._scheduler is not None:
            self._scheduler.schedule("flush-log", lambda: self._flush_if_usable(offset))

    def _flush_if_usable(self, offset: int) -> None:
        """Flush, unless the log was closed or deleted while the task waited."""
        if self._health.cause is None:
            self.flush(offset)

    def _flush(self, offset: int | None = None) -> None:
        done, covered = self._synced(lambda begun: self._sync_files(begun, offset))
        end = done.state.log_end_offset if offset is None else min(offset, done.state.log_end_offset)
        seconds = 0.0
        with self._lock:
            self._unsynced.synced(done.taken)
            known = self._producers.snapshots
            known.unsynced = tuple(one for one in known.unsynced if one not in done.snapshots)
            if covered:
                if done.cuts == self._cuts:
                    self._state = flushed_to(self._state, end)
                    self._durable = max(self._durable, self._state.recovery_point)
                self.last_flush_time = self._milliseconds()
                self.last_flush_monotonic_ms = self._clock.monotonic_ms()
                seconds = self._note_flush_locked(done)
        if covered:
            self._tell("flush", offset=end, duration_ms=seconds * 1000)
        self._write_epochs()

    def _note_flush_locked(self, done: Begun) -> float:
        """The seconds that a flush took, counted."""
        seconds = perf_counter() - done.began_s
        self.metrics.flushes.add(seconds)
        return seconds

    def _synced(self, sync: Callable[[Begun], T]) -> tuple[Begun, T]:
        """What was begun with, and what `sync` made of it, without the lock; begun again where it lost its files."""
        while True:
            cuts = self._cuts
            with self._lock:
                snapshots = self._producers.snapshots.unsynced
                begun = Begun(cuts, self._state, self._unsynced.taken(), snapshots, perf_counter())
            try:
                return begun, sync(begun)
            except BaseException as error:
                self._flush_failed(error, begun.state, cuts)

    def _sync_files(self, begun: Begun, offset: int | None) -> tuple[LogSegment, ...]:
        """The segments up to `offset` (None: all), synced as is all else that a flush has to put on disk."""
        state, taken = begun.state, begun.taken
        start = state.recovery_point
        upto = state.log_end_offset + 1 if offset is None else min(offset, state.log_end_offset)
        covered: tuple[LogSegment, ...] = tuple(state.segments.values(start, upto)) if upto > start else ()
        self._sync_snapshots(begun.snapshots)
        self._sync_epochs(state)
        for segment in covered:
            segment.flush()
        for segment in taken.segments:
            if segment not in covered and state.segments.get(segment.base_offset) is segment:
                segment.flush()
        if taken.entries or begun.snapshots:
            self._fs.fsync_dir(self.path)
        return covered

    def _sync_records(self, begun: Begun) -> None:
        state = begun.state
        self._sync_epochs(state)
        for segment in state.segments.values(max(state.recovery_point, self._durable), state.log_end_offset + 1):
            segment.records.flush()
        if begun.taken.entries:
            self._fs.fsync_dir(self.path)

    def _sync_epochs(self, state: LogState) -> None:
        """What records below the recovery point have for epochs is nowhere else; a log without any loses none."""
        if not self._epochs.is_synced and state.log_end_offset > state.log_start_offset:
            self._epochs.sync()

    def _sync_snapshots(self, snapshots: tuple[tuple[int, str], ...]) -> None:
        """The recovery point moves beyond them, so they come first (KAFKA-9892)."""
        for _, path in snapshots:
            try:
                with self._fs.open_file(path, "rw") as file:
                    file.sync()
            except FileNotFoundError:  # it went with its segment, or gave way to an older one
                continue

    def _sync_entries(self) -> None:
        """Return when the names of files that were made or removed are on disk."""
        done, _ = self._synced(lambda _: self._fs.fsync_dir(self.path))
        with self._lock:
            self._unsynced.entries_synced(done.taken)

    def _sync_cut(self, segment: LogSegment) -> None:
        """Return when the new end of a segment is on disk: what was cut off must not come back beneath new records."""
        cuts, state = self._cuts, self._state
        try:
            segment.records.flush()
        except BaseException as error:
            self._flush_failed(error, state, cuts)

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
            if isinstance(error, OSError) and error.errno not in TOO_MANY_FILES:  # then nothing was synced, nor lost
                self._health.poison(error)
            self.metrics.flush_failures += 1
        self._tell("flush_error", error=error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            raise StorageError.from_os(error, "sync the partition directory", path=self.path) from error
        raise error

