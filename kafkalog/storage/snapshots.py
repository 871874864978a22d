"""The `.snapshot` files of a partition directory: listing, reading and removal (format.md section 7)."""

from __future__ import annotations

import logging
import os
from bisect import insort
from collections.abc import Collection, Iterable
from errno import ENOENT
from typing import Final

from kafkalog.errors import CorruptSnapshot, StorageError
from kafkalog.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, parse_base_offset, snapshot_file_name
from kafkalog.storage.producer_snapshot import ProducerEntry, format_snapshot, read_snapshot
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)


class Snapshots:
    """The snapshot files of one directory by offset; each holds the producers' state before its offset.

    Errors of the system are StorageError. Threads: guarded by the log's lock.
    """

    __slots__ = ("_offsets", "_writes", "directory", "fs", "unsynced")

    def __init__(self, directory: str, *, fs: FileSystem = OS, names: Iterable[str] | None = None) -> None:
        self.directory = directory
        self.fs = fs
        self.unsynced: tuple[tuple[int, str], ...] = ()
        """(number of the write, path) of each snapshot that was written but not synced."""
        self._writes = 0
        self._offsets: list[int] = []
        self.refresh(names)

    def refresh(self, names: Iterable[str] | None = None) -> None:
        """List the directory again; `names` is a recent listing."""
        if names is None:
            with os_errors("list the snapshots", self.directory):
                names = self.fs.listdir(self.directory)
        found = (parse_base_offset(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self._offsets = sorted(offset for offset in found if offset is not None)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets that have a snapshot, rising."""
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        """Highest offset that has a snapshot."""
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: int) -> str:
        """Return the path of a snapshot."""
        return os.path.join(self.directory, snapshot_file_name(offset))

    def write(self, offset: int, entries: Iterable[tuple[int, ...]], *, sync: bool = True) -> None:
        """Write the snapshot of `offset` atomically; an existing one is replaced."""
        path = self.path(offset)
        with os_errors("write the producer snapshot", path):
            atomic_write(self.fs, path, format_snapshot(entries), sync=sync)
        if not sync:
            self._writes += 1
            self.unsynced = (*self.unsynced, (self._writes, path))
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def read_latest(self) -> tuple[int, list[ProducerEntry]] | None:
        """Return (offset, entries) of the newest sound snapshot; remove damaged ones (PSM-19)."""
        while self._offsets:
            offset = self._offsets[-1]
            try:
                return offset, read_snapshot(self.path(offset), fs=self.fs)
            except CorruptSnapshot as error:
                _LOG.warning("%s: removed, using an older one", error)
                self.remove(offset)
            except StorageError as error:
                if error.errno != ENOENT:
                    raise
                self._offsets.remove(offset)
        return None

    def _forget_unsynced(self, offset: int) -> str:
        """Return the path of a snapshot to be removed, and cancel its sync."""
        path = self.path(offset)
        self.unsynced = tuple(one for one in self.unsynced if one[1] != path)
        return path

    def remove(self, offset: int) -> None:
        """Remove the snapshot of `offset`; a missing one is ignored."""
        path = self._forget_unsynced(offset)
        with os_errors("delete the producer snapshot", path):
            self.fs.unlink_if_exists(path)
        if offset in self._offsets:
            self._offsets.remove(offset)

    def remove_damaged(self, lowest: int) -> None:
        """Remove damaged snapshots from `lowest` on: a crash may leave them, since a flush syncs them."""
        self.refresh()
        for offset in [o for o in self._offsets if o >= lowest]:
            try:
                read_snapshot(self.path(offset), fs=self.fs)
            except CorruptSnapshot as error:
                _LOG.warning("%s: removed", error)
                self.remove(offset)

    def remove_below(self, offset: int) -> None:
        """Remove the snapshots below `offset`, but not its own (PSM-22)."""
        for old in [o for o in self._offsets if o < offset]:
            self.remove(old)

    def remove_outside(self, above: int, upto: int) -> None:
        """Keep only the snapshots in (above, upto] (PSM-20)."""
        for old in [o for o in self._offsets if not above < o <= upto]:
            self.remove(old)

    def remove_strays(self, segment_bases: Collection[int]) -> None:
        """Keep the snapshots of segments, and the largest other one unless it is below the last segment (PSM-23)."""
        strays = [offset for offset in self._offsets if offset not in segment_bases]
        if strays and (not segment_bases or strays[-1] >= max(segment_bases)):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot of `offset` for its delayed delete and return its path; None if there is none."""
        if offset not in self._offsets:
            return None
        path = self._forget_unsynced(offset)
        self._offsets.remove(offset)
        try:
            self.fs.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        except OSError as error:
            insort(self._offsets, offset)
            raise StorageError.from_os(error, "rename the producer snapshot", path=path) from error
        return path + DELETED_SUFFIX

    def __repr__(self) -> str:
        return f"<Snapshots {self._offsets} of {self.directory}>"
