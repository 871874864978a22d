"""Replacing segments by rewritten ones (LOG-78, LOG-79)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from kafkalog.errors import CleaningAborted, CorruptRecord, IllegalState, KafkalogError, StorageError
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.remover import LogRemover
from kafkalog.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX
from kafkalog.storage.recovery.leftovers import remove_file
from kafkalog.storage.recovery.split import HINT, write_parts
from kafkalog.storage.replace import apply_swaps, make_swaps
from kafkalog.storage.segment import LogSegment
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.os_errors import os_errors

NO_END: Final = 1 << 64


class LogReplacer:
    """Replaces segments while appends and reads continue."""

    __slots__ = ("_core", "_flusher", "_is_being_cleaned", "_remover")

    def __init__(self, core: LogCore, flusher: LogFlusher, remover: LogRemover) -> None:
        self._core = core
        self._flusher = flusher
        self._remover = remover
        self._is_being_cleaned = False  # guarded by core.lock

    @contextmanager
    def being_cleaned(self) -> Iterator[int]:
        """Hold the exclusive right to clean the log; remove files of an earlier clean and yield `truncation_count`.

        IllegalState if the log is already being cleaned; StorageError, LogClosed.
        """
        core = self._core
        acquired = False
        try:
            with core.lock:
                core.ready_locked()
                if self._is_being_cleaned:
                    raise IllegalState(f"log {core.name} is already being cleaned", path=core.path)
                truncations = core.truncation_count
                self._is_being_cleaned = acquired = True  # one statement: Ctrl-C cannot come between two assignments
            self._remove_cleaned_files()
            yield truncations
        finally:
            if acquired:
                self._is_being_cleaned = False

    def _remove_cleaned_files(self) -> None:
        core = self._core
        with os_errors("list the partition directory", core.path):
            names = core.fs.names(core.path)
        for name in names:
            if name.endswith(CLEANED_SUFFIX):
                remove_file(core.path, name, core.fs)

    def new_cleaned_segment(self, base_offset: int) -> LogSegment:
        """Create an empty segment of `.cleaned` files, ready for appends; it joins the log in `replace_segments`."""
        core = self._core
        segment = LogSegment.open(
            core.path, base_offset, core.config, fs=core.fs, clock=core.clock, suffix=CLEANED_SUFFIX
        )
        segment.begin()
        return segment

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment], truncations: int) -> None:
        """Replace `old` by `new`, synced `.cleaned` files that hold the records of `old` (LOG-79).

        Readers that hold an old segment continue with it; its files are deleted as those of a deleted segment. After
        a crash at any moment the log has either the old segments or the new ones. `truncations` is the count when
        the first byte of `old` was read. CleaningAborted if the log was truncated, or lost one of them, since then;
        CorruptRecord if a new one does not begin between the old ones and the next one. Nothing has changed then,
        nor after an error before the new files take effect. After a later error the log has the new segments and
        rejects further writes.
        """
        core = self._core
        try:
            with core.lock:
                core.ready_locked()
                self._check_replaced_locked(old, truncations)
                self._check_places_locked(new, old)
                with deferred_interrupts():
                    self._replace_locked(tuple(new), tuple(old))
        finally:
            core.run_after_unlock()

    def check_unchanged(self, segments: Sequence[LogSegment], truncations: int) -> None:
        """Raise CleaningAborted, as `replace_segments` does, if the log has changed these segments."""
        with self._core.lock:
            self._check_replaced_locked(segments, truncations)

    def _check_replaced_locked(self, old: Sequence[LogSegment], truncations: int) -> None:
        """Raise CleaningAborted if retention or a truncation came first (KAFKA-7278)."""
        core = self._core
        segments = core.state.segments
        missing = [s.base_offset for s in old if segments.get(s.base_offset) is not s or s is core.active]
        if missing or truncations != core.truncation_count:
            what = f"lost the segment at {missing[0]}" if missing else "was truncated or renamed"
            raise CleaningAborted(
                f"log {core.name} {what} while it was being cleaned", path=core.path, hint="clean it again"
            )

    def _check_places_locked(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Raise CorruptRecord if new segments overlap, lie before the old ones, or reach into the next one."""
        following = self._core.state.segments.higher(old[-1].base_offset)
        ends = [segment.base_offset for segment in new[1:]]
        least = old[0].base_offset
        for segment, end in zip(new, [*ends, following.base_offset if following is not None else NO_END], strict=True):
            base, last = segment.base_offset, max(segment.last_known_offset, segment.base_offset)
            if not least <= base <= last < end:
                raise CorruptRecord(
                    f"offsets {base} to {last} do not fit between {least} and {end}",
                    path=old[0].path,
                    offset=base,
                    hint=HINT,
                )

    def _replace_locked(self, new: tuple[LogSegment, ...], old: tuple[LogSegment, ...]) -> None:
        core = self._core
        state = core.state
        try:
            make_swaps(core.path, new, core.fs)
        except BaseException as error:
            self._revert_swaps_locked(new)
            raise self._reported(error) from error
        finally:
            core.unsynced.entries_changed()
        segments = state.segments.without(segment.base_offset for segment in old)
        for segment in new:
            segment.records.guard = core.lock  # no one writes to it
            segments = segments.with_added(segment)
        if any(segment.base_offset == state.high_watermark_base for segment in old):  # its position was in there
            state = state.replace(high_watermark_base=-1, high_watermark_position=-1)
        core.state = state.replace(segments=segments)
        try:
            apply_swaps(core.path, new, old, core.fs)
        except BaseException as error:  # the next opening determines which renames were made
            core.health.poison(error)
            raise self._reported(error) from error
        core.after_unlock.append(self._flusher.sync_entries)
        core.after_unlock.append(lambda: self._remover.delete_later(old))
        kept = {segment.base_offset for segment in new}
        for segment in old:
            if segment.base_offset not in kept:
                self._remover.drop_snapshot_locked(segment)

    def _revert_swaps_locked(self, new: Sequence[LogSegment]) -> None:
        """Rename `.swap` files back to `.cleaned`.

        If that fails, the log rejects further writes: the next opening would replace its later content by them.
        """
        try:
            for segment in new:
                if segment.path.endswith(SWAP_SUFFIX):
                    segment.change_file_suffixes(SWAP_SUFFIX, CLEANED_SUFFIX)
        except BaseException as failure:
            self._core.health.poison(failure)

    def _reported(self, error: BaseException) -> BaseException:
        """Report `error` to the disk's owner and return it, as a StorageError if the system raised it."""
        self._core.health.notice(error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            return StorageError.from_os(error, "sync the partition directory", path=self._core.path)
        return error

    def split_overflowed(self, segment: LogSegment) -> list[LogSegment]:
        """Return synced replacements for a segment with offsets too far from its base (LOG-78, CLN-26).

        Its aborted transactions stay aborted, and the new segments have its time. CorruptRecord if a batch fits no
        segment, or all of them fit this one; StorageError.
        """
        core = self._core
        aborted = segment.txn_index.entries()
        parts = write_parts(segment, core.path, core.config, core.fs, core.clock, aborted)
        if len(parts) == 1 and parts[0].base_offset == segment.base_offset:  # else it would be split again and again
            self.drop_unused(parts)
            raise CorruptRecord(
                "cannot split the segment: its offsets fit it, but reach past the base of the next one",
                path=segment.path,
                offset=segment.base_offset,
                hint=HINT,
            )
        return parts

    def drop_unused(self, segments: Sequence[LogSegment]) -> None:
        """Delete the files of segments that did not join the log; the next clean removes any that remain."""
        for segment in segments:
            if self._core.state.segments.get(segment.base_offset) is segment:
                continue
            with suppress(KafkalogError):
                segment.delete_if_exists()  # which closes them first
