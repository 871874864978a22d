"""The leader epochs of a log, each with the offset at which it began, and their file (format.md section 8)."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.util.checkpoint import CheckpointFile, whole_number
from kafkalog.util.fileio import OS, FileSystem


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written under it."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log, rising in epoch and in offset; kept in `leader-epoch-checkpoint`.

    The memory is the truth: the file follows when `write_if_changed` is called, outside the log's lock, since it
    syncs (KAFKA-15046, KAFKA-16541). Threads: changes belong to the owner's lock, reads may run beside them.
    """

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self._file = CheckpointFile(
            os.path.join(os.fspath(directory), LEADER_EPOCH_CHECKPOINT), _parse, _format, fs=fs, may_be_unsynced=True
        )
        self._entries: tuple[EpochEntry, ...] = ()
        self._written: tuple[EpochEntry, ...] = ()  # guarded by self._writing
        self._writing = threading.Lock()
        self.is_synced = True
        """False while the file may be empty after a power loss: it was written without a sync."""

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> LeaderEpochCache:
        """The cache with what the file says; the file is made, empty, where it is missing (LOG-1).

        CorruptCheckpoint for a malformed file, StorageError from the system.
        """
        cache = cls(directory, fs=fs)
        return cache._loaded(cache._file.read_or_create())

    @classmethod
    def read(cls, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> LeaderEpochCache:
        """The same for a directory that is another's: nothing is made, a missing file has no epochs."""
        cache = cls(directory, fs=fs)
        return cache._loaded(cache._file.read())

    @classmethod
    def begin(cls, directory: str | os.PathLike[str], epoch: int, *, fs: FileSystem = OS) -> LeaderEpochCache:
        """Make the file of a new log, whose first epoch begins at offset 0; `sync` puts it on disk. StorageError."""
        cache = cls(directory, fs=fs)
        cache.assign(epoch, 0)
        cache._file.create(cache._entries)
        cache._written, cache.is_synced = cache._entries, False
        return cache

    def _loaded(self, entries: Iterable[EpochEntry]) -> LeaderEpochCache:
        self.extend(entries)
        self._written = self._entries
        return self

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs, oldest first."""
        return self._entries

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 where there is none."""
        entries = self._entries
        return entries[-1].epoch if entries else -1

    @property
    def has_changed(self) -> bool:
        """True when the file does not say yet what the memory says."""
        return self._entries is not self._written

    def assign(self, epoch: int, start_offset: int) -> bool:
        """True when `epoch` was new and now begins at `start_offset`; entries that contradict it go.

        IllegalArgument for a negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise IllegalArgument(f"no epoch {epoch} begins at offset {start_offset}", offset=start_offset)
        before = self._entries
        self.extend((EpochEntry(epoch, start_offset),))
        return self._entries is not before

    def extend(self, entries: Iterable[EpochEntry]) -> None:
        """Assign epochs one after the other; there may be as many as batches."""
        kept = list(self._entries)
        for entry in entries:
            _put(kept, entry)
        self._keep(tuple(kept))

    def epoch_for(self, offset: int) -> int:
        """The epoch under which `offset` was written, -1 where none is known."""
        entries = self._entries
        at = bisect_right([entry.start_offset for entry in entries], offset)
        return entries[at - 1].epoch if at else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """(epoch, end offset) of the newest epoch not above the one asked about (EPOCH-3); (-1, -1): not known.

        Below the first epoch it is the one asked about, with the first one's start.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return EpochEntry(-1, -1)
        if epoch == entries[-1].epoch:
            return EpochEntry(epoch, log_end_offset)
        at = bisect_right([entry.epoch for entry in entries], epoch)
        return EpochEntry(entries[at - 1].epoch if at else epoch, entries[at].start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after `end_offset` (LOG-52); a negative one forgets nothing (EPOCH-5)."""
        if end_offset < 0:
            return
        self._keep(tuple(entry for entry in self._entries if entry.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended by `start_offset`; the one that covers it begins there now."""
        entries = self._entries
        at = bisect_right([entry.start_offset for entry in entries], start_offset)
        if at:
            self._keep((EpochEntry(entries[at - 1].epoch, start_offset), *entries[at:]))

    def clear(self) -> None:
        """Forget all epochs."""
        self._keep(())

    def _keep(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self._entries:
            self._entries = entries

    def relocate(self, directory: str) -> None:
        """Know that the partition directory has another name."""
        with self._writing:
            self._file.path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)

    def write_if_changed(self) -> None:
        """Return when the file says what the memory says, on disk. StorageError leaves the old file."""
        with self._writing:
            entries = self._entries
            if entries is not self._written:
                self._file.write(entries)
                self._written = entries
                self.is_synced = True

    def sync(self) -> None:
        """Return when the file is on disk as it is. StorageError."""
        with self._writing:
            if not self.is_synced:
                self._file.sync()
                self.is_synced = True


def read_epochs(directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> tuple[EpochEntry, ...]:
    """What the checkpoint of a partition directory says, oldest first; nothing is made where it is missing.

    Entries that contradict a later one are left out, as at loading. CorruptCheckpoint, StorageError.
    """
    return LeaderEpochCache.read(directory, fs=fs).entries


def _put(entries: list[EpochEntry], entry: EpochEntry) -> None:
    """Puts an entry behind rising ones, in place of those it contradicts; not where the last one says it already."""
    if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
        return
    while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
        entries.pop()
    entries.append(entry)


def _parse(fields: list[str]) -> EpochEntry:
    if len(fields) != 2:
        raise ValueError(f"{len(fields)} fields instead of <epoch> <start offset>")
    entry = EpochEntry(whole_number(fields[0]), whole_number(fields[1]))
    if entry.epoch < 0 or entry.start_offset < 0:
        raise ValueError("a negative number")
    return entry


def _format(entry: EpochEntry) -> str:
    return f"{entry.epoch} {entry.start_offset}"
