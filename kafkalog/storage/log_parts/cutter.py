"""Truncation of a log's end, and deletion of its oldest segments (LOG-36, LOG-42 to LOG-46, LOG-53 to LOG-55)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalog.errors import StorageError
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log_counters import REASONS
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.remover import LogRemover
from kafkalog.storage.log_parts.roller import LogRoller
from kafkalog.storage.log_state import at_end, high_watermark_updated, log_start_incremented
from kafkalog.storage.names import DELETED_SUFFIX
from kafkalog.storage.new_segment import remove_stale_files
from kafkalog.storage.retention import rules_of
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.truncate import TruncatePlan, plan_delete_before, plan_truncate
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State

_LOG: Final = logging.getLogger(__name__)


class LogCutter:
    """Truncates a log at both ends."""

    __slots__ = ("_core", "_flusher", "_remover", "_roller")

    def __init__(self, core: LogCore, flusher: LogFlusher, remover: LogRemover, roller: LogRoller) -> None:
        self._core = core
        self._flusher = flusher
        self._remover = remover
        self._roller = roller

    def truncate_to(self, offset: int, *, keeps_begin: bool = False) -> bool:
        """Truncate the log to end at `offset` (LOG-53); return False if it already ended there or before.

        A batch with the offset inside is removed whole, while the log end is `offset`. If the last batch then ends
        below the log start, a new segment begins there, else the files would give a lower end. With `keeps_begin` an
        epoch that begins at the new end stays: the log still has everything before it. IllegalArgument below 0;
        StorageError.
        """
        core = self._core
        with core.lock:
            state = core.ready_locked()
            plan = plan_truncate(state, offset)
            if plan is None:
                core.epochs.truncate_from_end(offset + keeps_begin)
                core.state = state.replace(leader_epoch=core.epochs.latest_epoch)
            elif plan.start_anew:
                self._start_anew_locked(offset, None)
            else:
                with core.cutting_locked():
                    self._cut_locked(state, plan, keeps_begin)
                if core.active.end_offset < core.state.log_start_offset:
                    with suppress(StorageError):  # the log is cut, and its next opening begins at its start
                        self._roller.roll_locked(None)
        core.run_after_unlock()
        return plan is not None

    def _cut_locked(self, state: State, plan: TruncatePlan, keeps_begin: bool) -> None:
        """Delete segments from the end, then cut: after any failure the beginning of the log remains."""
        core = self._core
        segments = state.segments
        try:
            for segment in reversed(plan.deleted):
                segment.change_file_suffixes("", DELETED_SUFFIX)
                segments = segments.without((segment.base_offset,))
                self._remover.drop_snapshot_locked(segment)
            core.producers.map_end_offset = state.log_end_offset
            segments.active.truncate_to(plan.log_end_offset)
        except BaseException as error:
            core.health.poison(error)
            raise
        end = plan.log_end_offset
        core.durable = min(core.durable, end)
        core.epochs.truncate_from_end(end + keeps_begin)
        start = min(state.log_start_offset, end)
        cut = at_end(state, segments, end, log_start_offset=start, leader_epoch=core.epochs.latest_epoch)
        try:
            core.publish_locked(core.rebuild_producers_locked(cut))
        except BaseException as error:
            core.publish_locked(cut)
            core.health.poison(error)
            raise
        if plan.deleted:
            core.unsynced.entries_changed()
            core.after_unlock.append(self._flusher.sync_entries)
            core.after_unlock.append(lambda: self._remover.delete_later(plan.deleted))
        core.after_unlock.append(lambda: self._flusher.sync_cut(segments.active))
        self._record_truncation_locked(end, state)

    def _record_truncation_locked(self, offset: int, before: State) -> None:
        self._core.metrics.truncations += 1
        self._core.emit_locked("truncate", offset=offset, log_end_offset=before.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Empty the log: it begins, ends and has its high watermark at `offset` (LOG-55). StorageError."""
        core = self._core
        with core.lock:
            core.ready_locked()
            self._start_anew_locked(offset, log_start_offset)
        core.run_after_unlock()

    def _start_anew_locked(self, offset: int, log_start_offset: int | None) -> None:
        core = self._core
        with core.cutting_locked():
            state = core.state
            start = offset if log_start_offset is None else log_start_offset
            old = tuple(state.segments)
            try:
                for segment in reversed(old):
                    segment.change_file_suffixes("", DELETED_SUFFIX)
                remove_stale_files(core.path, offset, core.fs)
                segments: LogSegments[LogSegment] = LogSegments((self._roller.new_segment(offset),))
                core.producers.truncate_fully_and_start_at(offset)
                core.producers.on_log_start_incremented(start)
                core.producers.take_snapshot()
            except BaseException as error:  # later appends would go into a file that is to be deleted
                core.health.poison(error)
                raise
            core.durable = 0
            core.epochs.clear()
            emptied = at_end(state, segments, offset, log_start_offset=start, leader_epoch=-1)
            emptied = emptied.replace(first_unstable_offset=-1)
            core.publish_locked(high_watermark_updated(emptied, emptied.end_metadata))
            core.after_unlock.append(self._flusher.sync_entries)
            core.after_unlock.append(lambda: self._remover.delete_later(old))
            self._record_truncation_locked(offset, state)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start to `offset`, deleting nothing; return True if it changed.

        OffsetOutOfRange above the high watermark.
        """
        with self._core.lock:
            changed = self._increment_log_start_locked(offset)
        self._core.run_after_unlock()
        return changed

    def _increment_log_start_locked(self, offset: int) -> bool:
        core = self._core
        state = log_start_incremented(core.ready_locked(), offset)
        if state is None:
            return False
        core.producers.on_log_start_incremented(offset)
        core.state = core.with_unstable_locked(state)
        core.epochs.truncate_from_start(offset)
        return True

    def delete_before(self, offset: int) -> int:
        """Discard the records below `offset` (-1: all below the high watermark) and return the new log start.

        Segments that lie completely below it are deleted. OffsetOutOfRange above the high watermark, StorageError.
        """
        core = self._core
        with core.lock:
            self._increment_log_start_locked(core.state.high_watermark if offset == -1 else offset)
            with deferred_interrupts():
                self._delete_first_segments_locked()
            start: int = core.state.log_start_offset
        core.run_after_unlock()
        return start

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """Apply retention and return the number of segments deleted: below the log start, by size, by time (LOG-42).

        If all are deleted, an empty active segment is created first, so that there is always one (LOG-43). Ages are
        measured at `now_ms` (None: the wall clock's time). StorageError.
        """
        core = self._core
        deleted = 0
        now_ms = core.milliseconds() if now_ms is None else now_ms
        for reason, rule in rules_of(core.config):
            with core.lock:
                core.ready_locked()
                removed = rule(core.state, core.config, now_ms)
                if removed:
                    with deferred_interrupts():
                        deleted += self._delete_segments_locked(removed, reason.replace(" ", "_"))
        core.run_after_unlock()
        return deleted

    def _delete_segments_locked(self, removed: tuple[LogSegment, ...], reason: str) -> int:
        """Remove the oldest segments; the log then starts behind them (LOG-45)."""
        core = self._core
        if len(removed) == len(core.state.segments):
            try:
                self._roller.roll_locked(None)
            except StorageError as error:
                if is_disk_failure(error) or len(removed) == 1:
                    raise
                # the disk is full: the older ones make room, and the next run deletes the last one
                _LOG.info("%s: the last segment stays for now: %s", core.name, error)
            removed = tuple(segment for segment in removed if segment is not core.active)
        following = core.state.segments.higher(removed[-1].base_offset) if removed else None
        if following is None:
            return 0
        self._increment_log_start_locked(following.base_offset)
        self._remove_locked(removed, reason)
        return len(removed)

    def _delete_first_segments_locked(self) -> None:
        state = self._core.state
        removed = plan_delete_before(state, state.log_start_offset)
        if removed:
            self._remove_locked(removed, REASONS[0])

    def _remove_locked(self, removed: tuple[LogSegment, ...], reason: str) -> None:
        """Remove segments from the map and rename them; their files are deleted later (LOG-46)."""
        core = self._core
        state = core.state
        core.state = state.replace(segments=state.segments.without(s.base_offset for s in removed))
        renamed: list[LogSegment] = []
        try:
            for segment in removed:
                segment.change_file_suffixes("", DELETED_SUFFIX)
                renamed.append(segment)
                self._remover.drop_snapshot_locked(segment)
        except BaseException:  # a segment not renamed would be found at the next opening, so it stays
            core.state = state.replace(segments=state.segments.without(s.base_offset for s in renamed))
            raise
        finally:
            core.unsynced.entries_changed()
            if renamed:
                # the first segment's name may define the log start from now on: the deletion must be durable
                core.after_unlock.append(self._flusher.sync_entries)
                core.after_unlock.append(lambda: self._remover.delete_later(renamed))
        size = sum(segment.size for segment in removed)
        core.metrics.deleted(reason, len(removed), size)
        core.emit_locked("delete", base_offsets=tuple(s.base_offset for s in removed), size=size, reason=reason)
