"""The records of one partition that are to be redacted, segment by segment; nothing is locked or changed.

A segment with a sound key index is read only where the index names a key; any other is read once, whole. All batches of
the segment files count, also those below the log start and of aborted transactions, which readers do not see.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalog._core.keys.given_keys import hash_keys
from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.errors import CorruptIndex
from kafkalog.keys.build import open_index
from kafkalog.records.plain_runs import PlainRun, plain_runs
from kafkalog.redact.batches import checked_row, rows_with
from kafkalog.redact.wanted import Change, Wanted
from kafkalog.sidecars.identity import new_secret
from kafkalog.storage.readonly.read import extent_of
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.segment_reader import Chunk, segment_chunks

if TYPE_CHECKING:
    from kafkalog.keys.place import KeyIndexPlace
    from kafkalog.storage.readonly.segment import ViewSegment
    from kafkalog.util.fileio import FileSystem

NEAR_OFFSETS: Final = 4096
"""Offsets that lie no further apart are read together."""
Advance = Callable[[int], object]
"""Called with the number of bytes of a segment that were searched."""


@dataclass(frozen=True)
class Found:
    """A segment with records to redact: their `offsets`, rising; `size` in bytes of the segment."""

    base_offset: int
    path: str
    size: int
    offsets: array[int]


@dataclass
class Result:
    """The segments with records to redact, and the keys and offsets of records that there are, redacted or not."""

    segments: list[Found] = field(default_factory=list)
    keys: set[bytes] = field(default_factory=set)
    offsets: set[int] = field(default_factory=set)


def search(
    view: LogView,
    wanted: Wanted,
    change: Change,
    place: KeyIndexPlace,
    *,
    more_offsets: array[int] | None = None,
    only: frozenset[int] | None = None,
    advance: Advance = lambda size: None,
) -> Result:
    """Return the records of a partition that are to be redacted and still hold something.

    `more_offsets` (rising) are wanted besides, those that the condition gave. `only` restricts the search to the
    segments with these base offsets. Raises CorruptRecord and InvalidRecord for damage in what is read, StorageError.
    """
    given = sorted({*wanted.offsets.get(view.topic_partition.partition, ()), *(more_offsets or ())})
    offsets = array("q", given)
    result = Result()
    for segment in view.segments:
        if only is not None and segment.base_offset not in only:
            continue
        one = _SegmentSearch(view, segment, wanted.keys, change, result)
        one.run(_between(offsets, segment.base_offset, one.bound), place)
        if one.changed:
            result.segments.append(
                Found(segment.base_offset, segment.path, segment.size, array("q", sorted(one.changed)))
            )
        advance(segment.size)
    if only is None and (damage := view.tail_damage) is not None:
        raise damage
    return result


def where_offsets(path: str, wanted: Wanted, fs: FileSystem) -> array[int]:
    """Return the offsets of a partition's records for which the condition is true, rising; empty without one.

    Raises IllegalArgument for a condition that the types do not allow, InvalidRecord for a key or value that does not
    decode, CorruptRecord, StorageError, MissingPackage without pyarrow.
    """
    found = array("q")
    condition = wanted.condition
    if condition is None:
        return found
    from kafkalog.log.log import Log
    from kafkalog.log.typed_scan import typed_scan

    typed = {**wanted.typed, "where": condition}
    with Log(LogView(path, fs=fs), None) as log:
        for batch in typed_scan(log, log.start_offset, log.end_offset, ["offset"], typed, {}):
            found.extend(batch.column(0).to_pylist())
    return found


def _between(offsets: array[int], start: int, stop: int) -> array[int]:
    return offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)]


class _SegmentSearch:
    """The search of one segment: `changed` are the offsets of records that a redaction changes."""

    def __init__(
        self, view: LogView, segment: ViewSegment, keys: frozenset[bytes], change: Change, result: Result
    ) -> None:
        self.extent = extent_of(view.state, segment.base_offset)
        self.bound = self.extent.bound
        self.changed: set[int] = set()
        self._segment = segment
        self._keys = keys
        self._change = change
        self._result = result

    def run(self, offsets: array[int], place: KeyIndexPlace) -> None:
        """Search for the keys and the offsets (rising, of this segment)."""
        by_key = self._indexed(place) if self._keys and not self.extent.is_last else None
        if self._keys and by_key is None:
            self._read_all(offsets)
            return
        keyed = by_key or array("q")
        for first, last in _runs(sorted({*keyed, *offsets})):
            for chunk in segment_chunks(self.extent, first, last + 1):
                for run in _plain(chunk):
                    self._look(run, _between(keyed, first, last + 1), self._keys)
                    self._look(run, _between(offsets, first, last + 1), None)

    def _indexed(self, place: KeyIndexPlace) -> array[int] | None:
        """Return the offsets that the key index gives for the keys, rising; None without a sound index."""
        try:
            opened = open_index(self._segment, place)
        except CorruptIndex:
            return None
        if opened is None:
            return None
        found: set[int] = set()
        for key in self._keys:
            offsets = opened.pages.find_all(
                hash_key(opened.header.secret, key), self.extent.base_offset, self.bound
            )
            if offsets is None:
                return None
            if offsets:
                self._result.keys.add(key)
            found.update(offsets)
        return array("q", sorted(found))

    def _read_all(self, offsets: array[int]) -> None:
        secret, keys = new_secret(), sorted(self._keys)
        base = self.extent.base_offset
        finder = KeyFinder(secret, hash_keys(secret, keys), base, self.bound, True)
        next_offset = base
        for chunk in segment_chunks(self.extent, base, self.bound):
            for run in _plain(chunk):
                if not finder.take(run.data, run.table, run.first, run.last, run.base_position):
                    run.record_damage(finder)
                    run.raise_failure(chunk.path)
                self._look(run, array("q", finder.take_found()), self._keys)
                end = run.table.last_offset_of(run.last - 1) + 1
                self._look(run, _between(offsets, next_offset, end), None)
                next_offset = end
        last_offsets = memoryview(finder.last_offsets).cast("q")
        self._result.keys.update(key for key, offset in zip(keys, last_offsets, strict=True) if offset >= 0)

    def _look(self, run: PlainRun, offsets: array[int], keys: frozenset[bytes] | None) -> None:
        """Note which records at these offsets there are, and which of them still hold something."""
        for row in rows_with(run.table, run.first, run.last, offsets):
            done = checked_row(
                run.data, run.table, row, offsets, self._change, keys=keys, base_position=run.base_position,
                path=self._segment.path,
            )  # fmt: skip
            self._result.offsets.update(done.found)
            self.changed.update(done.changed)


def _plain(chunk: Chunk) -> Iterator[PlainRun]:
    runs = plain_runs(chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position)
    for run in runs:
        yield run
        run.raise_failure(chunk.path)


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last offset of groups that lie near each other."""
    first = last = -1
    for offset in offsets:
        if first >= 0 and offset - last > NEAR_OFFSETS:
            yield first, last
            first = offset
        first, last = (offset if first < 0 else first), offset
    if first >= 0:
        yield first, last
