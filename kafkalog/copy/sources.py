"""Sources that are read as files: data directories, backups, and segments that a broker tiered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kafkalog.backup.manifest import MANIFEST, Offsets, read_manifest
from kafkalog.backup.store import MARKER, BackupStore
from kafkalog.copy.facts import SourcePartition, SourceTopic, Survey
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.dirs.open import open_dirs
from kafkalog.dirs.readonly import DirsView
from kafkalog.errors import IllegalArgument, UnknownTopicOrPartition
from kafkalog.reading.chunks import batch_chunks, check_transactions, visible_chunks
from kafkalog.reading.source import refreshed
from kafkalog.records.format import CONTROL_BIT, MAGIC_V2, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from kafkalog.server.groups.stored import whole_offsets
from kafkalog.storage.damage import first_offset
from kafkalog.storage.names import LOG_SUFFIX
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import is_url, locate
from kafkalog.storage.segment_reader import Chunk
from kafkalog.tiered.description import read_description
from kafkalog.tiered.open import place_view
from kafkalog.tiered.place import tiered_place
from kafkalog.tiered.segment_bytes import ObjectStore, TieredPartition
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from kafkalog.util.os_errors import os_errors
from kafkalog.util.remote_files import RemoteFileSystem, RemoteStatus


class LogFiles:
    """Source of partitions that are read by views; subclasses find them."""

    name: str

    def view(self, key: TopicPartition) -> LogView:
        """Return the open view of a partition."""
        raise NotImplementedError

    def settings_of(self, topic: str) -> tuple[str | None, Mapping[str, str] | None, Sequence[int]]:
        """Return a topic's id, settings and partition numbers; UnknownTopicOrPartition."""
        raise NotImplementedError

    async def topic(self, name: str, *, surveys: bool) -> SourceTopic:
        """Return a topic, as `Source.topic`."""
        topic_id, settings, numbers = self.settings_of(name)
        partitions = {}
        for number in numbers:
            view = self.view(TopicPartition(name, number))
            refreshed(view)
            start, stop, end = view.log_start_offset, view.last_stable_offset, view.log_end_offset
            survey = survey_of(view, start, stop) if surveys else None
            partitions[number] = SourcePartition(start, max(start, stop), end, survey)
        return SourceTopic(name, topic_id, settings, partitions)

    async def chunks(self, key: TopicPartition, start: int, stop: int, *, committed: bool) -> AsyncGenerator[Chunk]:
        """Yield batches, as `Source.chunks`."""
        for chunk in self._chunks(key, start, stop, committed):
            yield chunk
            await asyncio.sleep(0)  # a copy of files awaits nothing else: Ctrl-C takes effect here

    def _chunks(self, key: TopicPartition, start: int, stop: int, committed: bool) -> Iterator[Chunk]:
        view = self.view(key)
        found = batch_chunks(view, start, stop, sequential=True)
        for chunk in visible_chunks(view, found, True, stop, None) if committed else found:
            last = chunk.last
            while last > chunk.first and _begins_behind(chunk, last - 1, stop):
                last -= 1
            if last > chunk.first:
                yield chunk if last == chunk.last else chunk._replace(last=last)
        check_transactions(view, stop)  # records from `stop` on are left out as those of an open transaction


def _begins_behind(chunk: Chunk, row: int, stop: int) -> bool:
    """Return True if a batch begins at or after `stop`; the header of an old wrapper has only its last offset."""
    table = chunk.batches
    return table.base_offset(row) >= stop and first_offset(chunk.data, table, row) >= stop


def survey_of(view: LogView, start: int, stop: int) -> Survey:
    """Return the properties of a partition's batches with offsets in [start, stop). CorruptRecord, StorageError."""
    gaps = old = stamped = transactions = producers = False
    expected = start
    for chunk in batch_chunks(view, start, stop, sequential=True, check_crc=False) if start < stop else ():
        for row in range(chunk.first, chunk.last):
            header = chunk.batches[row]
            is_control = header.magic >= MAGIC_V2 and bool(header.attributes & CONTROL_BIT)
            old |= header.magic < MAGIC_V2
            if header.magic >= MAGIC_V2:
                gaps |= is_control or header.base_offset > expected
                gaps |= header.count != header.last_offset - header.base_offset + 1
                transactions |= bool(header.attributes & TRANSACTIONAL_BIT)
                producers |= header.producer_id >= 0
            else:
                gaps |= header.count == 1 and header.last_offset > expected
            stamped |= header.magic > 0 and bool(header.attributes & TIMESTAMP_TYPE_BIT)
            expected = header.last_offset + 1
    return Survey(gaps or expected < stop, old, stamped, transactions, producers)


class DirectorySource(LogFiles):
    """Data directories, which other processes may write to; also those in a backup, and at URLs.

    `groups` are the offsets of a backup's manifest; None reads them from the directories. `tiered` is the store with
    the tiered segments of the topics (docs/tiered.md).
    """

    def __init__(
        self, name: str, dirs: Sequence[str], groups: Offsets | None = None, tiered: str | None = None
    ) -> None:
        self.name = name
        self._paths = list(dirs)
        self._groups = groups
        self._dirs: LogDirs = open_dirs(self._paths, tiered=tiered)
        self._topics = self._dirs.topics

    def view(self, key: TopicPartition) -> LogView:
        """Return the open view of a partition."""
        view = self._dirs[key.topic, key.partition]._source
        assert isinstance(view, LogView)
        return view

    def settings_of(self, topic: str) -> tuple[str | None, Mapping[str, str] | None, Sequence[int]]:
        """Return a topic's id, settings (None if no file here has them) and partition numbers."""
        found = self._topics.get(topic)
        if found is None:
            known = ", ".join(sorted(self._topics)[:8])
            raise UnknownTopicOrPartition(
                f"there is no topic {topic}", path=self.name, hint=f"topics here: {known}" if known else None
            )
        store = self._dirs._open()
        assert isinstance(store, DirsView)
        settings = found.settings if found.settings or store.has_settings(topic) else None
        return found.topic_id, settings, found.partitions

    async def names(self) -> list[str]:
        """Return the names of all topics; those that were created since the last call are read like the others."""
        self._topics = self._dirs.topics
        return sorted(self._topics)

    async def groups(self, topics: Sequence[str]) -> Offsets:
        """Return the offsets that groups committed in these topics; CorruptRecord if some of them are damaged."""
        found = self._groups
        if found is None:
            found = {} if any(map(is_url, self._paths)) else whole_offsets(self._paths)
        return {
            group: own for group, offsets in found.items()
            if (own := {topic: dict(by_partition) for topic, by_partition in offsets.items() if topic in topics})
        }  # fmt: skip

    async def close(self) -> None:
        """Close the views."""
        self._dirs.close()


class TieredSource(LogFiles):
    """Partitions of a remote store at these URLs, with the segments that a broker tiered. It has no settings.

    `tiered` describes the store (docs/tiered.md).
    """

    def __init__(self, name: str, places: Mapping[TieredPartition, str], tiered: str | None = None) -> None:
        self.name = name
        self._places = {TopicPartition(one.topic, one.partition): url for one, url in places.items()}
        self._urls: dict[str, dict[str, str]] = {}  # one URL per topic id, by topic
        for one, url in places.items():
            self._urls.setdefault(one.topic, {}).setdefault(one.topic_id, url)
        self._tiered = tiered
        self._views: dict[TopicPartition, LogView] = {}

    def view(self, key: TopicPartition) -> LogView:
        """Return the open view of a partition."""
        if key not in self._views:
            view = place_view(self._places[key], self._tiered)
            assert view is not None, "only URLs of tiered partitions are collected"
            self._views[key] = view
        return self._views[key]

    def settings_of(self, topic: str) -> tuple[str | None, Mapping[str, str] | None, Sequence[int]]:
        """Return no id and no settings, and the partition numbers.

        IllegalArgument if the store has segments of several topics of this name: one was deleted and created again.
        """
        urls = sorted(self._urls.get(topic, {}).values())
        if len(urls) > 1:
            raise IllegalArgument(
                f"the store has segments of {len(urls)} topics that are named {topic}: {urls[0]} and {urls[1]}",
                path=self.name, hint="name the directory of one of them",
            )  # fmt: skip
        numbers = sorted(key.partition for key in self._places if key.topic == topic)
        if not numbers:
            raise UnknownTopicOrPartition(f"there is no topic {topic}", path=self.name)
        return None, None, numbers

    async def names(self) -> list[str]:
        """Return the names of all topics."""
        return sorted({key.topic for key in self._places})

    async def groups(self, topics: Sequence[str]) -> Offsets:
        """Return no groups: a store of segments has none."""
        return {}

    async def close(self) -> None:
        """Close the views."""
        for view in self._views.values():
            view.close()


def open_files(places: Sequence[str], tiered: str | None = None) -> DirectorySource | TieredSource:
    """Open data directories, a backup, the last one of a directory of backups, or a tiered store, as found there.

    `tiered` describes the store with the tiered segments.

    PartitionNotFound, CorruptBackup, StorageError, MissingPackage.
    """
    name = os.pathsep.join(places)
    if len(places) == 1:
        place = places[0]
        found = find_tiered(place, tiered)
        if found:
            return TieredSource(place, found, tiered)
        if not is_url(place) and os.path.exists(os.path.join(place, MARKER)):
            place = BackupStore(place).find()
        if not is_url(place) and os.path.exists(os.path.join(place, MANIFEST)):
            manifest = read_manifest(place, OS)
            dirs = [os.path.join(place, one.name) for one in manifest.directories]
            return DirectorySource(place, dirs, manifest.groups, tiered)
    return DirectorySource(name, places, tiered=tiered)


def is_backup(place: str) -> bool:
    """Return True for a backup or a directory of backups."""
    return not is_url(place) and any(os.path.exists(os.path.join(place, name)) for name in (MARKER, MANIFEST))


def find_tiered(place: str, tiered: str | None = None) -> dict[TieredPartition, str]:
    """Return the URLs of the partitions with tiered segments at or below a URL or a local directory.

    `tiered` describes the store, and has its prefix.
    """
    if not is_url(place) and not any(_is_tiered_name(os.path.abspath(place), name) for name in _local_names(place)):
        return {}
    fs, path = locate(place if is_url(place) else f"file://{os.path.abspath(place)}")
    store = None if tiered is None else ObjectStore(read_description(tiered))
    found: dict[TieredPartition, str] = {}
    for one in (path, *_below(fs, path)):
        parsed = tiered_place(one)
        if parsed is not None and any(name.endswith(LOG_SUFFIX) for name in _names_in(fs, one)):
            partition = parsed.partition
            topic = partition.topic if store is None else store.topic_in(one, partition.topic)
            found[partition._replace(topic=topic)] = fs.url_of(one)
    return found


def _local_names(place: str) -> list[str]:
    return [".", *os.listdir(place)] if os.path.isdir(place) else []


def _is_tiered_name(parent: str, name: str) -> bool:
    path = os.path.normpath(os.path.join(parent, name))
    return tiered_place(path) is not None or tiered_place(f"{path}/0") is not None


def _below(fs: RemoteFileSystem, path: str) -> Iterator[str]:
    """Yield the directories one and two levels below `path` whose names are those of a tiered store."""
    for name in _directories(fs, path):
        below = f"{path}/{name}"
        if tiered_place(below) is not None:
            yield below
        elif tiered_place(f"{below}/0") is not None:
            yield from (f"{below}/{number}" for number in _directories(fs, below))


def _directories(fs: RemoteFileSystem, path: str) -> list[str]:
    return [name for name, status in sorted(_names_in(fs, path).items()) if status.is_directory]


def _names_in(fs: RemoteFileSystem, path: str) -> dict[str, RemoteStatus]:
    with os_errors("list", path):
        return fs.found_in(path)


if TYPE_CHECKING:
    from kafkalog.copy.cluster_source import ClusterSource

    Source: TypeAlias = "ClusterSource | DirectorySource | TieredSource"
    """Topics to copy, read in whole batches."""
