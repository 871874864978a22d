"""Search of tiered segments: all objects that a store has of a partition, also copies that no longer count."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from kafkalog.errors import StorageError
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.redact.report import Copy, RedactedSegment
from kafkalog.redact.search import Advance, Result, search, where_offsets
from kafkalog.redact.wanted import Change, Wanted
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.description import Description
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.open import located
from kafkalog.tiered.place import SegmentFileSystem
from kafkalog.tiered.segment_bytes import LOG, ObjectStore, SegmentContent, TieredPartition
from kafkalog.tiered.segment_metadata import Copies, RemoteSegment
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.fileio import FileSystem

_NO_MANIFEST = "an object without a manifest, which is being copied or was left"
_TO_DELETE = "a tiered copy that does not count; --apply deletes it"


class Held(NamedTuple):
    """A segment in the store: the path of its objects, its base offset, its last offset if it is known.

    `content` is None if it cannot be read. `segment` is None for objects of which there is no event.
    """

    stem: str
    content: SegmentContent | None
    first: int
    end: int | None
    segment: RemoteSegment | None


class Found(NamedTuple):
    """A segment with wanted records: its size in bytes, and the offsets of the records, rising."""

    held: Held
    size: int
    offsets: array[int]


class Searched(NamedTuple):
    """The segments of a partition with wanted records, the keys and offsets found, and those that cannot be read.

    `searched` are all that were read. `can_delete` is True if an object without an event belongs to no copy: all events
    of the partition are known.
    """

    partition: TieredPartition
    copies: Copies
    found: tuple[Found, ...]
    result: Result
    searched: tuple[Held, ...]
    unreadable: tuple[Held, ...]
    can_delete: bool


class InStore(NamedTuple):
    """The result for the tiered segments of a partition: those rewritten, or to be, and those that are left.

    `left` is the number of records that a search found afterwards.
    """

    segments: tuple[RedactedSegment, ...]
    held: tuple[RedactedSegment, ...]
    found: Result
    copies: tuple[Copy, ...]
    left: int = 0


class TieredSearch:
    """Searches the tiered segments of partitions whose data directories are `directories`. Threads: one at a time."""

    def __init__(self, description: Description, directories: Iterable[str], fs: FileSystem) -> None:
        """IllegalArgument, MissingPackage, StorageError."""
        self.store = ObjectStore(description)
        named = located(description.metadata) if description.metadata else (fs, list(dict.fromkeys(directories)))
        self.metadata = MetadataTopic(*named)
        self._fs = fs

    def partition_of(self, place: PartitionPath) -> TieredPartition:
        """Return the partition with its topic's id. StorageError if the id is missing."""
        topic_id = read_partition_metadata(self._fs, place.path)
        if topic_id is None:
            raise StorageError(
                "the partition has no topic id, by which its tiered segments are named", path=place.path,
                hint="give the data directory of a broker that has tiered the topic",
            )  # fmt: skip
        return TieredPartition(*place.topic_partition, topic_id)

    def run(self, place: PartitionPath, wanted: Wanted, change: Change, progress: Advance) -> Searched:
        """Search all segments of a partition of which the store has data.

        Errors as for `redact`; StorageError for an object that is missing or damaged, UnknownTopicOrPartition without
        `__remote_log_metadata`.
        """
        partition = self.partition_of(place)
        copies = self.metadata.copies(partition)
        found, total, searched, unreadable = [], Result(), [], []
        for held in self._all(partition, copies):
            if held.content is None:
                unreadable.append(held)
                continue
            with self.viewed(partition, held) as view:
                by_condition = where_offsets(view.path, wanted, view.fs)
                index = KeyIndexPlace(view.path, None, view.fs)
                one = search(view, wanted, change, index, more_offsets=by_condition, advance=progress)
            total.keys |= one.keys
            total.offsets |= one.offsets
            searched.append(held)
            offsets = array("q", sorted({offset for segment in one.segments for offset in segment.offsets}))
            if offsets:
                found.append(Found(held, sum(segment.size for segment in one.segments), offsets))
        event_place = self.metadata.place_of(partition)
        can_delete = event_place is not None and event_place.is_whole
        return Searched(partition, copies, tuple(found), total, tuple(searched), tuple(unreadable), can_delete)

    def count_again(self, partition: TieredPartition, held: Held, wanted: Wanted, change: Change, old: Found) -> int:
        """Return the number of records left in the segment that replaces `old`."""
        with self.viewed(partition, held) as view:
            index = KeyIndexPlace(view.path, None, view.fs)
            again = search(view, replace(wanted, where=None), change, index, more_offsets=old.offsets)
        return sum(len(one.offsets) for one in again.segments)

    @contextmanager
    def viewed(self, partition: TieredPartition, held: Held) -> Iterator[LogView]:
        """Open one segment as a log."""
        assert held.content is not None
        fs = SegmentFileSystem(self.store, partition, held.stem, held.content, held.first, held.end)
        with LogView(fs.path, fs=fs) as view:
            yield view

    def url_of(self, held: Held) -> str:
        """Return the URL of a segment's data."""
        return self.store.fs.url_of(held.stem + LOG)

    def report(self, found: Found, partition: TieredPartition, size_after: int | None) -> RedactedSegment:
        """Return the line of the report for a segment."""
        return RedactedSegment(
            partition.topic, partition.partition, self.url_of(found.held), found.held.first, len(found.offsets),
            found.size, size_after,
        )  # fmt: skip

    def _all(self, partition: TieredPartition, copies: Copies) -> list[Held]:
        """Return the segments that the store lists and those that count, in the order of their objects' names."""
        known = {
            self.store.stem_of(partition, one): one
            for one in (*copies.deleted, *copies.unfinished, *copies.finished)
        }  # fmt: skip
        segments: dict[str, Held] = {}
        for stem, content in self.store.found_in(partition).items():
            segment = known.get(stem)
            end = None if segment is None else segment.end
            segments[stem] = Held(stem, content, int(os.path.basename(stem)[:20]), end, segment)
        counting = {one.segment_id for one in copies.finished}
        for stem, one in known.items():
            # a name of the plugin's own; another segment may still be there
            if stem not in segments and (one.segment_id in counting or self.store.fs.exists(stem + LOG)):
                segments[stem] = Held(stem, self.store.content(partition, one), one.start, one.end, one)
        return [segments[stem] for stem in sorted(segments)]

    def close(self) -> None:
        """Close the metadata's files."""
        self.metadata.close()


def planned(search: TieredSearch, one: Searched) -> InStore:
    """Return what a redaction would change; nothing is changed."""
    counting = {segment.segment_id for segment in one.copies.finished}
    segments, held, copies = [], [], []
    for found in one.found:
        segment = found.held.segment
        if segment is not None and segment.segment_id in counting:
            segments.append(search.report(found, one.partition, None))
        elif segment is not None or one.can_delete:
            copies.append(Copy(search.url_of(found.held), _TO_DELETE))
        else:
            held.append(search.report(found, one.partition, None))
    for left in one.unreadable:
        copies.append(Copy(search.url_of(left), _NO_MANIFEST if left.segment is None else _TO_DELETE))
    return InStore(tuple(segments), tuple(held), one.result, tuple(copies))
