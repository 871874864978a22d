"""Damage in a segment file: skipped pieces, and the search for the next sound batch."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import CorruptRecord, KafkalogError
from kafkalog.records.tables import batch_table
from kafkalog.storage.batch_search import BatchSearch, is_batch
from kafkalog.storage.file_slice import LOG_OVERHEAD, claimed_size
from kafkalog.storage.lazy_file import DataFile, read_at

_LOG: Final = logging.getLogger(__name__)
HINT: Final = "`kafkalog consume --on-damage skip` reads the rest; a replica or a backup may have the damaged part"


class Skipped(NamedTuple):
    """A piece of a segment file that a reader skipped: `size_bytes` from `position`.

    The damage may have held the offsets [offset, next_offset); some of them may never have been used. Reading
    continued, or could continue, at `next_offset`: the end of the segment if nothing sound follows in it.
    """

    path: str
    position: int
    size_bytes: int
    offset: int
    next_offset: int
    reason: str


class MisplacedBatch(CorruptRecord):
    """A batch with a valid checksum whose offsets contradict its neighbours: its base offset is damaged."""

    base_offset = -1
    last_offset = -1
    size_bytes = 0


class LostEnd(CorruptRecord):
    """A log ends before its recovery point: batches that were on disk are missing."""

    recovery_point = -1


def note_skipped(skipped: list[Skipped], piece: Skipped) -> None:
    """Append `piece` to `skipped` and log it, once."""
    if piece in skipped:
        return
    skipped.append(piece)
    has_offsets = piece.next_offset > piece.offset
    _LOG.warning(
        "skipped %d damaged bytes of %s from position %d, %s: %s", piece.size_bytes, piece.path, piece.position,
        f"offsets {piece.offset} to {piece.next_offset - 1}" if has_offsets else "no offsets", piece.reason,
    )  # fmt: skip


class SoundBatch(NamedTuple):
    """A batch with a valid checksum: its position in the file and its base offset."""

    position: int
    base_offset: int


def next_sound(file: DataFile, position: int, end: int, next_offset: int) -> SoundBatch | None:
    """Return the first sound batch behind the damaged one at `position` that begins at `next_offset` or above.

    The end that the damaged batch claims is tried first, since its value may hold complete batches of another log.
    Then every byte up to `end` is tried. StorageError.
    """
    search = BatchSearch(file)
    claimed = position + claimed_size(read_at(file, LOG_OVERHEAD, position))
    if position < claimed < end and is_batch(file, claimed, end, next_offset):
        found = search.first_that_leads_to(position + 1, claimed, next_offset)
    else:
        found = search.find(position + 1, end, next_offset).position
    if found < 0:
        return None
    head = read_at(file, LOG_OVERHEAD, found)
    return SoundBatch(found, int.from_bytes(head[:8], "big", signed=True))


def sound_rows(table: BatchTable, data: bytes, next_offset: int, bound: int) -> int:
    """Return the number of rows of a table of `data` that are valid and ascend within [next_offset, bound).

    A batch's checksum does not cover its base offset. If a batch begins below the end of a previous one that began
    behind a gap, the previous one is wrong, and not counted. Compressed messages of v0 and v1 are compared by the
    offsets inside.
    """
    rows = table.sound_rows(next_offset, bound)
    if not table.codec or table.magic(0) >= 2 and table.magic(len(table) - 1) >= 2:
        return rows
    before = expected = next_offset
    has_gap = False
    for row in range(min(rows + 1, len(table))):
        first, last = _offsets_inside(data, table, row)
        if not table[row].is_valid or last != table.last_offset_of(row):
            return row
        if first < expected:
            return row - 1 if has_gap and last >= before else row
        before, has_gap = expected, first > expected
        expected = table.last_offset_of(row) + 1
    return rows


def first_offset(data: bytes, table: BatchTable, row: int) -> int:
    """Return the first offset of a batch; a compressed message of v0 or v1 has it inside.

    The first row of `table` begins with `data`.
    """
    return _offsets_inside(data, table, row)[0]


def _offsets_inside(data: bytes, table: BatchTable, row: int) -> tuple[int, int]:
    """Return the first and last offset of a batch; the header's if a compressed message cannot be decoded."""
    batch = table[row]
    if batch.magic >= 2 or not batch.compression:
        return batch.base_offset, batch.last_offset
    try:
        records = batch_table(data, table, row, base_position=table.position(0))
    except KafkalogError:
        return batch.last_offset, batch.last_offset
    return (records.offsets[0], records.offsets[len(records) - 1]) if len(records) else (batch.last_offset,) * 2


def bad_row(table: BatchTable, row: int, next_offset: int, bound: int, path: str) -> CorruptRecord:
    """Return the error for the first row that `sound_rows` did not count."""
    batch = table[row]
    if not batch.is_valid:
        return damage_at(f"the batch of {batch.size} bytes does not match its CRC", path, next_offset, batch.position)
    if not 0 <= batch.magic <= 2:
        what = f"the batch has format {batch.magic}: only 0, 1 and 2 are known"
        return damage_at(what, path, next_offset, batch.position)
    if batch.last_offset < batch.base_offset:
        what = f"the batch ends at offset {batch.last_offset}, below its base offset {batch.base_offset}"
    elif batch.base_offset < next_offset:
        what = f"the batch begins at offset {batch.base_offset}, below the expected offset {next_offset}"
    elif batch.last_offset >= bound:
        what = f"the batch ends at offset {batch.last_offset}, but the segment must end below {bound}"
    else:
        following = table.base_offset(row + 1) if row + 1 < len(table) else bound
        what = f"the batch begins at offset {batch.base_offset}, but the next one at {following}"
    error = MisplacedBatch(what, path=path, offset=next_offset, position=batch.position, hint=HINT)
    is_wrapper = batch.magic < 2 and batch.compression  # its first offset is inside
    error.base_offset = min(batch.base_offset, next_offset) if is_wrapper else batch.base_offset
    error.last_offset, error.size_bytes = batch.last_offset, batch.size
    return error


def damage_at(what: str, path: str, next_offset: int, position: int) -> CorruptRecord:
    """Return the error for damage at byte `position`, where offset `next_offset` would have come next."""
    return CorruptRecord(what, path=path, offset=next_offset, position=position, hint=HINT)


def lost_end(path: str, recovery_point: int, end: int, position: int | None = None) -> LostEnd:
    """Return the error for a log that ends at offset `end`, byte `position`, before its recovery point."""
    what = f"the log was on disk up to offset {recovery_point}, but ends at {end}: batches are missing"
    error = LostEnd(what, path=path, offset=end, position=position, hint=HINT)
    error.recovery_point = recovery_point
    return error
