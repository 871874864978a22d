"""The half of a log that changes its segments: roll, cut, delete, close."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafkalog._core.state import LogState
from kafkalog.errors import StorageError
from kafkalog.storage.log_flush import LogFlusher
from kafkalog.storage.log_metrics import REASONS
from kafkalog.storage.log_state import at_end, high_watermark_updated, log_start_incremented
from kafkalog.storage.names import DELETED_SUFFIX
from kafkalog.storage.retention import rules_of
from kafkalog.storage.roll import plan_roll, remove_stale_files
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.truncate import TruncatePlan, plan_delete_before, plan_truncate
from kafkalog.util.interrupts import deferred_interrupts


class LogOwner(LogFlusher):
    """Rolling, cutting, deleting and closing; rules as for `LogBase`."""

    __slots__ = ()

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
        try:
            return self._begin_segment_locked(expected_offset)
        except OSError as error:
            self._health.notice(error)
            raise

    def _begin_segment_locked(self, expected_offset: int | None) -> LogSegment:
        with deferred_interrupts():
            state = self._state
            plan = plan_roll(state, expected_offset)
            old = self._active
            self._remove_leftovers()
            self._snapshot_locked(plan.base_offset)
            try:
                if plan.replaced is None:
                    remove_stale_files(self.path, plan.base_offset, self._fs)
                else:
                    old.change_file_suffixes("", DELETED_SUFFIX)
                segment = self._new_segment(plan.base_offset)
            except BaseException:
                if plan.replaced is not None:
                    self._take_back_locked(old)
                raise
            if plan.replaced is None:
                self._finish_segment_locked(old, segment)
                if state.recovery_point >= plan.base_offset:
                    self._unsynced.sealed(old)
            else:
                self._chores.append(lambda: self._delete_later((old,)))
            segments = state.segments.with_added(segment)
            self._publish_locked(at_end(state, segments, plan.base_offset))
            self._chores.append(lambda: self._flush_later(plan.base_offset))
            self.metrics.rolls += 1
            self._tell_locked("roll", base_offset=plan.base_offset)
            return segment

    def _take_back_locked(self, segment: LogSegment) -> None:
        """Give a segment that was to be replaced its names back.

        Where that cannot be, the log takes no more writes: the next opening would remove what they are in.
        """
        try:
            if segment.path.endswith(DELETED_SUFFIX):
                segment.change_file_suffixes(DELETED_SUFFIX, "")
        except BaseException as worse:
            self._health.poison(worse)

    def _snapshot_locked(self, offset: int) -> None:
        """Put the producers on disk as they are before `offset`, the log end or a gap behind it (LOG-18)."""
        producers = self._producers
        before, producers.map_end_offset = producers.map_end_offset, offset
        try:
            producers.take_snapshot(sync=False)
        except BaseException:
            producers.map_end_offset = before
            raise

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
            segment.begin()
            self._unsynced.entries_changed()
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

    def truncate_to(self, offset: int, *, keeps_begin: bool = False) -> bool:
        """True when records were cut: the log then ends at `offset` (LOG-53). False where it ended there or before.

        A batch that holds the offset inside goes whole, while the log end is the offset asked for. With `keeps_begin`
        an epoch that begins at the new end stays: it is still true that the log has all from before it.
        IllegalArgument below 0; StorageError.
        """
        with self._lock:
            state = self._ready_locked()
            plan = plan_truncate(state, offset)
            if plan is None:
                self._epochs.truncate_from_end(offset + keeps_begin)
                self._state = state.replace(leader_epoch=self._epochs.latest_epoch)
            elif plan.start_anew:
                self._start_anew_locked(offset, None)
            else:
                with self._cutting_locked():
                    self._cut_locked(state, plan, keeps_begin)
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

    def _cut_locked(self, state: LogState, plan: TruncatePlan, keeps_begin: bool) -> None:
        """Delete from the end, then cut: whatever fails, what is left is the front of the log."""
        segments = state.segments
        try:
            for segment in reversed(plan.deleted):
                segment.change_file_suffixes("", DELETED_SUFFIX)
                segments = segments.without((segment.base_offset,))
                self._drop_snapshot_locked(segment)
            self._producers.map_end_offset = state.log_end_offset
            segments.active.truncate_to(plan.log_end_offset)
        except BaseException as error:
            self._health.poison(error)
            raise
        end = plan.log_end_offset
        self._durable = min(self._durable, end)
        self._epochs.truncate_from_end(end + keeps_begin)
        start = min(state.log_start_offset, end)
        cut = at_end(state, segments, end, log_start_offset=start, leader_epoch=self._epochs.latest_epoch)
        try:
            self._publish_locked(self._rebuild_producers_locked(cut))
        except BaseException as error:
            self._publish_locked(cut)
            self._health.poison(error)
            raise
        if plan.deleted:
            self._unsynced.entries_changed()
            self._chores.append(self._sync_entries)
            self._chores.append(lambda: self._delete_later(plan.deleted))
        self._chores.append(lambda: self._sync_cut(segments.active))
        self._note_cut_locked(end, state)

    def _note_cut_locked(self, offset: int, before: LogState) -> None:
        self.metrics.truncations += 1
        self._tell_locked("truncate", offset=offset, log_end_offset=before.log_end_offset)

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
                self._producers.truncate_fully_and_start_at(offset)
            except BaseException as error:  # what is appended from here on would go into a file that is given up
                self._health.poison(error)
                raise
            self._durable = 0
            self._epochs.clear()
            start = offset if log_start_offset is None else log_start_offset
            emptied = at_end(state, segments, offset, log_start_offset=start, leader_epoch=-1)
            emptied = emptied.replace(first_unstable_offset=-1)
            self._publish_locked(high_watermark_updated(emptied, emptied.end_metadata))
            self._chores.append(self._sync_entries)
            self._chores.append(lambda: self._delete_later(old))
            self._note_cut_locked(offset, state)

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
        self._producers.on_log_start_incremented(offset)
        self._state = self._with_unstable_locked(state)
        self._epochs.truncate_from_start(offset)
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

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """How many segments retention deleted: below the log start, then by size, then by time (LOG-42).

        All of them: an empty active segment is begun first, so that there is always one (LOG-43). Ages count up to
        `now_ms` (None: the wall clock's time). StorageError.
        """
        deleted = 0
        now_ms = self._milliseconds() if now_ms is None else now_ms
        for reason, rule in rules_of(self._config):
            with self._lock:
                self._ready_locked()
                gone = rule(self._state, self._config, now_ms)
                if gone:
                    with deferred_interrupts():
                        deleted += self._delete_segments_locked(gone, reason.replace(" ", "_"))
        self._do_chores()
        return deleted

    def _delete_segments_locked(self, gone: tuple[LogSegment, ...], reason: str) -> int:
        """Take out the oldest segments; the log starts behind them then (LOG-45)."""
        if len(gone) == len(self._state.segments):
            self._roll_locked(None)
            gone = tuple(segment for segment in gone if segment is not self._active)
        following = self._state.segments.higher(gone[-1].base_offset) if gone else None
        if following is None:
            return 0
        self._increment_log_start_locked(following.base_offset)
        self._remove_locked(gone, reason)
        return len(gone)

    def _delete_first_segments_locked(self) -> None:
        state = self._state
        gone = plan_delete_before(state, state.log_start_offset)
        if gone:
            self._remove_locked(gone, REASONS[0])

    def _remove_locked(self, gone: tuple[LogSegment, ...], reason: str) -> None:
        """Take segments out of the log: out of the map, renamed, their files removed later (LOG-46)."""
        state = self._state
        self._state = state.replace(segments=state.segments.without(s.base_offset for s in gone))
        renamed: list[LogSegment] = []
        try:
            for segment in gone:
                segment.change_file_suffixes("", DELETED_SUFFIX)
                renamed.append(segment)
                self._drop_snapshot_locked(segment)
        except BaseException:  # what kept its name is found at the next opening, so it stays part of the log
            self._state = state.replace(segments=state.segments.without(s.base_offset for s in renamed))
            raise
        finally:
            self._unsynced.entries_changed()
            if renamed:
                # the first segment's name may tell the log start from now on: it has to stay gone
                self._chores.append(self._sync_entries)
                self._chores.append(lambda: self._delete_later(renamed))
        size = sum(segment.size for segment in gone)
        self.metrics.deleted(reason, len(gone), size)
        self._tell_locked("delete", base_offsets=tuple(s.base_offset for s in gone), size=size, reason=reason)

    def _drop_snapshot_locked(self, segment: LogSegment) -> None:
        """Give up the snapshot at the base of a segment that goes; its file goes with it (LOG-69)."""
        marked = self._producers.snapshots.mark_deleted(segment.base_offset)
        if marked is not None:
            self._chores.append(lambda: self._delete_later((), (marked,)))

    def _delete_later(self, segments: Iterable[LogSegment], files: Iterable[str] = ()) -> None:
        """Remove the files of segments renamed to .deleted, after file.delete.delay.ms where there is a scheduler.

        They stay open for readers that took the log's state before.
        """

        def delete() -> None:
            for segment in segments:
                segment.unlink_files()
            for path in files:
                try:
                    self._fs.unlink_if_exists(path)
                except OSError as error:
                    raise StorageError.from_os(error, "delete the producer snapshot", path=path) from error

        if self._scheduler is None:
            delete()
        else:
            self._scheduler.schedule("delete-file", delete, delay_ms=self._config.file_delete_delay_ms)

    def rename_dir(self, name: str, *, sync: bool = True) -> None:
        """Give the partition directory another name; all its files are reached there then (LOG-72).

        StorageError: it has its old name, or, where the entry could not be synced, the new one until a power loss.
        Without `sync` that is the caller's.
        """
        parent = os.path.dirname(self.path)
        target = os.path.join(parent, name)
        with self._lock, self._cutting_locked():  # readers and flushes that miss a file begin again
            for segment in self._state.segments:
                segment.will_be_in(target)
            try:
                self._fs.rename(self.path, target)
            except BaseException as error:
                self._relocate_locked(self.path)
                if isinstance(error, OSError):
                    raise StorageError.from_os(error, f"rename to {name}", path=self.path) from error
                raise
            self._relocate_locked(target)
        try:
            if sync:
                self._fs.fsync_dir(parent)
        except OSError as error:
            raise StorageError.from_os(error, "sync the data directory", path=parent) from error

    def _relocate_locked(self, directory: str) -> None:
        self.path = self._health.path = directory
        self.name = self._health.name = os.path.basename(directory)
        for segment in self._state.segments:
            segment.relocate(directory)
        self._producers.snapshots.directory = directory
        self._epochs.relocate(directory)

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
                    self._active.add_final_time_entry()  # before the flush, which syncs it
                    self._active.make_indexes()
                    self._active.records.trim()  # before the flush: the recovery point will lie behind it
                except BaseException as error:
                    failure = error
                self._health.close()  # before the flush: what is appended after it would not be on disk
            try:
                if failure is None:
                    self._flush()
                    self._producers.map_end_offset = self._state.log_end_offset
                    self._producers.take_snapshot()
            except BaseException as error:
                failure = error
            with self._lock:
                for segment in self._state.segments:
                    try:
                        segment.close() if failure is None else segment.close_handlers()
                    except BaseException as error:
                        failure = failure or error
            self._tell("close", log_end_offset=self._state.log_end_offset)
            if failure is not None:
                raise failure

    def close_handlers(self) -> None:
        """Give all files back without writing anything: what a crash would leave. The log is closed after it."""
        with self._lock:
            self._health.close()
            for segment in self._state.segments:
                segment.close_handlers()

    def abandon(self, cause: BaseException) -> None:
        """`close_handlers`, after which every use is a StorageError with this cause."""
        with self._lock:
            self._health.abandon(cause)
            for segment in self._state.segments:
                segment.close_handlers()
