"""Offset ranges of a partition, cut at batch boundaries into pieces of about the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from errno import ENOENT

from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.storage.readonly.segment import ViewSegment
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, stop) of the partition in `directory`, read by one task.

    `topic_id` is the id of the topic that the offsets belong to; None if it is not known.
    """

    topic: str
    partition: int
    directory: str
    start: int
    stop: int
    topic_id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition of the range."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.stop - self.start


def cut(whole: OffsetRange, offsets: Sequence[int]) -> list[OffsetRange]:
    """Return the range cut at these offsets; offsets outside it are ignored."""
    inside = sorted({offset for offset in offsets if whole.start < offset < whole.stop})
    places = [whole.start, *inside, whole.stop]
    return [replace(whole, start=first, stop=last) for first, last in zip(places, places[1:], strict=False)]


def boundaries(view: LogView, start: int, stop: int, most_bytes: int) -> list[int]:
    """Return base offsets of batches in (start, stop), about `most_bytes` of the data files apart."""
    found = []
    room = most_bytes
    for segment, first, last in _spans(view, start, stop):
        if room <= 0:
            found.append(max(segment.base_offset, start))
            room = most_bytes
        while last - first > room:
            batch = segment.boundary_after(first + room)
            if batch is None or batch.position >= last:
                break
            found.append(batch.base_offset)
            first = batch.position
            room = most_bytes
        room -= last - first
    return found


def _spans(view: LogView, start: int, stop: int) -> Iterator[tuple[ViewSegment, int, int]]:
    """Yield the segments with offsets of [start, stop), and the byte range of those offsets in each file.

    A segment that its owner deletes meanwhile is skipped; reading will report it.
    """
    segments = list(view.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= stop or (following is not None and following.base_offset <= start):
            continue
        try:
            first = _position(segment, start) if start > segment.base_offset else 0
            within = following is None or stop < following.base_offset
            yield segment, first, _position(segment, stop) if within else segment.size
        except StorageError as error:
            if error.errno != ENOENT:
                raise


def _position(segment: ViewSegment, offset: int) -> int:
    """Return the position of the batch with this offset; without one the segment's end, or the damage that hides it."""
    try:
        found = segment.translate_offset(offset)
    except CorruptRecord as error:
        return segment.size if error.position is None else min(error.position, segment.size)
    return segment.size if found is None else found[1]


def bytes_between(view: LogView, start: int, stop: int) -> int:
    """Return about how many bytes of the data files hold offsets of [start, stop)."""
    return sum(last - first for _, first, last in _spans(view, start, stop))
