"""Redaction of tiered segments: each is replaced by a new one, with another id, and the events that say so.

The new segment is whole in the store before an event says that its copy is finished; only then the deletion of the old
one begins. Whenever a run is killed, a reader has the old or the new segment, and another run completes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from kafkalog.backup.cut import index_contents
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.log_dir import LogDir
from kafkalog.redact.report import Copy, RedactedSegment
from kafkalog.redact.rewrite import redacted_chunks
from kafkalog.redact.search import Advance
from kafkalog.redact.tiered import Found, Held, InStore, Searched, TieredSearch, planned
from kafkalog.redact.wanted import Change, Wanted
from kafkalog.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkalog.storage.readonly.read import extent_of
from kafkalog.tiered.description import read_description
from kafkalog.tiered.events import copy_started, new_segment_id, state_changed
from kafkalog.tiered.manifest import INDEXES
from kafkalog.tiered.segment_bytes import OWN_NAMES, PlainSegment, PluginSegment, SegmentContent, TieredPartition
from kafkalog.tiered.segment_metadata import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED, RemoteSegment
from kafkalog.tiered.segment_writer import Layout, SegmentWriter
from kafkalog.tools.directories import PartitionPath, Path
from kafkalog.tools.tiered_events import EventLog, locked_directories
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

STAGED_SEGMENT = "kafkalog-redact.partial"
"""Name of the file in a data directory with a redacted segment that is not in the store yet."""
_REPLACED = "a tiered copy that another one with the same offsets replaces"
_NO_COPY = "a tiered copy that does not count"


def redact_tiered(
    places: Iterable[PartitionPath], wanted: Wanted, change: Change, tiered: Path, apply: bool, progress: Advance,
    fs: FileSystem, clock: Clock,
) -> list[InStore]:  # fmt: skip
    """Search the tiered segments of each partition; with `apply`, replace those with wanted records.

    `tiered` is the store's URL or description. Errors as for `TieredSearch`; with `apply` DirectoryLocked, and
    IllegalArgument or IllegalState if the events cannot be appended to each replica of the metadata topic.
    """
    description, found = read_description(tiered), list(places)
    directories = list(dict.fromkeys(os.path.dirname(one.path) for one in found))
    with ExitStack() as stack:
        log_dirs: dict[str, LogDir] = {}
        if apply:
            log_dirs = stack.enter_context(locked_directories(description, directories, fs))
        search = TieredSearch(description, directories, fs)
        stack.callback(search.close)
        results = []
        for place in found:
            searched = search.run(place, wanted, change, progress)
            if apply:
                rewriter = _Rewriter(search, searched, wanted, change, os.path.dirname(place.path), fs, clock)
                results.append(rewriter.run(log_dirs))
            else:
                results.append(planned(search, searched))
        return results


class _Rewriter:
    """Replaces the segments of one partition with wanted records. Threads: one at a time."""

    def __init__(
        self, search: TieredSearch, searched: Searched, wanted: Wanted, change: Change, directory: str,
        fs: FileSystem, clock: Clock,
    ) -> None:  # fmt: skip
        self._search = search
        self._searched = searched
        self._wanted = wanted
        self._change = change
        self._staged = os.path.join(directory, STAGED_SEGMENT)
        self._fs = fs
        self._clock = clock
        self._writer = SegmentWriter(search.store, search.store.keys)
        found_ids = {one.held.segment.segment_id for one in searched.found if one.held.segment is not None}
        self._clean = {
            _range_of(one.segment)
            for one in searched.searched
            if one.segment is not None and self._counts(one) and one.segment.segment_id not in found_ids
        }

    @property
    def _partition(self) -> TieredPartition:
        return self._searched.partition

    def run(self, log_dirs: dict[str, LogDir]) -> InStore:
        """Replace the segments; then search those written again."""
        with os_errors("remove a staged segment", self._staged):
            self._fs.unlink_if_exists(self._staged)
        place = self._search.metadata.place_of(self._partition)
        if place is None:  # without an event no copy counts
            return planned(self._search, self._searched)
        known = read_known_topics(log_dirs, fs=self._fs)
        with EventLog(place.number, log_dirs, known, self._fs, self._clock) as events:
            dropped = self._dropped()
            if dropped or self._searched.found:
                events.check()
            copies = [self._drop(one, events, _NO_COPY) for one in dropped]
            segments, held, left = [], [], 0
            for found in self._in_finished_order():
                if found.held.stem in {one.stem for one in dropped}:
                    continue
                if found.held.segment is None and not self._searched.can_delete:
                    held.append(self._search.report(found, self._partition, None))
                elif not self._counts(found.held):
                    copies.append(self._drop(found.held, events, _NO_COPY))
                elif self._has_clean_copy(found.held):
                    copies.append(self._drop(found.held, events, _REPLACED))
                else:
                    segment, records = self._replace(found, events)
                    segments.append(segment)
                    left += records
            gone = {one.stem for one in dropped}
            copies += [
                Copy(self._search.url_of(one), "an object without a manifest")
                for one in self._searched.unreadable
                if one.stem not in gone
            ]
        return InStore(tuple(segments), tuple(held), self._searched.result, tuple(copies), left)

    def _dropped(self) -> list[Held]:
        """Return copies to delete first: what killed runs left, and unfinished ones that cannot be searched."""
        copies = self._searched.copies
        unreadable = {one.stem for one in self._searched.unreadable}
        finished = {_range_of(one) for one in copies.finished}
        found = []
        for segment in (*copies.unfinished, *copies.deleting):
            stem = self._search.store.stem_of(self._partition, segment)
            if stem in unreadable or _range_of(segment) in finished:
                found.append(Held(stem, None, segment.start, segment.end, segment))
        return found

    def _in_finished_order(self) -> list[Found]:
        """Return the segments found, in the order in which their copies were finished: so is that of the new ones."""
        order = {one.segment_id: number for number, one in enumerate(self._searched.copies.finished)}

        def place(found: Found) -> tuple[int, str]:
            segment = found.held.segment
            return order.get("" if segment is None else segment.segment_id, len(order)), found.held.stem

        return sorted(self._searched.found, key=place)

    def _counts(self, held: Held) -> bool:
        return held.segment is not None and held.segment in self._searched.copies.finished

    def _has_clean_copy(self, held: Held) -> bool:
        """Return True if a copy without wanted records has the same offsets of the same leaders."""
        assert held.segment is not None
        return _range_of(held.segment) in self._clean

    def _replace(self, found: Found, events: EventLog) -> tuple[RedactedSegment, int]:
        """Replace one segment; return it for the report, and the number of records left in the new one."""
        held = found.held
        old, content = held.segment, held.content
        assert old is not None and content is not None
        with self._staging() as file:
            self._stage(found, file)
            indexes = self._kept_indexes(held, content) | index_contents(self._staged, old.start, self._fs)
            new = self._writer.named(self._partition, old, new_segment_id())._replace(size_bytes=file.size())
            events.append([copy_started(self._partition, new, self._clock.milliseconds())])
            now_ms = self._clock.milliseconds()
            custom = self._writer.put(self._partition, new, _layout_of(content), file, indexes, now_ms)
            left = self._count_left(found, new)  # reads the new segment, while the old one is there
            finished = state_changed(self._partition, new, COPY_FINISHED, self._clock.milliseconds(), custom)
            events.append([finished])
        self._drop(held, events, _REPLACED)
        self._clean.add(_range_of(new))
        return self._search.report(found, self._partition, new.size_bytes), left

    def _count_left(self, found: Found, new: RemoteSegment) -> int:
        store = self._search.store
        after = Held(store.stem_of(self._partition, new), store.content(self._partition, new), new.start, new.end, new)
        return self._search.count_again(self._partition, after, self._wanted, self._change, found)

    def _kept_indexes(self, held: Held, content: SegmentContent) -> dict[str, bytes | None]:
        """Return the indexes that do not depend on positions. StorageError."""
        found: dict[str, bytes | None] = {}
        for suffix in INDEXES.keys() - {INDEX_SUFFIX, TIME_INDEX_SUFFIX}:
            is_plain = isinstance(content, PlainSegment)  # it may lack some
            if not is_plain or self._search.store.fs.exists(held.stem + OWN_NAMES.get(suffix, suffix)):
                found[suffix] = content.index(suffix)
        return found

    @contextmanager
    def _staging(self) -> Iterator[File]:
        with os_errors("write a redacted segment", self._staged):
            file = self._fs.open_file(self._staged, "exclusive")
        try:
            with file:
                yield file
        finally:
            with suppress(OSError):
                self._fs.unlink_if_exists(self._staged)

    def _stage(self, found: Found, file: File) -> None:
        """Write the redacted segment to a file of the data directory."""
        at = 0
        with self._search.viewed(self._partition, found.held) as view:
            extent = extent_of(view.state, found.held.first)
            url = self._search.url_of(found.held)
            for new in redacted_chunks(extent, found.size, found.offsets, self._change, url):
                with os_errors("write a redacted segment", self._staged):
                    at += file.pwrite(new.data, at)

    def _drop(self, held: Held, events: EventLog, what: str) -> Copy:
        """Delete the objects of a copy, between the events of that; return it for the report."""
        segment, copies = held.segment, self._searched.copies
        is_deleted = segment is None or (segment in copies.deleted and segment not in copies.deleting)
        if segment is not None and not is_deleted and segment not in copies.deleting:
            events.append([self._changed(segment, DELETE_STARTED)])
        self._writer.delete(held.stem)
        if segment is not None and not is_deleted:
            events.append([self._changed(segment, DELETE_FINISHED)])
        return Copy(self._search.url_of(held), what, True)

    def _changed(self, segment: RemoteSegment, state: int) -> bytes:
        return state_changed(self._partition, segment, state, self._clock.milliseconds())


def _range_of(segment: RemoteSegment) -> tuple[object, ...]:
    """Return what is equal for copies with the same records: the offsets, and the leaders that wrote them."""
    return segment.start, segment.end, segment.epochs


def _layout_of(content: SegmentContent) -> Layout | None:
    if not isinstance(content, PluginSegment):
        return None
    manifest = content.manifest
    key_id = None if manifest.encryption is None else manifest.encryption.key_id
    return Layout(manifest.chunks.chunk_bytes, manifest.is_compressed, key_id)
