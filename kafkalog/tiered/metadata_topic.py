"""`__remote_log_metadata` in data directories, read up to its end and followed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.errors import InvalidRecord, UnknownTopicOrPartition
from kafkalog.reading.chunks import records
from kafkalog.records.internal import MetadataRecord, metadata_record
from kafkalog.records.schemas.remote_log import RECORDS
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.tiered.segment_metadata import PARTITION_DELETE, SEGMENT, UPDATE, Copies, RemoteLog
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

TOPIC: Final = "__remote_log_metadata"
_HINT: Final = "the metadata topic is damaged: restore its directory from another broker's copy"


class EventPlace(NamedTuple):
    """The partition of the metadata topic with a partition's events; `is_whole` if none of its events was deleted."""

    number: int
    is_whole: bool


class MetadataTopic:
    """Tiered segments of all partitions, by the metadata topic's partitions in data directories.

    A partition that is in several directories, replicas of several brokers, is read from the longest one. Threads:
    safe.
    """

    def __init__(self, fs: FileSystem, directories: Iterable[str]) -> None:
        self._fs = fs
        self._directories = tuple(directories)
        self._lock = threading.Lock()
        self._views: dict[int, LogView] = {}  # guarded by self._lock
        self._read: dict[int, int] = {}  # offsets to continue at; guarded by self._lock
        self._logs: dict[TieredPartition, RemoteLog] = {}  # guarded by self._lock
        self._numbers: dict[TieredPartition, int] = {}  # guarded by self._lock

    def copies(self, partition: TieredPartition) -> Copies:
        """Return the copies of a partition's segments, after reading what is new.

        Raises InvalidRecord for events that cannot be decoded, and as a read of the topic's logs does.
        """
        with self._lock:
            self._follow_locked()
            return self._logs.get(partition, RemoteLog()).copies()

    def place_of(self, partition: TieredPartition) -> EventPlace | None:
        """Return where the events of a partition are, as `copies` found them; None if there are none."""
        with self._lock:
            number = self._numbers.get(partition)
            return None if number is None else EventPlace(number, self._views[number].log_start_offset == 0)

    def _follow_locked(self) -> None:
        if not self._views:
            self._views = self._opened()
        for view in self._views.values():
            view.refresh()
        if any(self._read.get(number, 0) > view.log_end_offset for number, view in self._views.items()):
            self._read.clear()  # a log was truncated: what it said is read again
            self._logs.clear()
        for number, view in self._views.items():
            start, end = max(self._read.get(number, 0), view.log_start_offset), view.log_end_offset
            if start < end:
                self._apply_locked(number, view, start, end)
                self._read[number] = end

    def _apply_locked(self, number: int, view: LogView, start: int, end: int) -> None:
        for record in records(view, start, end):
            try:
                event = metadata_record(record.value or b"", RECORDS)
                partition = _partition_of(event)
                self._logs.setdefault(partition, RemoteLog()).apply(event)
                self._numbers[partition] = number
            except InvalidRecord as error:
                raise InvalidRecord(
                    f"an event of {TOPIC} cannot be used: {error.message}", path=view.path, offset=record.offset,
                    hint=_HINT,
                ) from error  # fmt: skip

    def _opened(self) -> dict[int, LogView]:
        found: dict[int, LogView] = {}
        for directory in self._directories:
            with os_errors("list a directory of tiered metadata", directory):
                names = self._fs.names(directory)
            for name in names:
                number = name.removeprefix(f"{TOPIC}-")
                if name.startswith(f"{TOPIC}-") and number.isdecimal() and len(number) <= 10:
                    self._add_longest(found, int(number), os.path.join(directory, name))
        if not found:
            raise UnknownTopicOrPartition(
                f"no data directory has {TOPIC}, which says which copies of segments count",
                path=os.pathsep.join(self._directories),
                hint="name the brokers' data directories that have it under `metadata` in the description of the store",
            )
        return found

    def _add_longest(self, found: dict[int, LogView], number: int, path: str) -> None:
        view = LogView(path, fs=self._fs)
        other = found.get(number)
        if other is not None and other.log_end_offset >= view.log_end_offset:
            view.close()
            return
        if other is not None:
            other.close()
        found[number] = view

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for view in self._views.values():
                view.close()


def _partition_of(event: MetadataRecord) -> TieredPartition:
    if event.type in (SEGMENT, UPDATE):
        named = event.data["remoteLogSegmentId"]["topicIdPartition"]
    elif event.type == PARTITION_DELETE:
        named = event.data["topicIdPartition"]
    else:
        raise InvalidRecord(f"a {event.name} is no event of the topic")
    return TieredPartition(named["name"], named["partition"], named["id"])

