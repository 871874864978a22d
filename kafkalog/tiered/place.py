"""A partition in a remote store alone, without the broker's directory: tiered segments as a partition directory.

The name of the place gives the layout, of Kafka's own file store or of the plugin for object stores:

    <storage>/<topic>-<partition>-<topic id>/<20 digits>-<segment id>.log  .index  .timeindex  .txnindex  .snapshot
    <prefix><topic>-<topic id>/<partition>/<20 digits>-<segment id>.log  .indexes  .rsm-manifest

Which copies count is decided by `__remote_log_metadata` if a description names it; else by the offsets and leader
epochs in the plugin's manifests. Where neither is known, the copy of a base offset that was written last counts. A
segment without its manifest is being copied, or was abandoned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from errno import ENOENT
from typing import Final, NamedTuple

from kafkalog.errors import InvalidRecord, StorageError
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.storage.names import base_name
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.plan import Span
from kafkalog.tiered.segment_bytes import (
    EPOCHS,
    LOG,
    MANIFEST,
    ObjectStore,
    PluginSegment,
    SegmentContent,
    TieredPartition,
)
from kafkalog.tiered.segment_metadata import Copies, RemoteSegment, checked_segment
from kafkalog.tiered.span_files import GapFile, SpanFiles, VirtualFile, end_of, named_files, spans_files
from kafkalog.tiered.topics import spans_before
from kafkalog.tiered.virtual_files import VirtualDirectory
from kafkalog.util.remote_files import RemoteStatus

_FILE: Final = re.compile(r"(?P<base>[0-9]{20})-(?P<id>[A-Za-z0-9_-]{22})(?P<suffix>\.[a-z_-]+)")
_OWN: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})-(?P<id>[A-Za-z0-9_-]{22})")
_PLUGIN: Final = re.compile(r"(?P<topic>.+)-(?P<id>[A-Za-z0-9_-]{22})")
_SUFFIXES: Final = (LOG, ".index", ".timeindex", ".txnindex")


class TieredPlace(NamedTuple):
    """Directory of a partition's segments, and the partition in its name."""

    path: str
    partition: TieredPartition
    has_manifests: bool


def tiered_place(path: str) -> TieredPlace | None:
    """Parse the path of a directory; return None if it is not that of a partition in remote storage."""
    parent, name = os.path.split(path.rstrip("/"))
    if name.isdecimal() and len(name) <= 10:
        found = _PLUGIN.fullmatch(os.path.basename(parent))
        partition = name
    else:
        found = _OWN.fullmatch(name)
        partition = "" if found is None else found["partition"]
    if found is None:
        return None
    return TieredPlace(path, TieredPartition(found["topic"], int(partition), found["id"]), name == partition)


class PlaceFileSystem(VirtualDirectory):
    """The store with an additional directory, `path`: `<place>/<topic>-<partition>`, with the segments of a place."""

    def __init__(self, store: ObjectStore, place: TieredPlace, metadata: MetadataTopic | None) -> None:
        super().__init__(store.fs, place.path, f"{place.partition.topic}-{place.partition.partition}")
        self._store = store
        self._place = place
        self._metadata = metadata
        self._files: Mapping[str, VirtualFile] = {}
        self._spans: dict[Span, SpanFiles] = {}
        self._contents: dict[tuple[str, RemoteStatus | None], SegmentContent] = {}
        self._ends: dict[SegmentContent, int | None] = {}

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        """Return the files of the partition's directory; none for another one."""
        if directory.rstrip("/") != self.path:
            return {}
        if refresh or not self._files:
            self._files = self._listed()
        return self._files

    def _listed(self) -> dict[str, VirtualFile]:
        stems = self._stems()
        if self._metadata is not None:
            spans = self._spans_of(self._metadata.copies(self._place.partition))
            self._spans = spans_files(spans, self._spans, lambda one: self._store.content(self._place.partition, one))
            return self._named(spans)
        segments = [self._segment(stem) for stem in stems] if self._place.has_manifests else []
        if segments and None not in segments:
            spans = self._spans_of(Copies(0, tuple(one for one in segments if one is not None), ()))
            self._spans = spans_files(spans, self._spans, self._content_of)
            return self._named(spans)
        self.has_overlaps = True
        return self._last_written(stems)

    def _stems(self) -> dict[str, RemoteStatus]:
        """Return the complete segments in the place, those written last at the end, with the status of their data."""
        listed = self._store.fs.found_in(self._place.path)
        found = []
        for name, status in listed.items():
            match = _FILE.fullmatch(name)
            if match is not None and match["suffix"] == LOG:
                stem = name.removesuffix(LOG)
                if not self._place.has_manifests or stem + MANIFEST in listed:
                    found.append((status.mtime_ns, stem, status))
        return {stem: status for _, stem, status in sorted(found)}

    def _spans_of(self, copies: Copies) -> tuple[Span, ...]:
        stop = max((one.end + 1 for one in copies.finished), default=0)
        spans = spans_before(copies, (), None, stop)
        return spans[:-1] if spans and spans[-1].segment is None else spans

    def _named(self, spans: tuple[Span, ...]) -> dict[str, VirtualFile]:
        files = named_files(spans, self._spans, self.path)
        if spans and spans[-1].segment is not None:
            files[EPOCHS] = ContentFile(self._spans[spans[-1]].content, EPOCHS, spans[-1].segment.segment_id)
        return files

    def _content(self, stem: str, size_bytes: int | None, status: RemoteStatus | None = None) -> SegmentContent:
        """Return the content of a segment; `status` is that of its data, which may be copied still."""
        content = self._contents.get((stem, status))
        if content is None:
            path, first = os.path.join(self._place.path, stem), int(stem[:20])
            if self._place.has_manifests:
                content = self._store.plugin_segment(path, first, size_bytes)
            else:
                content = self._store.plain_segment(path, first, size_bytes or 0)
            self._contents[stem, status] = content
        return content

    def _content_of(self, segment: RemoteSegment) -> SegmentContent:
        return self._content(f"{segment.start:020d}-{segment.segment_id}", None)

    def _segment(self, stem: str) -> RemoteSegment | None:
        """Return the segment that its manifest describes; None if the manifest has no such part."""
        content = self._content(stem, None)
        assert isinstance(content, PluginSegment), "segments with a manifest are the plugin's"
        manifest = content.manifest
        document = manifest.segment
        if document is None:
            return None
        try:
            epochs = [EpochEntry(int(epoch), int(at)) for epoch, at in document["segmentLeaderEpochs"].items()]
            return checked_segment(
                RemoteSegment(
                    stem[21:], int(stem[:20]), int(document["endOffset"]), manifest.chunks.segment_bytes,
                    int(document["maxTimestampMs"]), tuple(sorted(epochs)), None,
                    ".txnindex" not in manifest.indexes,
                )
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError, InvalidRecord) as error:
            raise content.manifest_error(error) from None

    def _last_written(self, stems: Mapping[str, RemoteStatus]) -> dict[str, VirtualFile]:
        """Return the files of the copy of each base offset that was written last, and unreadable ones for gaps."""
        files: dict[str, VirtualFile] = {}
        last = {stem[:20]: stem for stem in stems}
        reached: int | None = None  # offset behind the segment before; None if it is not known
        for base, stem in sorted(last.items()):
            status = stems[stem]
            content = self._content(stem, None if self._place.has_manifests else status.size, status)
            if reached is not None and reached < int(base):
                files[base_name(reached) + LOG] = GapFile(Span(reached, int(base), None), self.path)
            reached = self._end_of(content, int(base))  # what the one before has behind it may be a lost leader's
            for suffix in _SUFFIXES:
                files[base + suffix] = ContentFile(content, suffix, f"{stem} {status}")
        if last:
            stem = last[max(last)]  # the epochs of the last segment include all earlier ones
            files[EPOCHS] = ContentFile(self._content(stem, None, stems[stem]), EPOCHS, stem)
        return files

    def _end_of(self, content: SegmentContent, first: int) -> int | None:
        """Return the offset behind a segment; None if it cannot be read, of which a read of the segment raises."""
        if content not in self._ends:
            try:
                self._ends[content] = end_of(content, first)
            except (StorageError, FileNotFoundError):
                return None
        return self._ends[content]


class SegmentFileSystem(VirtualDirectory):
    """The store with an additional directory, `path`, of a partition with one tiered segment, in all its bytes.

    `first` is the segment's base offset, `end` its last one, if it is known: then its end is not searched for.
    """

    def __init__(
        self, store: ObjectStore, partition: TieredPartition, stem: str, content: SegmentContent, first: int,
        end: int | None,
    ) -> None:  # fmt: skip
        super().__init__(store.fs, os.path.dirname(stem), f"{partition.topic}-{partition.partition}")
        self._files: dict[str, VirtualFile] = {base_name(first) + LOG: ContentFile(content, LOG, stem)}
        if end is not None and end >= first:
            self._files[base_name(end + 1) + LOG] = EmptyFile()

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        """Return the segment's file, for its directory."""
        return self._files if directory.rstrip("/") == self.path else {}


class EmptyFile:
    """A file without bytes."""

    mtime_ns = 0
    identity = "empty"

    def size(self) -> int:
        """Return 0."""
        return 0

    def read(self, position: int, size: int) -> bytes:
        """Return no bytes."""
        return b""


class ContentFile:
    """A file of a segment, whole."""

    mtime_ns = 0

    def __init__(self, content: SegmentContent, suffix: str, version: str) -> None:
        self._content = content
        self._suffix = suffix
        self.identity = f"{version} {suffix}"

    def _index(self) -> bytes:
        found = self._content.index(self._suffix)
        if found is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), self._suffix)
        return found

    def size(self) -> int:
        """Return the number of bytes."""
        return self._content.log_bytes if self._suffix == LOG else len(self._index())

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from `position`."""
        if self._suffix == LOG:
            return self._content.read_log(position, size)
        return self._index()[position : position + size]
