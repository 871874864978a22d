"""Reading a range of offsets chunk by chunk: the batches of a log, checked, and the tables of their records.

One chunk is read with `pread`, scanned and checksummed in one pass and handed on whole. A chunk that is short
or damaged is read again after a fresh look at the log, since its owner may have cut the file meanwhile;
if it is still wrong then, what lies before it has been handed on and the error says where reading stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.decode import RecordTable
from kafkalog._core.record import RecordIterator
from kafkalog._core.scan import REASON_END, REASON_PARTIAL, BatchTable, scan
from kafkalog._core.txns import has_transactions, visible_rows
from kafkalog.engine import closed, cuts, has_cut, refresh
from kafkalog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from kafkalog.records import tables
from kafkalog.storage.file_slice import LOG_OVERHEAD, FileSlice, claimed_size, is_worth_reading
from kafkalog.storage.view_end import rising_rows

if TYPE_CHECKING:
    from kafkalog.engine import Engine
    from kafkalog.types import FetchDataInfo

FIRST_CHUNK_BYTES: Final = 16 << 10
CHUNK_BYTES: Final = 256 << 10
WHOLE_SEGMENT: Final = 2**31 - 1
LOOKS: Final = 4
"""How often the same place must look damaged: its owner may cut the file and write it anew, even twice in a row."""
_HINT: Final = "what lies before it was read; a replica or a backup may have the rest"


class Chunk(NamedTuple):
    """Whole valid batches: rows `first` up to `last` of `batches`, whose bytes are `data`.

    Positions in `batches` are those in the file `path`; `data` begins at `position` there.
    """

    data: bytes
    batches: BatchTable
    first: int
    last: int
    path: str
    position: int

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.batches.last_offset_of(self.last - 1) + 1


def batch_chunks(
    log: Engine, start: int, stop: int, owner: object = None, *, sequential: bool = False, check_crc: bool = True
) -> Iterator[Chunk]:
    """The batches that hold offsets in [start, stop), in order; `stop` at most the log's end.

    `owner`, if given, lives as long as the iterator. `sequential` tells the system that files are read through. Without
    `check_crc` checksums are taken on trust.

    CorruptRecord, with file, offset and position, where the bytes are no whole valid batch;
    OffsetOutOfRange where the log was cut, or its start moved past what comes next.
    """
    trouble: CorruptRecord | None = None
    place: tuple[str | None, int | None] | None = None
    looks = 0
    while start < stop:
        before, cuts_before = start, cuts(log)
        piece: FileSlice | None = None
        last = LastRead()
        try:
            found = log.read(start, WHOLE_SEGMENT)
            if trouble is not None and _passes_over(found, start, trouble):
                raise trouble
            piece = found.records
            if sequential and piece.size > CHUNK_BYTES:
                piece.file.expect_whole_read()
            for chunk in slice_chunks(piece, start, stop, last, check_crc=check_crc):
                log.metrics.reads.add(len(chunk.data))
                yield chunk
                start, trouble = chunk.next_offset, None
                if log.closed:
                    raise closed(log)
        except CorruptRecord as error:
            refresh(log)
            looks = looks + 1 if place == (error.path, error.position) else 1
            if looks == LOOKS or error is trouble:
                raise
            place = error.path, error.position
            trouble = None if has_cut(log, cuts_before) or _has_changed(log, piece, error, start, last) else error
            continue
        if start == before and not has_cut(log, cuts_before):
            if log.log_end_offset < stop:
                raise OffsetOutOfRange(
                    f"the log was cut to end at {log.log_end_offset} while it was read",
                    path=log.path,
                    offset=start,
                )
            return


def _passes_over(found: FetchDataInfo, start: int, trouble: CorruptRecord) -> bool:
    """True where reading would go on behind the place of `trouble`, without the offset that was looked for."""
    piece, place = found.records, found.fetch_offset_metadata
    return piece.path == trouble.path and piece.position > (trouble.position or 0) and place.message_offset > start


class LastRead:
    """What was read last: `asked` bytes from `position` on, fewer where the file had no more."""

    __slots__ = ("asked", "data", "position")

    def __init__(self) -> None:
        self.data = b""
        self.position = self.asked = 0


def _has_changed(log: Engine, piece: FileSlice | None, trouble: CorruptRecord, start: int, last: LastRead) -> bool:
    """True when the file in which reading met trouble has been cut, replaced or rewritten since it was read."""
    segment = log.segments.floor(start)
    if piece is None or segment is None:
        return True
    try:
        now, then = segment.records.slice(0, 0).file.stat(), piece.file.stat()
        if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino) or segment.size <= (trouble.position or 0):
            return True
        if piece.file.pread(last.asked, last.position) != last.data:
            return True
        found = segment.translate_offset(start)
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        return True  # deleted meanwhile
    return found is not None and found[0] == start and found[1] != trouble.position


def slice_chunks(
    piece: FileSlice, start: int, stop: int, last: LastRead, *, check_crc: bool = True
) -> Iterator[Chunk]:
    """The chunks of one segment's slice, from the batch that holds `start` on; CorruptRecord as for `batch_chunks`.

    `last` is told what was read. A batch with which reading would end across a gap is handed on when the next one bears
    it out: base offsets lie outside the checksum, and one that is too high looks like a gap.
    """
    want = FIRST_CHUNK_BYTES
    at = 0
    first = True
    looked_behind = False
    while at < piece.size and start < stop:
        asked = min(want, piece.size - at)
        data = piece.slice(at, asked).read()
        position = piece.position + at
        last.data, last.position, last.asked = data, position, asked
        table = scan(data, file_mode=True, base_position=position, check_crc=check_crc)
        good = rising_rows(table, -1 if first else start)
        sure = _sure_rows(table, good, start, stop)
        if looked_behind and good == len(table):
            sure = good
        if good:
            if table.last_offset_of(0) < start:  # the batch here is not the one that was looked for
                raise _bad_batch(table, 0, start, piece.path)
            if sure:
                yield Chunk(data, table, 0, sure, piece.path, position)
                start = table.last_offset_of(sure - 1) + 1
                first = False
        if sure < good == len(table):  # the next batch is in the next chunk
            at = table.position(sure) - piece.position
            want = table.size(sure) + _next_size(piece, at + table.size(sure))
            looked_behind = True
            continue
        if sure < good:
            raise _contradiction(table, sure, good, start, piece.path)
        if good < len(table):
            raise _bad_batch(table, good, start, piece.path)
        if len(data) < asked:
            raise _cut(piece, position + len(data), start)
        if table.stop_reason not in (REASON_END, REASON_PARTIAL):
            raise _bad_size(table.stop_value, table.stop_position, start, piece.path)
        at += table.valid_bytes
        want = CHUNK_BYTES
        if not good:
            want = max(CHUNK_BYTES, claimed_size(data))
            if at + want > piece.size and asked == piece.size - at:
                raise _cut(piece, position, start)
            if not is_worth_reading(piece.file, position, want):
                raise _bad_size(claimed_size(data) - LOG_OVERHEAD, position, start, piece.path)


def _sure_rows(table: BatchTable, good: int, start: int, stop: int) -> int:
    """How many of the `good` rows to hand on: not the first that reaches `stop`, where that is across a gap and the
    batch behind it, which must begin above it, does not or is not in the table."""
    if not good or table.last_offset_of(good - 1) + 1 < stop:
        return good
    row = next(row for row in range(good) if table.last_offset_of(row) + 1 >= stop)
    expected = table.last_offset_of(row - 1) + 1 if row else start
    if table.base_offset(row) <= expected:
        return good
    if good < len(table):
        return row if table[good].is_valid and table.base_offset(good) <= table.last_offset_of(row) else good
    return row if row == good - 1 else good


def _next_size(piece: FileSlice, at: int) -> int:
    """How many bytes to read at `at` to have the batch there, if it is one."""
    claimed = claimed_size(piece.slice(min(at, piece.size), LOG_OVERHEAD).read())
    is_whole = claimed <= piece.size - at and is_worth_reading(piece.file, piece.position + at, claimed)
    return max(CHUNK_BYTES, claimed) if is_whole else CHUNK_BYTES


def _contradiction(table: BatchTable, row: int, following: int, offset: int, path: str) -> CorruptRecord:
    first, second = table.base_offset(row), table.base_offset(following)
    what = f"a batch begins at offset {first} and one behind it at {second}: one of the two is wrong"
    return CorruptRecord(what, path=path, offset=offset, position=table.position(following), hint=_HINT)


def _bad_batch(table: BatchTable, row: int, offset: int, path: str) -> CorruptRecord:
    batch = table[row]
    if batch.is_valid:
        what = f"the batch begins at offset {batch.base_offset}, below the {offset} that comes next"
    else:
        what = f"the batch of {batch.size} bytes does not match its CRC"
    return CorruptRecord(what, path=path, offset=offset, position=batch.position, hint=_HINT)


def _bad_size(field: int, position: int, offset: int, path: str) -> CorruptRecord:
    what = f"the size field {field} is not that of the batch here"
    return CorruptRecord(what, path=path, offset=offset, position=position, hint=_HINT)


def _cut(piece: FileSlice, position: int, offset: int) -> CorruptRecord:
    return CorruptRecord(
        "the segment ends in the middle of a batch", path=piece.path, offset=offset, position=position, hint=_HINT
    )


def visible_chunks(log: Engine, chunks: Iterable[Chunk], committed: bool) -> Iterator[Chunk]:
    """The chunks with only the rows that a consumer sees: no control batches, and none that is not `committed`.

    With `committed`, what lies at or after the last stable offset must not be among them.
    """
    for chunk in chunks:
        aborted = None
        if committed and has_transactions(chunk.batches, chunk.first, chunk.last):
            aborted = log.aborted_ranges(chunk.batches.base_offset(chunk.first), chunk.next_offset)
        seen = visible_rows(chunk.batches, chunk.first, chunk.last, aborted)
        if seen is chunk.batches:
            yield chunk
        elif len(seen):
            yield chunk._replace(batches=seen, first=0, last=len(seen))


def record_tables(
    log: Engine, start: int, stop: int, owner: object = None, *, committed: bool = False
) -> Iterator[RecordTable]:
    """Tables of the records of all batches that hold offsets in [start, stop), control batches left out.

    The first may begin below `start` and the last end above `stop`. `committed` leaves out aborted records, too;
    `stop` is then at most the last stable offset. Besides the errors of `batch_chunks`: InvalidRecord for damage
    inside a batch whose CRC is right, and IllegalArgument for a codec that is not known.
    """
    for chunk in visible_chunks(log, batch_chunks(log, start, stop, owner), committed):
        yield from tables.record_tables(
            chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
        )


def records(
    log: Engine, start: int, stop: int, owner: object = None, *, committed: bool = False
) -> RecordIterator:
    """The records with offsets in [start, stop), in order; `committed` and errors as for `record_tables`."""
    return RecordIterator(record_tables(log, start, stop, owner, committed=committed), start, stop)
