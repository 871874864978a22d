"""Reading on behind damage in a segment file: where the next sound batch is, and the batches from there on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kafkalog.chunks import Chunk, LastRead, slice_chunks
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.spark.damage import Damage, Skipped
from kafkalog.storage.batch_search import Budget, find_batch, is_batch
from kafkalog.storage.file_slice import FileSlice, claimed_size
from kafkalog.storage.names import parse_base_offset
from kafkalog.storage.view import LogView
from kafkalog.tools.verify_report import Findings
from kafkalog.tools.verify_segment import SegmentPass
from kafkalog.util.fileio import OS, File

__all__ = ["end_behind", "hides_batches", "salvaged"]

_OFFSET_BYTES: Final = 8
_SIZE_BYTES: Final = 12


def salvaged(
    trouble: CorruptRecord, start: int, stop: int, damage: Damage, *, lowest: int | None = None, check_crc: bool = True
) -> Iterator[Chunk]:
    """The sound batches of the file behind `trouble`, with offsets from `start` on, as far as `stop`.

    `lowest` is the least offset with which a batch behind the damage may begin, where that is known: the first may
    begin below `start`. What is passed over on the way is noted in `damage`, unless it holds nothing from `start`
    on.
    """
    with _opened(trouble) as file:
        length, budget = file.size(), Budget(file.size())
        at = trouble.position or 0
        reason = trouble.message
        lowest = _segment_base(file) if lowest is None else lowest
        while at < length and start < stop:
            found = _sound_after(file, at, length, lowest, budget)
            begin = length if found < 0 else found
            following = start if found < 0 else _base_offset(file, found)
            if found < 0 or following > start or lowest >= start:
                damage.note(Skipped(file.path, at, begin - at, start, max(following, start), reason))
            if found < 0:
                return
            start, lowest = max(start, following), following
            try:
                for chunk in slice_chunks(
                    FileSlice(file, found, length - found), lowest, stop, LastRead(), check_crc=check_crc
                ):
                    lowest = chunk.next_offset
                    if lowest > start:
                        yield _from(chunk, start)
                        start = lowest
                return
            except CorruptRecord as error:
                at, reason = error.position or 0, error.message


def _from(chunk: Chunk, start: int) -> Chunk:
    """The chunk without the batches that end below `start`: they need not be such as can be decoded."""
    rows = range(chunk.first, chunk.last)
    return chunk._replace(first=next(row for row in rows if chunk.batches.last_offset_of(row) >= start))


def hides_batches(trouble: CorruptRecord) -> bool:
    """True where a sound batch lies behind damage at what would be the end of a log: then it is not its end."""
    with _opened(trouble) as file:
        length, position = file.size(), trouble.position or 0
        if is_batch(file, position, length, _segment_base(file)):
            return True  # it is sound and begins too low: the base offset of one before it may be too high
        return _sound_after(file, position, length, trouble.offset or 0, Budget(length)) >= 0


def end_behind(view: LogView, trouble: CorruptRecord) -> int:
    """The offset after the last sound batch of a view's last segment, across damage."""
    with _opened(trouble) as file:
        facts = SegmentPass(file, _segment_base(file), Findings(file.path), fs=OS, length=file.size()).run()
    return max(view.log_end_offset, facts.next_offset)


def _opened(trouble: CorruptRecord) -> File:
    assert trouble.path is not None, "damage is found in files"
    try:
        return OS.open_file(trouble.path, "r")
    except OSError as error:
        raise StorageError.from_os(error, "open the segment", path=trouble.path) from error


def _sound_after(file: File, position: int, end: int, lowest_offset: int, budget: Budget) -> int:
    """Where the first sound batch at or behind the damage at `position` begins; -1 for nowhere.

    At it where only a batch before was wrong; then where the damaged batch says that it ends: its value may hold whole
    batches of another log.
    """
    if is_batch(file, position, end, lowest_offset):
        return position
    head = _read(file, _SIZE_BYTES, position)
    if len(head) == _SIZE_BYTES:
        claimed = position + claimed_size(head)
        if position < claimed < end and is_batch(file, claimed, end, lowest_offset):
            return claimed
    return find_batch(file, position + 1, end, lowest_offset, budget).position


def _segment_base(file: File) -> int:
    return parse_base_offset(os.path.basename(file.path)) or 0


def _base_offset(file: File, position: int) -> int:
    return int.from_bytes(_read(file, _OFFSET_BYTES, position), "big", signed=True)


def _read(file: File, size: int, position: int) -> bytes:
    try:
        return file.pread(size, position)
    except OSError as error:
        raise StorageError.from_os(error, "read", path=file.path, position=position) from error
