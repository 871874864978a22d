"""One partition, copied while its owner may be appending, rolling, compacting, deleting and truncating.

The copy is a state that the log had if, at the end, every segment is still the file that was copied. Exceptions are
segments that retention removed from the front, and later appends. Otherwise the partition is examined again, and only
changed files are copied again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kafkalog.backup.cut import Cut, cut_segment, index_cut, is_unchanged, read_whole
from kafkalog.backup.in_progress import BackupInProgress, Changed, open_listed
from kafkalog.backup.listing import Listing, list_partition, names_of, status_of
from kafkalog.backup.log_ends import Ending
from kafkalog.errors import CorruptCheckpoint, CorruptSnapshot, StorageError
from kafkalog.storage.leader_epoch import read_epochs
from kafkalog.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_DIRECTORY,
    base_name,
    parse_base_offset,
)
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.storage.readonly.end import SegmentEnd, empty_end, find_end
from kafkalog.util.checkpoint import MAX_FILE_BYTES
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import File, FileSystem

MAX_TRIES: Final = 40
"""Maximum number of attempts to find a partition unchanged for long enough."""
PATIENT_TRIES: Final = 4
"""Number of those attempts that wait for repairs that an owner may be about to make."""
PAUSE_MS: Final = 10
_MAX_NOTES: Final = 20
_Status = tuple[int, int, int]


class Copied(NamedTuple):
    """A partition in the backup: its first segment's base offset, its end, number of segments and their bytes.

    `notes` lists irregularities.
    """

    first_offset: int
    end: SegmentEnd
    segments: int
    size: int
    notes: tuple[str, ...]


class PartitionCopy:
    """The partition directory `path`, being copied into the backup's directory `name`.

    `copy_whole_segments` does most of the work without guarantees; `finish` makes it a state that the log had. While
    `is_closed` returns True (no writer, after a clean close), files are taken as they are. Threads: one at a time.
    """

    def __init__(
        self,
        backup: BackupInProgress,
        path: str,
        name: str,
        *,
        is_closed: Callable[[], bool],
        fs: FileSystem,
        clock: Clock,
    ) -> None:
        self.path = path
        self.name = name
        self._backup = backup
        self._is_closed = is_closed
        self._fs = fs
        self._clock = clock
        self._copied_status: dict[str, _Status] = {}  # status of whole segments' files when they were copied
        self._other_files: set[str] = set()
        self._notes: list[str] = []
        self._ending: Ending | None = None
        backup.begin_directory(name)

    def copy_whole_segments(self) -> None:
        """Copy the segments that are no longer appended to, skipping those that change.

        PartitionNotFound, StorageError.
        """
        listing = list_partition(self.path, self._fs)
        for base in listing.segments[:-1]:
            try:
                self._copy_segment(base, listing)
            except Changed:
                continue

    def finish(self, ending: Ending | None = None) -> Copied:
        """Complete the copy so that it is a state of the log. PartitionNotFound if the log is gone; StorageError.

        That state ends at `ending`, unless its owner has replaced that file since.
        """
        self._ending = ending
        for attempt in range(MAX_TRIES):
            self._notes = []
            try:
                return self._try_finish(attempt < PATIENT_TRIES)
            except Changed:
                self._clock.sleep(PAUSE_MS * min(attempt + 1, 10))
        raise StorageError(
            "the partition's files keep changing while they are copied",
            path=self.path,
            hint="try again when its owner compacts and deletes less",
        )

    def _try_finish(self, patient: bool) -> Copied:
        is_closed = self._is_closed()
        listing = list_partition(self.path, self._fs)
        if listing.swaps and patient:
            raise Changed
        listing, limit = self._cut_listing(listing)
        whole = listing.segments if is_closed else listing.segments[:-1]
        self._drop(name for name in [*self._copied_status] if parse_base_offset(name) not in whole)
        for base in whole:
            self._copy_segment(base, listing)
        if not listing.segments:
            return self._without_segments(listing, patient)
        with open_listed(self._fs, os.path.join(self.path, base_name(listing.segments[-1]) + LOG_SUFFIX)) as file:
            cut = self._cut(file, listing, limit, is_closed, patient)
            self._copy_others(listing, cut.end, patient)
            first = self._check_same(listing, cut)
        self._drop(name for name in [*self._copied_status] if (parse_base_offset(name) or 0) < first)
        last = [] if is_closed else names_of(listing.segments[-1])
        self._backup.keep_only(self.name, {*self._copied_status, *self._other_files, *last})
        segments = [base for base in listing.segments if base >= first]
        logs = [f"{self.name}/{base_name(base)}{LOG_SUFFIX}" for base in segments]
        size = sum(self._backup.size_of(name) for name in logs)
        return Copied(first, cut.end, len(segments), size, tuple(self._notes))

    def _without_segments(self, listing: Listing, patient: bool) -> Copied:
        """Copy a directory that has just been created, or holds only leftovers."""
        self._copy_others(listing, empty_end(0), patient)
        self._backup.keep_only(self.name, self._other_files)
        if list_partition(self.path, self._fs).segments:
            raise Changed
        return Copied(0, empty_end(0), 0, 0, tuple(self._notes))

    # Segments

    def _copy_segment(self, base: int, listing: Listing) -> None:
        for name in listing.files_of(base):
            path = os.path.join(self.path, name)
            status = status_of(path, self._fs)
            if status is None or status.st_ino != listing.inodes[name]:
                raise Changed
            seen = _copied_status(status)
            if self._copied_status.get(name) != seen:
                self._drop([name])
                self._backup.store(path, f"{self.name}/{name}")
                self._copied_status[name] = seen

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._backup.drop(f"{self.name}/{name}")
            self._copied_status.pop(name, None)


    def _cut_listing(self, listing: Listing) -> tuple[Listing, int | None]:
        """Return the listing without segments after the requested end, and the bytes to copy of the last one."""
        ending = self._ending
        if ending is None or listing.inodes.get(base_name(ending.base_offset) + LOG_SUFFIX) != ending.inode:
            return listing, None
        segments = tuple(base for base in listing.segments if base <= ending.base_offset)
        return listing._replace(segments=segments), ending.size

    def _cut(self, file: File, listing: Listing, limit: int | None, is_closed: bool, patient: bool) -> Cut:
        """Finish the copy of the last segment: whole without a writer, else up to its last complete batch."""
        base = listing.segments[-1]
        if is_closed:
            end = find_end(file, base, empty_end(base), file.size())
            problem = end.damage or end.problem
            if problem is not None:
                self._notes.append(f"{file.path}: {problem.message} at position {problem.position}; copied unchanged")
            return Cut(base, file, file.stat().st_ino, end, None)
        cut = cut_segment(self._backup, file, self.name, base, limit, patient=patient)
        if cut.note is not None:
            self._notes.append(cut.note)
        index_cut(self._backup, self.path, self.name, cut, listing.files_of(base), self._fs)
        return cut

    def _check_same(self, listing: Listing, cut: Cut) -> int:
        """Return the first offset of the present segments if they are those copied; else raise Changed."""
        after = list_partition(self.path, self._fs)
        if not after.segments or after.swaps != listing.swaps:
            raise Changed
        first = after.segments[0]
        if first > cut.base_offset or (first != listing.segments[0] and self._is_metadata):
            raise Changed
        if [base for base in after.segments if base <= cut.base_offset] != [b for b in listing.segments if b >= first]:
            raise Changed
        if after.inodes.get(base_name(cut.base_offset) + LOG_SUFFIX) != cut.inode or not is_unchanged(cut):
            raise Changed
        for name, seen in self._copied_status.items():
            if (parse_base_offset(name) or 0) >= first:
                status = status_of(os.path.join(self.path, name), self._fs)
                if status is None or _copied_status(status) != seen:
                    raise Changed
        return first

    @property
    def _is_metadata(self) -> bool:
        """True for a controller's log, whose deleted segments are covered by a snapshot that the copy lacks."""
        return os.path.basename(self.path) == METADATA_DIRECTORY

    # Other files
    def _copy_others(self, listing: Listing, end: SegmentEnd, patient: bool) -> None:
        snapshots = {name for offset, name in listing.snapshots.items() if offset <= end.next_offset}
        wanted = {*snapshots, *listing.small, *listing.swaps}
        for name in self._other_files - wanted:
            self._backup.drop(f"{self.name}/{name}")
        self._other_files = wanted
        for name in sorted(wanted - {LEADER_EPOCH_CHECKPOINT}):
            self._backup.store(os.path.join(self.path, name), f"{self.name}/{name}")
            if name in snapshots:
                self._check_snapshot(name, patient)
        if LEADER_EPOCH_CHECKPOINT in wanted:
            self._copy_epochs(end)
        for name in listing.unknown[:_MAX_NOTES]:
            self._notes.append(f"{os.path.join(self.path, name)}: skipped, not one of Kafka's files")

    def _check_snapshot(self, name: str, patient: bool) -> None:
        """Check that a snapshot is complete: a broker writes it in place."""
        try:
            read_snapshot(self._backup.path_of(f"{self.name}/{name}"), fs=self._fs)
        except CorruptSnapshot as error:
            if patient and not self._is_closed():
                raise Changed from None
            self._notes.append(f"{os.path.join(self.path, name)}: {error.message}; copied unchanged")

    def _copy_epochs(self, end: SegmentEnd) -> None:
        """Copy the leader epochs that begin up to the end of the copied data."""
        name = f"{self.name}/{LEADER_EPOCH_CHECKPOINT}"
        path = os.path.join(self.path, LEADER_EPOCH_CHECKPOINT)
        content, status = read_whole(path, self._fs, MAX_FILE_BYTES)
        self._backup.put(name, content, status)
        try:
            entries = read_epochs(self._backup.path_of(self.name), fs=self._fs)
        except CorruptCheckpoint as error:
            self._notes.append(f"{path}: {error.message}; copied unchanged")
            return
        kept = [entry for entry in entries if entry.start_offset <= end.next_offset]
        if len(kept) < len(entries):
            lines = ["0", str(len(kept)), *(f"{entry.epoch} {entry.start_offset}" for entry in kept)]
            self._backup.put(name, "".join(f"{line}\n" for line in lines).encode(), status)


def _copied_status(status: os.stat_result) -> _Status:
    return status.st_ino, status.st_size, status.st_mtime_ns
