"""The part of a log that puts it on disk: all of it, or just the records (format.md section 8, LOG-49 to LOG-52).

A flush takes no lock while a file is synced: what it is about is one state, and what happened meanwhile is looked at
after it. A sync that failed is never tried again; the log takes no more writes.
"""

from __future__ import annotations

from errno import ENOENT
from time import perf_counter

from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.storage.log_base import LogBase
from kafkalog.storage.log_state import LogState, flushed_to
from kafkalog.storage.segment import LogSegment
from kafkalog.util.descriptors import TOO_MANY_FILES


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
        while not self._commit_once():
            pass

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
        while not self._flush_once(offset):
            pass

    def _flush_once(self, offset: int | None) -> bool:
        """True when done; False where a segment was cut off or deleted under it, so that it has to begin again."""
        cuts = self._cuts
        with self._lock:
            state = self._state
            taken = self._unsynced.taken()
            snapshots = self._producers.snapshots.unsynced
        end = state.log_end_offset if offset is None else min(offset, state.log_end_offset)
        start = state.recovery_point
        upto = end + 1 if offset is None else end
        covered = state.segments.values(start, upto) if upto > start else ()
        began = perf_counter()
        try:
            self._sync_snapshots(snapshots)
            for segment in covered:
                segment.flush()
            for segment in taken.segments:
                if segment not in covered and state.segments.get(segment.base_offset) is segment:
                    segment.flush()
            if taken.entries or snapshots:
                self._fs.fsync_dir(self.path)
        except BaseException as error:
            self._flush_failed(error, state, cuts)
            return False
        with self._lock:
            self._unsynced.synced(taken)
            known = self._producers.snapshots
            known.unsynced = tuple(one for one in known.unsynced if one not in snapshots)
            if covered:
                if cuts == self._cuts:
                    self._state = flushed_to(self._state, end)
                    self._durable = max(self._durable, self._state.recovery_point)
                self.last_flush_time = self._milliseconds()
                self.last_flush_monotonic_ms = self._clock.monotonic_ms()
        if covered:
            self._note_flush(end, perf_counter() - began)
        return self._write_epochs()

    def _note_flush(self, offset: int, seconds: float) -> None:
        with self._lock:
            self.metrics.flushes.add(seconds)
        self._tell("flush", offset=offset, duration_ms=seconds * 1000)

    def _sync_snapshots(self, snapshots: tuple[tuple[int, str], ...]) -> None:
        """The recovery point moves beyond them, so they come first (KAFKA-9892)."""
        for _, path in snapshots:
            try:
                with self._fs.open_file(path, "rw") as file:
                    file.sync()
            except FileNotFoundError:  # it went with its segment, or gave way to an older one
                continue

    def _commit_once(self) -> bool:
        """True when done; False where a segment was cut off or deleted under it, so that it has to begin again."""
        cuts = self._cuts
        with self._lock:
            state = self._state
            taken = self._unsynced.taken()
        end = state.log_end_offset
        began = perf_counter()
        try:
            for segment in state.segments.values(max(state.recovery_point, self._durable), end + 1):
                segment.records.flush()
            if taken.entries:
                self._fs.fsync_dir(self.path)
        except BaseException as error:
            self._flush_failed(error, state, cuts)
            return False
        with self._lock:
            self._unsynced.entries_synced(taken)
            if cuts == self._cuts:
                self._durable = max(self._durable, end)
        self._note_flush(end, perf_counter() - began)
        return self._write_epochs()

    def _sync_entries(self) -> None:
        """Return when the names of files that were made or removed are on disk."""
        while not self._sync_entries_once():
            pass

    def _sync_entries_once(self) -> bool:
        """True when done; False where the directory was renamed meanwhile."""
        cuts = self._cuts
        with self._lock:
            state = self._state
            taken = self._unsynced.taken()
        try:
            self._fs.fsync_dir(self.path)
        except BaseException as error:
            self._flush_failed(error, state, cuts)
            return False
        with self._lock:
            self._unsynced.entries_synced(taken)
        return True

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

