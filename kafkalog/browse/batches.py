"""Batches a screenful at a time, from any place in a log, forwards and backwards, by their headers.

A walk begins at a batch that the offset index points to. Damage in a file raises nothing: bytes that are not a batch
become a row, and the walk continues at the next intact batch.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from kafkalog._core.batch.scan import BatchHeader, scan
from kafkalog.records.format import MAGIC_V2, codec_name
from kafkalog.storage.damage import next_sound
from kafkalog.storage.file_slice import HEADER_BYTES, LARGEST_OFFSET, LOG_OVERHEAD, claimed_size
from kafkalog.storage.readonly.segment import ViewSegment
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.trailing_zeros import only_zeros

_CHUNK_BYTES: Final = 64 << 10
_LARGE_BYTES: Final = 1 << 20
"""Largest batch that is read whole; of a larger one only the header is read, and its checksum is unknown."""
_MIN_SIZE: Final = 14 + LOG_OVERHEAD
_V2_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_MAX_ROWS_BACK: Final = 100_000
"""Most rows walked to find those before a place if no index entry helps."""


class Place(NamedTuple):
    """Start of a batch: the segment's base offset and the position in its file."""

    segment: int
    position: int


class BatchRow(NamedTuple):
    """A batch by its header. `records` is None if the header does not state it; `problem` is "" for an intact batch.

    A range of bytes that are not a batch is a row with offsets of -1.
    """

    place: Place
    size: int
    base_offset: int
    last_offset: int
    records: int | None
    codec: str
    magic: int
    timestamp: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    problem: str = ""

    @property
    def next_place(self) -> Place:
        """Place of the bytes after this row."""
        return Place(self.place.segment, self.place.position + self.size)

    @property
    def is_batch(self) -> bool:
        """False for bytes that are not a batch."""
        return self.last_offset >= 0

    @property
    def kind(self) -> str:
        """Problem or kind of the batch in one or two words."""
        if self.problem:
            return self.problem
        words = ["txn"] * self.is_transactional + ["control"] * self.is_control
        return " ".join(words)


def after(view: LogView, place: Place, count: int) -> list[BatchRow]:
    """Return up to `count` rows from `place` on, across segments."""
    found: list[BatchRow] = []
    segment = view.segments.floor(place.segment) or view.segments.first
    position = place.position if segment is not None and segment.base_offset == place.segment else 0
    while segment is not None and len(found) < count:
        following = view.segments.higher(segment.base_offset)
        found += islice(_walk(segment, position, segment.size, _offset_bound(following)), count - len(found))
        segment, position = following, 0
    return found


def before(view: LogView, place: Place, count: int) -> list[BatchRow]:
    """Return up to `count` rows that end at `place`, in file order."""
    found: list[BatchRow] = []
    segment = view.segments.floor(place.segment)
    stop = place.position if segment is not None and segment.base_offset == place.segment else None
    while segment is not None and len(found) < count:
        end = segment.size if stop is None else min(stop, segment.size)
        bound = _offset_bound(view.segments.higher(segment.base_offset))
        found = [*_rows_before(segment, end, count - len(found), bound), *found]
        segment, stop = view.segments.lower(segment.base_offset), None
    return found


def find_place(view: LogView, offset: int) -> Place:
    """Return the place of the batch with `offset`, or the next one; the log's end for an offset after it.

    Raises StorageError.
    """
    found = view.read(offset, 1).fetch_offset_metadata
    return Place(found.segment_base_offset, found.relative_position_in_segment)


def _offset_bound(following: ViewSegment | None) -> int:
    """Return the exclusive upper bound of a segment's offsets, given the segment after it."""
    return LARGEST_OFFSET if following is None else following.base_offset


def _rows_before(segment: ViewSegment, stop: int, count: int, bound: int) -> list[BatchRow]:
    """Return the last `count` rows of a segment before position `stop`, walking from an index entry before them."""
    index = segment.offset_index
    low, high = 0, index.entries
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if index.entry(middle).position < stop else (low, middle)
    number, step = low - 1, 1
    while True:
        start = index.entry(number).position if number >= 0 else 0
        walk = _walk(segment, start, stop, bound)
        first = next(walk, None)
        starts_at_batch = first is not None and first.is_batch  # an index entry may be wrong
        rows = deque([first] if first is not None else [], maxlen=count)
        if starts_at_batch or number < 0:
            rows.extend(islice(walk, _MAX_ROWS_BACK))
        reaches_stop = starts_at_batch and rows[-1].next_place.position == stop
        if number < 0 or (reaches_stop and len(rows) >= count):
            return list(rows)
        number -= step
        step *= 2


def _walk(segment: ViewSegment, position: int, stop: int, bound: int) -> Iterator[BatchRow]:
    """Yield the rows of a segment from `position` to `stop`; bytes up to the next intact batch are one row.

    A batch at or above the offset `bound` has a problem.
    """
    base = expected = segment.base_offset
    while position < stop:
        data = segment.records.read(position, min(_CHUNK_BYTES, stop - position))
        table = scan(data, file_mode=True, base_position=position)
        begin = position
        for header in table:
            position = header.position + header.size
            row = _row(base, header)
            if not header.is_valid:  # the size field may be the damaged part
                position = _next_sound(segment, header.position, stop)
                yield row._replace(size=position - header.position)
                break
            yield row._replace(problem=_batch_problem(header, expected, bound))
            expected = header.next_offset
        if position > begin:
            continue
        size = claimed_size(data)
        if len(data) < HEADER_BYTES or not _MIN_SIZE <= size <= stop - position:
            end = _next_sound(segment, position, stop)
            yield _invalid_row(Place(base, position), end - position)
            position = end
        elif size <= _LARGE_BYTES:
            found = scan(segment.records.read(position, size), file_mode=True, base_position=position, max_batches=1)
            end = position + size if len(found) and found[0].is_valid else _next_sound(segment, position, stop)
            row = _row(base, found[0]) if len(found) else _invalid_row(Place(base, position), size)
            yield row._replace(size=end - position)
            position = end
        else:
            yield _header_only_row(Place(base, position), size, data)
            position += size


def _batch_problem(header: BatchHeader, expected: int, bound: int) -> str:
    """Return the conflict of an intact batch with its place; "" without one."""
    if not 0 <= header.magic <= MAGIC_V2:
        return f"format {header.magic}"
    if header.base_offset < expected:
        return "offset goes back"
    return "offset of the next segment" if header.last_offset >= bound else ""


def _next_sound(segment: ViewSegment, position: int, stop: int) -> int:
    """Return the position of the next intact batch after damage at `position`; `stop` without one."""
    file = segment.records.slice(0, stop).file
    if only_zeros(file, position, stop):
        return stop
    found = next_sound(file, position, stop, segment.base_offset)
    return stop if found is None else found.position


def _row(base: int, header: BatchHeader) -> BatchRow:
    return BatchRow(
        Place(base, header.position), header.size, header.base_offset, header.last_offset,
        header.count if header.count >= 0 else None, codec_name(header.compression), header.magic,
        header.max_timestamp, header.producer_id, header.is_transactional, header.is_control,
        "" if header.is_valid else "damaged",
    )  # fmt: skip


def _header_only_row(place: Place, size: int, data: bytes) -> BatchRow:
    """Return the row of a batch whose header alone was read."""
    magic = data[16]
    if magic != MAGIC_V2:
        offset = int.from_bytes(data[:8], "big", signed=True)
        return BatchRow(place, size, offset, offset, None, "?", magic, -1, -1, False, False, "not checked")
    fields: tuple[int, ...] = _V2_HEADER.unpack_from(data)
    offset, bits, delta, largest, producer, count = (fields[at] for at in (0, 5, 6, 8, 9, 12))
    return BatchRow(
        place, size, offset, offset + delta, count, codec_name(bits & 7), magic, largest, producer,
        bool(bits & 16), bool(bits & 32), "not checked",
    )  # fmt: skip


def _invalid_row(place: Place, size: int) -> BatchRow:
    return BatchRow(place, max(size, 1), -1, -1, None, "", -1, -1, -1, False, False, "not a batch")
