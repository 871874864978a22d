"""Reading a range of offsets chunk by chunk: checked batches of a log, and tables of their records.

One chunk is read with `pread`, scanned and checksummed in one pass and yielded whole. A chunk that is short or damaged
is read again after a refresh of the log, since its owner may have truncated the file meanwhile. If it is still damaged
then, the batches before it have been yielded, and the damage is raised or skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.record import RecordIterator
from kafkalog._core.log.txns import AbortedRanges, has_transactions, visible_rows
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    KafkalogError,
    OffsetOutOfRange,
    StorageError,
    UnsupportedForFormat,
)
from kafkalog.reading.source import closed, refresh, truncation_count, was_truncated
from kafkalog.records.batch import RecordBatch
from kafkalog.storage.damage import LostEnd, MisplacedBatch, Skipped, first_offset, note_skipped
from kafkalog.storage.file_slice import LOG_OVERHEAD, claimed_size
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.segment_reader import CHUNK_BYTES, Anchor, Chunk, Extent, anchor_behind, segment_chunks

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.undecided import Undecided

__all__ = [
    "IN_A_BATCH", "Chunk", "batch_chunks", "batch_of_error", "batches", "check_end", "check_tail",
    "check_transactions", "record_tables", "records", "visible_chunks",
]  # fmt: skip

IN_A_BATCH: Final = (CorruptRecord, InvalidRecord, UnsupportedForFormat, IllegalArgument)
"""Errors of a batch that has a right checksum but cannot be decoded."""
CONFIRMING_READS: Final = 4
"""Number of reads that must find the same damage: the owner may truncate and rewrite the file, even twice in a row."""


def batch_chunks(
    log: LogSource,
    start: int,
    stop: int,
    owner: object = None,
    *,
    sequential: bool = False,
    check_crc: bool = True,
    skipped: list[Skipped] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Yield the batches that hold offsets in [start, stop), in order; `stop` at most the log's end.

    The iterator keeps a reference to `owner`. `sequential` advises the system that whole files are read. Without
    `check_crc` checksums are not verified. A chunk has about `chunk_bytes`.

    Raises CorruptRecord for bytes that are no complete valid batch, or batches that contradict each other: with
    segment, position, and the intact offsets before and behind. With `skipped`, such bytes are skipped and recorded
    there instead. An intact batch is never skipped. Raises OffsetOutOfRange if the log was truncated, or its start
    moved past the next offset.
    """
    reads_of_damage = _DamageReads()
    retry: _Retry | None = None
    first = start
    while start < stop or retry is not None:
        before, count_before = start, truncation_count(log)
        try:
            extent = log.extent(start if retry is None else retry.offset)
            if sequential and extent.data.size > CHUNK_BYTES:
                extent.data.file.expect_whole_read()
            anchor = retry.anchor if retry is not None and retry.base_offset == extent.base_offset else None
            read = segment_chunks(extent, start, stop, anchor=anchor, check_crc=check_crc, chunk_bytes=chunk_bytes)
            for chunk in read:
                log.metrics.reads.add(len(chunk.data))
                yield chunk
                start = chunk.next_offset
                if log.closed:
                    raise closed(log)
        except CorruptRecord as error:
            refresh(log)
            anchor = anchor or Anchor(0, extent.base_offset)  # an index built before the damage may point behind it
            if reads_of_damage.confirm(error):
                start, anchor = _skip_damage(extent, error, start, stop, skipped, start > first)
            retry = None if anchor is None else _Retry(min(start, extent.bound - 1), extent.base_offset, anchor)
            continue
        except StorageError as error:
            if error.errno != ENOENT or reads_of_damage.confirm(error):
                raise
            refresh(log)
            continue
        retry = None
        if not extent.is_last:
            if start >= extent.bound:
                if start < stop:
                    refresh(log)  # a view may still have segments that were truncated away
            elif not was_truncated(log, count_before):  # else the gap may be one of another log
                start = extent.bound
            continue
        if start == before and not was_truncated(log, count_before):
            if extent.bound >= stop:
                break
            if log.log_end_offset < stop:
                raise OffsetOutOfRange(
                    f"the log was truncated to {log.log_end_offset} during the read", path=log.path, offset=start
                )
    check_tail(log, stop, skipped)


class _Retry(NamedTuple):
    """The segment of `offset`, to be read again after damage: from `anchor`, if it still has that base offset."""

    offset: int
    base_offset: int
    anchor: Anchor


class _DamageReads:
    """Count of reads that found the same damage, since the owner may be changing the file."""

    def __init__(self) -> None:
        self._place: tuple[str | None, int | None] | None = None
        self._count = 0

    def confirm(self, error: KafkalogError) -> bool:
        """Return True once the place of `error` was damaged in enough reads in a row."""
        place = error.path, error.position
        self._count = self._count + 1 if place == self._place else 1
        self._place = place
        return self._count >= CONFIRMING_READS


def _skip_damage(
    extent: Extent, error: CorruptRecord, start: int, stop: int, skipped: list[Skipped] | None, is_inside: bool
) -> tuple[int, Anchor | None]:
    """Return where to continue behind damage: an offset, and the place in the segment if an intact batch follows there.

    The damage is recorded in `skipped`, or raised, unless it lies before the requested offsets: it ends by `start`, no
    record was yielded yet (`is_inside`), and it is no batch that belongs there.
    """
    position, expected = error.position or 0, error.offset or 0
    anchor = anchor_behind(extent, error)
    following = extent.bound if error.next_sound_offset is None else error.next_sound_offset
    belongs = isinstance(error, MisplacedBatch) and error.last_offset >= start and error.base_offset < stop
    belongs = belongs or _contradicts(extent, error, anchor, start)
    if is_inside or following > start or belongs:
        if skipped is None:
            raise error
        end = extent.data.size if anchor is None else anchor.position
        offset = max(expected, start) if following > start else expected
        piece = Skipped(error.path or "", position, end - position, offset, following, error.message)
        note_skipped(skipped, piece)
    return (max(start, extent.bound), None) if anchor is None else (start, anchor)


def _contradicts(extent: Extent, error: CorruptRecord, anchor: Anchor | None, start: int) -> bool:
    """Return True if the damage and the next batch contradict each other, and `start` lies before a third one.

    A misplaced batch has offsets of the next one, and other damage has none if the next one begins where it does.
    Either of the two may be wrong, so that the next one may have had the offsets up to the third.
    """
    if anchor is None or error.next_sound_offset is None:
        return False
    last_offset = error.last_offset if isinstance(error, MisplacedBatch) else error.offset or 0
    if error.next_sound_offset > last_offset:
        return False
    file = extent.data.file
    behind = anchor.position + claimed_size(file.pread(LOG_OVERHEAD, anchor.position))
    if behind + LOG_OVERHEAD > extent.data.end:
        return True
    return start < int.from_bytes(file.pread(LOG_OVERHEAD, behind)[:8], "big", signed=True)


def check_tail(log: LogSource, stop: int, skipped: list[Skipped] | None = None) -> None:
    """Raise the damage at the end of a log if a read up to `stop` reaches it.

    With `skipped` it is recorded there. In a log that is being written, or was not closed, an incomplete tail is no
    damage but the log's end.
    """
    if stop < log.log_end_offset or (damage := log.tail_damage) is None:
        return
    if skipped is None:
        raise damage
    position, offset, size = damage.position or 0, log.log_end_offset, 0
    following = damage.recovery_point if isinstance(damage, LostEnd) else offset
    if any((piece.path, piece.position) == (damage.path, position) for piece in skipped):
        return  # already recorded while reading
    if isinstance(damage, MisplacedBatch):
        size, offset = damage.size_bytes, damage.offset or 0
        following = offset
    elif isinstance(log, LogView):
        size = log.active_segment.stat().st_size - position
    note_skipped(skipped, Skipped(damage.path or "", position, size, offset, following, damage.message))


def batch_of_error(chunks: Iterable[Chunk], error: KafkalogError, start: int) -> Skipped | None:
    """Return the batch that `error` could not decode as a piece to skip, from offset `start` on; None without it."""
    for chunk in chunks:
        for row in range(chunk.first, chunk.last):
            if error.offset is not None and chunk.batches.base_offset(row) == error.offset:
                place = chunk.path, chunk.batches.position(row), chunk.batches.size(row)
                following = chunk.batches.last_offset_of(row) + 1
                return Skipped(*place, max(error.offset, start), following, error.message)
    return None


def visible_chunks(
    log: LogSource, chunks: Iterable[Chunk], committed: bool, stop: int, skipped: list[Skipped] | None
) -> Iterator[Chunk]:
    """Yield the chunks, up to `stop`, with only the batches that a consumer sees: no control batches.

    With `committed`, batches of aborted transactions are left out, and `stop` is at most the last stable offset.
    Raises HiddenEnd, a CorruptRecord, at records of a transaction whose end lies in damage; with `skipped` its
    producer's next marker decides. Raises OffsetOutOfRange where the log was truncated and written again, and its
    transactions are not decided.
    """
    if not committed:
        for chunk in chunks:
            yield from _visible(chunk, chunk.last, None)
        return
    refresh(log)
    hidden = _undecided_at_end(log, stop) if skipped is None and stop < log.log_end_offset else None
    chunks = iter(chunks)
    while True:
        refresh(log)
        count_before = truncation_count(log)
        found = next(chunks, None)
        if found is None:
            break
        if not has_transactions(found.batches, found.first, found.last):
            yield from _visible(found, found.last, None)
            continue
        first_offset, end = found.batches.base_offset(found.first), min(found.next_offset, stop)
        aborted, undecided = log.aborted_ranges(first_offset, found.next_offset), None
        if skipped is None and log.has_damaged_transactions:
            undecided = log.undecided(first_offset, end) or _undecided_at_end(log, stop)
        undecided = undecided or hidden
        stable = log.last_stable_offset
        if was_truncated(log, count_before):
            stable = first_offset  # the batches may be those of before, and the transactions those of after
        bound = end if undecided is None else undecided.first_offset
        last = _rows_below(found, min(bound, stable)) if stable < end or undecided is not None else found.last
        yield from _visible(found, last, aborted)
        if last < found.last:
            raise _truncated(log, stable) if undecided is None or stable < bound else undecided.error()
    if skipped is None:
        check_transactions(log, stop)


def _visible(chunk: Chunk, last: int, aborted: AbortedRanges | None) -> Iterator[Chunk]:
    """Yield the chunk up to row `last` with only the batches that a consumer sees, if there are any."""
    visible = visible_rows(chunk.batches, chunk.first, last, aborted)
    if visible is chunk.batches:
        yield chunk if last == chunk.last else chunk._replace(last=last)
    elif len(visible):
        yield chunk._replace(batches=visible, first=0, last=len(visible))


def _rows_below(chunk: Chunk, offset: int) -> int:
    """Return the row after the last one of the chunk that begins below `offset`."""
    last = chunk.last
    while last > chunk.first and chunk.batches.base_offset(last - 1) >= offset:
        last -= 1
    return last


def _truncated(log: LogSource, offset: int) -> OffsetOutOfRange:
    """Return the error of a read of committed records that met others than those that were there at its start."""
    what = f"the log was truncated during the read, and what was written since is not decided from {offset} on"
    return OffsetOutOfRange(what, path=log.path, offset=offset)


def check_transactions(log: LogSource, stop: int) -> None:
    """Raise HiddenEnd if a committed read up to `stop` reaches a transaction whose end lies in damage."""
    may_be_hidden = log.has_damaged_transactions or stop < log.log_end_offset
    if may_be_hidden and (undecided := _undecided_at_end(log, stop)) is not None:
        raise undecided.error()


def check_end(log: LogSource, stop: int, committed: bool, skipped: list[Skipped] | None) -> None:
    """Raise damage at the end of a log if a read up to `stop` reaches it: see `check_tail`, `check_transactions`."""
    check_tail(log, stop, skipped)
    if committed and skipped is None:
        check_transactions(log, stop)


def _undecided_at_end(log: LogSource, stop: int) -> Undecided | None:
    """Return the transactions undecided by damage if a committed read up to `stop` reaches the last stable offset."""
    return log.undecided_at_end() if stop >= log.last_stable_offset else None


def record_tables(
    log: LogSource,
    start: int,
    stop: int,
    owner: object = None,
    *,
    committed: bool = False,
    skipped: list[Skipped] | None = None,
) -> Iterator[RecordTable]:
    """Yield tables of the records of all batches with offsets in [start, stop), without control batches.

    The first table may begin below `start` and the last end above `stop`. `committed` leaves out aborted records, too;
    `stop` is then at most the last stable offset. Raises, besides the errors of `batch_chunks`, InvalidRecord for
    damage inside a batch whose CRC is right, and IllegalArgument for an unknown codec.
    """
    found = batch_chunks(log, start, stop, owner, skipped=skipped)
    for chunk in visible_chunks(log, found, committed, stop, skipped):
        yield from chunk.record_tables()


def records(
    log: LogSource,
    start: int,
    stop: int,
    owner: object = None,
    *,
    committed: bool = False,
    skipped: list[Skipped] | None = None,
) -> RecordIterator:
    """Yield the records with offsets in [start, stop), in order; `committed` and errors as for `record_tables`."""
    found = record_tables(log, start, stop, owner, committed=committed, skipped=skipped)
    return RecordIterator(found, start, stop)


def batches(
    log: LogSource, start: int, stop: int, owner: object, committed: bool, skipped: list[Skipped] | None
) -> Iterator[RecordBatch]:
    """Yield the batches that hold offsets in [start, stop), whole; arguments and errors as for `record_tables`."""
    chunks = batch_chunks(log, start, stop, owner, skipped=skipped)
    for chunk in visible_chunks(log, chunks, True, stop, skipped) if committed else chunks:
        for row in range(chunk.first, chunk.last):
            if chunk.batches.base_offset(row) >= stop and first_offset(chunk.data, chunk.batches, row) >= stop:
                return
            begin = chunk.batches.position(row) - chunk.position
            data = chunk.data[begin : begin + chunk.batches.size(row)]
            yield RecordBatch(data, chunk.batches.alone(row), 0)
