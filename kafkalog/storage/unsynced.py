"""What changes of a log leave for its next flush besides the records: directory entries and sealed segments."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.storage.segment import LogSegment


class Taken(NamedTuple):
    """What a flush is about to sync; `entries` is True where the directory is to be synced as well."""

    changes: int
    entries: bool
    segments: tuple[LogSegment, ...]


class Unsynced:
    """Noted by those who change files, taken by a flush, and crossed out when the flush succeeded.

    The directory's entries count as changed at first. Threads: belongs to the log's lock.
    """

    __slots__ = ("_changes", "_segments", "_synced")

    def __init__(self) -> None:
        self._changes = 1  # of directory entries
        self._synced = 0  # so many of them are on disk
        self._segments: list[LogSegment] = []

    def entries_changed(self) -> None:
        """A file was made, renamed or removed."""
        self._changes += 1

    def sealed(self, segment: LogSegment) -> None:
        """A segment below the recovery point was rolled: its indexes were trimmed, and got their last entry."""
        self._segments.append(segment)

    def taken(self) -> Taken:
        """All there is to sync now; it stays noted until `synced`."""
        return Taken(self._changes, self._changes > self._synced, tuple(self._segments))

    def synced(self, taken: Taken) -> None:
        """What was taken is on disk."""
        self.entries_synced(taken)
        self._segments = [segment for segment in self._segments if segment not in taken.segments]

    def entries_synced(self, taken: Taken) -> None:
        """The directory was synced, after what was taken had been noted."""
        self._synced = max(self._synced, taken.changes)
