"""Changes other than records that the next flush must sync: directory entries and sealed segments."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.storage.segment import LogSegment


class PendingSync(NamedTuple):
    """Changes that a flush is about to sync; `entries` is True if the directory must be synced as well."""

    changes: int
    entries: bool
    segments: tuple[LogSegment, ...]


class Unsynced:
    """Pending changes: recorded by writers, taken by a flush, and cleared when it has succeeded.

    The directory's entries count as changed at first. Threads: guarded by the log's lock.
    """

    __slots__ = ("_changes", "_segments", "_synced")

    def __init__(self) -> None:
        self._changes = 1  # of directory entries
        self._synced = 0  # number of them that are on disk
        self._segments: list[LogSegment] = []

    def entries_changed(self) -> None:
        """Record that a file was created, renamed or removed."""
        self._changes += 1

    def sealed(self, segment: LogSegment) -> None:
        """Record that a segment below the recovery point was rolled, which changed its indexes."""
        self._segments.append(segment)

    def pending_sync(self) -> PendingSync:
        """Return all pending changes; they stay pending until `synced`."""
        return PendingSync(self._changes, self._changes > self._synced, tuple(self._segments))

    def synced(self, pending: PendingSync) -> None:
        """Clear changes that are now on disk."""
        self.entries_synced(pending)
        self._segments = [segment for segment in self._segments if segment not in pending.segments]

    def entries_synced(self, pending: PendingSync) -> None:
        """Clear directory changes that were pending before the directory was synced."""
        self._synced = max(self._synced, pending.changes)
