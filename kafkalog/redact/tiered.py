"""Tiered segments with wanted records: they are searched in the store, and named, but not rewritten.

A broker keeps the size of each tiered segment in `__remote_log_metadata`, and copies of its indexes, with positions of
batches, on its own disk. Both would be wrong for an object with other bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from kafkalog.errors import StorageError
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.redact.report import Copy, RedactedSegment
from kafkalog.redact.search import Advance, Result, search, where_offsets
from kafkalog.redact.wanted import Change, Wanted
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.description import read_description
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.open import located
from kafkalog.tiered.place import SegmentFileSystem
from kafkalog.tiered.segment_bytes import LOG, ObjectStore, SegmentContent, TieredPartition
from kafkalog.tools.directories import PartitionPath, Path
from kafkalog.util.fileio import FileSystem


class InStore(NamedTuple):
    """The tiered segments of a partition with wanted records, what was found in all, and what cannot be searched."""

    held: tuple[RedactedSegment, ...]
    found: Result
    copies: tuple[Copy, ...]


_Segment = tuple[SegmentContent | None, int, int | None]
"""The content of a segment, None if it cannot be read; its base offset; its last offset, None if it is not known."""


class TieredSearch:
    """Searches the tiered segments of partitions whose data directories are `directories`. Threads: one at a time."""

    def __init__(self, tiered: Path, directories: Iterable[str], fs: FileSystem) -> None:
        """`tiered` is the store's URL or description. IllegalArgument, MissingPackage, StorageError."""
        description = read_description(tiered)
        self._store = ObjectStore(description)
        named = located(description.metadata) if description.metadata else (fs, list(dict.fromkeys(directories)))
        self._metadata = MetadataTopic(*named)
        self._fs = fs

    def run(self, place: PartitionPath, wanted: Wanted, change: Change, progress: Advance) -> InStore:
        """Search all segments of a partition of which the store has data, also copies that no longer count.

        Errors as for `redact`; StorageError for an object that is missing or damaged, UnknownTopicOrPartition without
        `__remote_log_metadata`.
        """
        topic_id = read_partition_metadata(self._fs, place.path)
        if topic_id is None:
            raise StorageError(
                "the partition has no topic id, by which its tiered segments are named", path=place.path,
                hint="give the data directory of a broker that has tiered the topic",
            )  # fmt: skip
        topic, number = place.topic_partition
        partition = TieredPartition(topic, number, topic_id)
        held, found, copies = [], Result(), []
        for stem, (content, first, end) in sorted(self._segments(partition).items()):
            url = self._store.fs.url_of(stem + LOG)
            if content is None:
                copies.append(Copy(url, "an object without a manifest, which is being copied or was left"))
                continue
            fs = SegmentFileSystem(self._store, partition, stem, content, first, end)
            with LogView(fs.path, fs=fs) as view:
                by_condition = where_offsets(fs.path, wanted, fs)
                index = KeyIndexPlace(fs.path, None, fs)
                one = search(view, wanted, change, index, more_offsets=by_condition, advance=progress)
            found.keys |= one.keys
            found.offsets |= one.offsets
            for segment in one.segments:
                held.append(
                    RedactedSegment(
                        topic, number, url, segment.base_offset, len(segment.offsets), segment.size, None
                    )
                )  # fmt: skip
        return InStore(tuple(held), found, tuple(copies))

    def _segments(self, partition: TieredPartition) -> dict[str, _Segment]:
        """Return the segments that the store lists and those that count, by their stems."""
        copies = self._metadata.copies(partition)
        known = {self._store.stem_of(partition, one): one for one in (*copies.deleted, *copies.finished)}
        segments: dict[str, _Segment] = {}
        for stem, content in self._store.found_in(partition).items():
            end = known[stem].end if stem in known else None
            segments[stem] = content, int(os.path.basename(stem)[:20]), end
        deleted = {one.segment_id for one in copies.deleted}
        for stem, segment in known.items():
            # a name of the plugin's own; a deleted segment may still be there
            if stem not in segments and (segment.segment_id not in deleted or self._store.fs.exists(stem + LOG)):
                segments[stem] = self._store.content(partition, segment), segment.start, segment.end
        return segments

    def close(self) -> None:
        """Close the metadata's files."""
        self._metadata.close()
