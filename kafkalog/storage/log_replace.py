"""The part of a log that puts rewritten segments in the place of the ones they were made from (LOG-78, LOG-79)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from kafkalog.errors import CleaningAborted, CorruptRecord, IllegalState, KafkalogError, StorageError
from kafkalog.storage.leftovers import remove_file
from kafkalog.storage.log_owner import LogOwner
from kafkalog.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX
from kafkalog.storage.replace import give_place, make_swaps
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.split import HINT, share_out
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts

NO_END: Final = 1 << 64


class LogReplacer(LogOwner):
    """Replacing segments while appends and reads go on; rules as for `LogBase`."""

    __slots__ = ()

    @property
    def fs(self) -> FileSystem:
        """The file layer."""
        return self._fs

    @contextmanager
    def being_cleaned(self) -> Iterator[int]:
        """Nobody else cleans the log meanwhile, and what an earlier clean left is removed; gives `cuts`.

        IllegalState where it is being cleaned already; StorageError, LogClosed.
        """
        mine = False
        try:
            with self._lock:
                self._ready_locked()
                if self._is_being_cleaned:
                    raise IllegalState(f"log {self.name} is being cleaned already", path=self.path)
                cuts = self._cuts
                self._is_being_cleaned = mine = True  # at once: a Ctrl-C comes between no two assignments
            self._remove_cleaned_files()
            yield cuts
        finally:
            if mine:
                self._is_being_cleaned = False

    def _remove_cleaned_files(self) -> None:
        try:
            names = self._fs.names(self.path)
        except OSError as error:
            raise StorageError.from_os(error, "list the partition directory", path=self.path) from error
        for name in names:
            if name.endswith(CLEANED_SUFFIX):
                remove_file(self.path, name, self._fs)

    def new_cleaned_segment(self, base_offset: int) -> LogSegment:
        """An empty segment of `.cleaned` files, ready for appends: no part of the log before `replace_segments`."""
        segment = LogSegment.open(
            self.path, base_offset, self._config, fs=self._fs, clock=self._clock, suffix=CLEANED_SUFFIX
        )
        segment.begin()
        return segment

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment], cuts: int) -> None:
        """Put `new`, `.cleaned` files that are on disk, in the place of `old`, whose records they hold (LOG-79).

        Readers that hold an old segment go on with it; its files go as those of a deleted segment do. A crash at any
        moment comes back to the old segments or to the new ones. `cuts` is what it was when the first byte of `old`
        was read. CleaningAborted where the log was cut, or lost one of them, since; CorruptRecord where a new one does
        not begin between the old ones and the next one: then nothing has changed. So it is after an error before the
        new files count; after a later one the log takes no more writes, and has the new segments.
        """
        try:
            with self._lock:
                self._ready_locked()
                self._check_replaced_locked(old, cuts)
                self._check_places_locked(new, old)
                with deferred_interrupts():
                    self._replace_locked(tuple(new), tuple(old))
        finally:
            self._do_chores()

    def check_unchanged(self, segments: Sequence[LogSegment], cuts: int) -> None:
        """Return while the log has these segments as it had them; CleaningAborted as for `replace_segments`."""
        with self._lock:
            self._check_replaced_locked(segments, cuts)

    def _check_replaced_locked(self, old: Sequence[LogSegment], cuts: int) -> None:
        """KAFKA-7278: retention or a truncation may have come first."""
        segments = self._state.segments
        gone = [s.base_offset for s in old if segments.get(s.base_offset) is not s or s is self._active]
        if gone or cuts != self._cuts:
            what = f"lost the segment at {gone[0]}" if gone else "was cut or renamed"
            raise CleaningAborted(
                f"log {self.name} {what} while it was being cleaned", path=self.path, hint="clean it again"
            )

    def _check_places_locked(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """CorruptRecord where new segments overlap, or lie before the old ones, or reach into the next one."""
        next_one = self._state.segments.higher(old[-1].base_offset)
        ends = [segment.base_offset for segment in new[1:]]
        least = old[0].base_offset
        for segment, end in zip(new, [*ends, next_one.base_offset if next_one is not None else NO_END], strict=True):
            base, last = segment.base_offset, max(segment.last_known_offset, segment.base_offset)
            if not least <= base <= last < end:
                raise CorruptRecord(
                    f"offsets {base} to {last} have no place between {least} and {end}",
                    path=old[0].path,
                    offset=base,
                    hint=HINT,
                )

    def _replace_locked(self, new: tuple[LogSegment, ...], old: tuple[LogSegment, ...]) -> None:
        state = self._state
        try:
            make_swaps(self.path, new, self._fs)
        except BaseException as error:
            self._take_swaps_back_locked(new)
            raise self._told(error) from error
        finally:
            self._unsynced.entries_changed()
        segments = state.segments.without(segment.base_offset for segment in old)
        for segment in new:
            segment.records.guard = self._lock  # nobody writes to it any more
            segments = segments.with_added(segment)
        if any(segment.base_offset == state.high_watermark_base for segment in old):  # its place was in there
            state = state.replace(high_watermark_base=-1, high_watermark_position=-1)
        self._state = state.replace(segments=segments)
        try:
            give_place(self.path, new, old, self._fs)
        except BaseException as error:  # what has which name by now, the next opening finds out
            self._health.poison(error)
            raise self._told(error) from error
        self._chores.append(self._sync_entries)
        self._chores.append(lambda: self._delete_later(old))
        kept = {segment.base_offset for segment in new}
        for segment in old:
            if segment.base_offset not in kept:
                self._drop_snapshot_locked(segment)

    def _take_swaps_back_locked(self, new: Sequence[LogSegment]) -> None:
        """Give `.swap` files the name of unfinished ones again.

        Where that cannot be, the log takes no more writes: the next opening would put them over what it holds then.
        """
        try:
            for segment in new:
                if segment.path.endswith(SWAP_SUFFIX):
                    segment.change_file_suffixes(SWAP_SUFFIX, CLEANED_SUFFIX)
        except BaseException as worse:
            self._health.poison(worse)

    def _told(self, error: BaseException) -> BaseException:
        """`error`, of which the owner of the disk knows: a StorageError where it is the system's."""
        self._health.notice(error)
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            return StorageError.from_os(error, "sync the partition directory", path=self.path)
        return error

    def parts_of_overflowed(self, segment: LogSegment) -> list[LogSegment]:
        """What to replace a segment with offsets too far from its base with, on disk (LOG-78, CLN-26).

        Its aborted transactions stay aborted, and its time is theirs. CorruptRecord where a batch fits no segment, or
        they all fit this one; StorageError.
        """
        aborted = segment.txn_index.entries()
        made = share_out(segment, self.path, self._config, self._fs, self._clock, aborted)
        if len(made) == 1 and made[0].base_offset == segment.base_offset:  # or it would be split again and again
            self.drop_unused(made)
            raise CorruptRecord(
                "a segment that its own offsets fit cannot be split: they reach past the next one",
                path=segment.path,
                offset=segment.base_offset,
                hint=HINT,
            )
        return made

    def drop_unused(self, segments: Sequence[LogSegment]) -> None:
        """Remove the files of segments that did not become part of the log; what stays is removed by the next clean."""
        for segment in segments:
            if self._state.segments.get(segment.base_offset) is segment:
                continue
            with suppress(KafkalogError):
                segment.delete_if_exists()  # which closes them first
