"""The leader epochs of a log, each with its start offset, and their file (format.md section 8)."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.util.checkpoint import CheckpointFile, whole_number
from kafkalog.util.fileio import OS, FileSystem

_HINT: Final = (
    "run `kafkalog repair --checkpoints --apply`, which keeps the readable lines and adds the epochs of the batches"
)


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written under it."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log, rising in epoch and offset, stored in `leader-epoch-checkpoint`.

    The memory is authoritative. `write_if_changed` updates the file, outside the log's lock, since it syncs
    (KAFKA-15046, KAFKA-16541). Threads: changes need the owner's lock; reads may run in parallel.
    """

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self._file = CheckpointFile(
            os.path.join(os.fspath(directory), LEADER_EPOCH_CHECKPOINT), _parse, _format, fs=fs, may_be_unsynced=True,
            hint=_HINT,
        )  # fmt: skip
        self.entries: tuple[EpochEntry, ...] = ()
        """Epochs, oldest first."""
        self._changes = 0
        self._written = 0  # the number of changes that the file has; guarded by self._writing
        self._is_contradictory = False  # the file has entries that loading dropped
        self._writing = threading.Lock()
        self.is_synced = True
        """False while the file may be empty after a power loss, because it was written without a sync."""

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> LeaderEpochCache:
        """Load the cache from its file; create an empty file if it is missing (LOG-1).

        CorruptCheckpoint for a malformed file, StorageError from the system.
        """
        cache = cls(directory, fs=fs)
        return cache._loaded(cache._file.read_or_create())

    @classmethod
    def read(cls, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> LeaderEpochCache:
        """Load the cache for a directory owned by another process: create nothing; a missing file has no epochs."""
        cache = cls(directory, fs=fs)
        return cache._loaded(cache._file.read())

    @classmethod
    def begin(cls, directory: str | os.PathLike[str], epoch: int, *, fs: FileSystem = OS) -> LeaderEpochCache:
        """Create the file of a new log, whose first epoch begins at offset 0; `sync` puts it on disk. StorageError."""
        cache = cls(directory, fs=fs)
        cache.assign(epoch, 0)
        cache._file.create(cache.entries)
        cache._written, cache.is_synced = cache._changes, False
        return cache

    def _loaded(self, entries: Iterable[EpochEntry]) -> LeaderEpochCache:
        given = tuple(entries)
        self.extend(given)
        self._written = self._changes
        self._is_contradictory = self.entries != given
        return self

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._file.path

    @property
    def latest_epoch(self) -> int:
        """Newest epoch, -1 if there is none."""
        entries = self.entries
        return entries[-1].epoch if entries else -1

    @property
    def has_changed(self) -> bool:
        """True if the memory has changes that the file lacks."""
        return self._changes != self._written

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin `epoch` at `start_offset` and drop contradicting entries; return True if anything changed.

        IllegalArgument for a negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise IllegalArgument(f"epoch {epoch} cannot begin at offset {start_offset}", offset=start_offset)
        before = self.entries
        self.extend((EpochEntry(epoch, start_offset),))
        return self.entries is not before

    def extend(self, entries: Iterable[EpochEntry]) -> None:
        """Assign epochs in order; there may be as many as batches."""
        kept = list(self.entries)
        for entry in entries:
            _put(kept, entry)
        self._keep(tuple(kept))

    def epoch_for(self, offset: int) -> int:
        """Return the epoch under which `offset` was written, -1 if unknown."""
        entries = self.entries
        at = bisect_right([entry.start_offset for entry in entries], offset)
        return entries[at - 1].epoch if at else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """Return (epoch, end offset) of the newest epoch up to `epoch` (EPOCH-3); (-1, -1) if unknown.

        Below the first epoch, return `epoch` itself with the first one's start.
        """
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return EpochEntry(-1, -1)
        if epoch == entries[-1].epoch:
            return EpochEntry(epoch, log_end_offset)
        at = bisect_right([entry.epoch for entry in entries], epoch)
        return EpochEntry(entries[at - 1].epoch if at else epoch, entries[at].start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after `end_offset` (LOG-52); a negative one removes nothing (EPOCH-5)."""
        if end_offset < 0:
            return
        self._keep(tuple(entry for entry in self.entries if entry.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended by `start_offset`; the one that covers it begins there now.

        Where one covers it, a file whose entries contradicted each other is written again (EPOCH-6).
        """
        entries = self.entries
        at = bisect_right([entry.start_offset for entry in entries], start_offset)
        if at:
            self._keep((EpochEntry(entries[at - 1].epoch, start_offset), *entries[at:]))
            if self._is_contradictory:
                self._changes += 1

    def clear(self) -> None:
        """Remove all epochs; the file is written also if there were none, as the reference does."""
        self._keep(())
        self._changes += 1

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Return to earlier `entries`, since the batches that began or removed others were not written."""
        self._keep(entries)

    def _keep(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self.entries:
            self.entries = entries
            self._changes += 1

    def relocate(self, directory: str) -> None:
        """Set the new name of the partition directory."""
        with self._writing:
            self._file.path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)

    def create_file(self) -> None:
        """Create the file, empty, unless it exists (LOG-1). StorageError."""
        self._file.create_if_missing()

    def write_if_changed(self) -> None:
        """Write and sync the file if the epochs have changed. A StorageError leaves the old file."""
        with self._writing:
            changes = self._changes  # read first: a change in between is written again
            if changes != self._written:
                self._file.write(self.entries)
                self._written = changes
                self.is_synced, self._is_contradictory = True, False

    def sync(self) -> None:
        """Sync the file's current content to disk. StorageError."""
        with self._writing:
            if not self.is_synced:
                self._file.sync()
                self.is_synced = True


def read_epochs(directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> tuple[EpochEntry, ...]:
    """Return the epochs in the checkpoint of a partition directory, oldest first; create nothing if it is missing.

    Entries that contradict a later one are dropped, as at loading. CorruptCheckpoint, StorageError.
    """
    return LeaderEpochCache.read(directory, fs=fs).entries


def _put(entries: list[EpochEntry], entry: EpochEntry) -> None:
    """Append an entry to rising ones, replacing those it contradicts; do nothing if the last one implies it."""
    if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
        return
    while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
        entries.pop()
    entries.append(entry)


def _parse(fields: list[str]) -> EpochEntry:
    if len(fields) != 2:
        raise ValueError(f"{len(fields)} fields instead of <epoch> <start offset>")
    entry = EpochEntry(whole_number(fields[0], 2**31), whole_number(fields[1]))
    if entry.epoch < 0 or entry.start_offset < 0:
        raise ValueError("a negative number")
    return entry


def _format(entry: EpochEntry) -> str:
    return f"{entry.epoch} {entry.start_offset}"
