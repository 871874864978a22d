"""Creating new segments of a log (LOG-8, LOG-17, LOG-18)."""

from __future__ import annotations

import logging

from kafkalog.errors import StorageError
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.remover import LogRemover
from kafkalog.storage.log_state import at_end
from kafkalog.storage.names import DELETED_SUFFIX
from kafkalog.storage.new_segment import plan_roll, remove_stale_files
from kafkalog.storage.segment import LogSegment
from kafkalog.util.interrupts import deferred_interrupts


class LogRoller:
    """Rolls a log."""

    __slots__ = ("_core", "_flusher", "_leftovers", "_remover")

    def __init__(self, core: LogCore, flusher: LogFlusher, remover: LogRemover) -> None:
        self._core = core
        self._flusher = flusher
        self._remover = remover
        self._leftovers: set[int] = set()  # guarded by core.lock; bases of files that could not be removed

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Begin a new active segment at the log end, or at `expected_next_offset` if that is higher; return it.

        An empty active segment with that base is replaced (LOG-17). After a StorageError the log continues with the
        old one.
        """
        core = self._core
        with core.lock:
            core.ready_locked()
            segment = self.roll_locked(expected_next_offset)
        core.run_after_unlock()
        return segment

    def roll_locked(self, expected_offset: int | None) -> LogSegment:
        """Roll as `roll` does; the caller holds the lock."""
        try:
            return self._begin_segment_locked(expected_offset)
        except OSError as error:
            self._core.health.notice(error)
            raise

    def _begin_segment_locked(self, expected_offset: int | None) -> LogSegment:
        core = self._core
        with deferred_interrupts():
            state = core.state
            plan = plan_roll(state, expected_offset)
            old = core.active
            self.remove_leftovers()
            self._snapshot_locked(plan.base_offset)
            try:
                if plan.replaced is None:
                    remove_stale_files(core.path, plan.base_offset, core.fs)
                else:
                    old.change_file_suffixes("", DELETED_SUFFIX)
                segment = self.new_segment(plan.base_offset)
            except BaseException:
                if plan.replaced is not None:
                    self._restore_names_locked(old)
                raise
            if plan.replaced is None:
                self._finish_segment_locked(old, segment)
                if state.recovery_point >= plan.base_offset:
                    core.unsynced.sealed(old)
            else:
                core.after_unlock.append(lambda: self._remover.delete_later((old,)))
            segments = state.segments.with_added(segment)
            core.publish_locked(at_end(state, segments, plan.base_offset))
            core.after_unlock.append(lambda: self._flusher.flush_later(plan.base_offset))
            core.metrics.rolls += 1
            core.emit_locked("roll", base_offset=plan.base_offset)
            return segment

    def _restore_names_locked(self, segment: LogSegment) -> None:
        """Restore the names of a segment that was to be replaced.

        If that fails, the log rejects further writes: the next opening would delete the files they are in.
        """
        try:
            if segment.path.endswith(DELETED_SUFFIX):
                segment.change_file_suffixes(DELETED_SUFFIX, "")
        except BaseException as failure:
            self._core.health.poison(failure)

    def _snapshot_locked(self, offset: int) -> None:
        """Write a producer snapshot at `offset`, the log end or a gap behind it (LOG-18)."""
        producers = self._core.producers
        before, producers.map_end_offset = producers.map_end_offset, offset
        try:
            producers.take_snapshot(sync=False)
        except BaseException:
            producers.map_end_offset = before
            raise

    def new_segment(self, base_offset: int) -> LogSegment:
        """Create a segment with all its files; none of them stays if one cannot be created."""
        core = self._core
        config = core.config
        segment: LogSegment | None = None
        try:
            segment = LogSegment.open(
                core.path,
                base_offset,
                config,
                fs=core.fs,
                clock=core.clock,
                preallocated_bytes=config.init_file_size,
            )
            segment.begin()
            core.unsynced.entries_changed()
            return segment
        except BaseException:
            self._drop_new(segment, base_offset)
            raise

    def _drop_new(self, segment: LogSegment | None, base_offset: int) -> None:
        """Remove the files of a segment that could not be created; failed removals are retried later."""
        if segment is not None:
            segment.close_handlers()
        self._leftovers.add(base_offset)
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Remove empty files that failed rolls left between segments, where they would hide records."""
        for base_offset in tuple(self._leftovers):
            try:
                remove_stale_files(self._core.path, base_offset, self._core.fs, level=logging.DEBUG)
            except StorageError:
                continue
            self._leftovers.discard(base_offset)

    def _finish_segment_locked(self, old: LogSegment, new: LogSegment) -> None:
        """Seal the old active segment; if that fails, it stays active, and the new one is removed.

        If it cannot be made active again, the log rejects further writes.
        """
        try:
            old.on_become_inactive()
        except BaseException:
            self._drop_new(new, new.base_offset)
            try:
                old.become_active()
            except BaseException as failure:
                self._core.health.poison(failure)
            raise
