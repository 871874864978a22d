"""Writer of records as text: the output of `kafkalog consume` for one partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from kafkalog._core.batch.decode import STATUS_OK, RecordTable
from kafkalog._core.log.txns import is_plain, visible_rows
from kafkalog._core.text.template import IS_DONE, IS_FULL, NEEDS_BYTES, TemplateText
from kafkalog.errors import KafkalogError
from kafkalog.records.format import CompressionType
from kafkalog.records.tables import record_tables
from kafkalog.tools.consume.templates import Pieces
from kafkalog.tools.render_errors import stop_error
from kafkalog.util.readahead import map_ahead

if TYPE_CHECKING:
    from kafkalog.storage.segment_reader import Chunk

MAX_OFFSET = 2**63 - 1
_NO_THREADS: Final = 1
SLOW_CODECS: Final = (CompressionType.GZIP, CompressionType.ZSTD)
"""Codecs slow enough that decompression in another thread pays for the hand-over (measured)."""


class Written(NamedTuple):
    """The number of records written, and the offset to continue from."""

    records: int
    next_offset: int


class Decoded(NamedTuple):
    """A chunk that was decoded before printing: tables of records, then possibly an error."""

    tables: list[RecordTable]
    failure: KafkalogError | None


def write_records(
    chunks: Iterable[Chunk],
    out: BinaryIO,
    pieces: Pieces,
    *,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    max_records: int = -1,
    threads: int | None = None,
) -> Written:
    """Write the records with offsets in [first_offset, end_offset), at most `max_records` (-1: all), to `out`.

    pieces: a template of `kafkalog.tools.consume.templates`. chunks: in the order of their offsets; with `max_records`
    nothing more is taken from it once the last record is written. After each chunk all of its text has been passed to
    `out`, which is not flushed. Control batches are left out. threads: the number of threads that decompress gzip and
    zstd (None: one for each usable core). Plain v2 batches are printed without decoding, others are decoded first.

    InvalidRecord names file, offset and position of a malformed record, CorruptRecord of an invalid message,
    IllegalArgument an unknown codec. Records before it were written.
    """
    text = TemplateText(
        pieces, first_offset=first_offset, end_offset=end_offset, max_records=max_records, check_crc=False
    )
    if max_records == 0 or first_offset >= end_offset:
        return Written(0, first_offset)
    for chunk_or_tables in _prepared_chunks(chunks, _NO_THREADS if max_records >= 0 else threads):
        if isinstance(chunk_or_tables, Decoded):
            is_done = _write_decoded(text, chunk_or_tables, out, end_offset)
        else:
            is_done = _write_plain(text, chunk_or_tables, out)
        if is_done:
            break
    return Written(text.records, text.next_offset)


def write_rows(table: RecordTable, rows: Sequence[int], out: BinaryIO, pieces: Pieces) -> None:
    """Write the records in these rows of a table, in order, by a template: neighbours in one call of the renderer."""
    offsets = table.offsets
    at = 0
    while at < len(rows):
        last = at
        while last + 1 < len(rows) and rows[last + 1] == rows[last] + 1:
            last += 1
        text = TemplateText(pieces, first_offset=offsets[rows[at]], end_offset=offsets[rows[last]] + 1)
        status, row = IS_FULL, rows[at]
        while status == IS_FULL:
            status = text.render_table(table, row)
            _flush_text(text, out)
            row = text.next_row
        at = last + 1


def _prepared_chunks(chunks: Iterable[Chunk], threads: int | None) -> Iterator[Chunk | Decoded]:
    """Yield the chunks, decoded if necessary; in other threads from the first chunk with a slow codec on."""
    remaining = iter(chunks)
    for chunk in remaining:
        if chunk.batches.codec in SLOW_CODECS:
            yield from map_ahead(_prepare, chain((chunk,), remaining), threads=threads)
            return
        yield _prepare(chunk)


def _prepare(chunk: Chunk) -> Chunk | Decoded:
    if is_plain(chunk.batches, chunk.first, chunk.last):
        return chunk
    tables: list[RecordTable] = []
    try:
        visible = visible_rows(chunk.batches, chunk.first, chunk.last)
        first, last = (chunk.first, chunk.last) if visible is chunk.batches else (0, len(visible))
        for table in record_tables(chunk.data, visible, first, last, base_position=chunk.position, path=chunk.path):
            tables.append(table)
    except KafkalogError as error:
        return Decoded(tables, error.with_traceback(None))
    return Decoded(tables, None)


def _write_plain(text: TemplateText, chunk: Chunk, out: BinaryIO) -> bool:
    """Write a chunk and return True if no later chunk has anything to write."""
    table, base = chunk.batches, chunk.position
    at = table.position(chunk.first) - base
    stop = table.position(chunk.last - 1) + table.size(chunk.last - 1) - base
    while True:
        status = text.render(chunk.data, at, stop)
        _flush_text(text, out)
        if status == IS_FULL:
            at = text.position
        elif status == NEEDS_BYTES:
            return False
        elif status == IS_DONE:
            return True
        else:
            raise stop_error(status, text, chunk.path, base)


def _write_decoded(text: TemplateText, chunk_or_tables: Decoded, out: BinaryIO, end_offset: int) -> bool:
    """Write a decoded chunk; return True if no later chunk has anything to write. Damage after the end is ignored."""
    for table in chunk_or_tables.tables:
        status, row = IS_FULL, 0
        while status == IS_FULL:
            status = text.render_table(table, row)
            _flush_text(text, out)
            row = text.next_row
        if status != STATUS_OK:
            return True
    if chunk_or_tables.failure is None:
        return False
    if chunk_or_tables.failure.offset is not None and chunk_or_tables.failure.offset >= end_offset:
        return True
    raise chunk_or_tables.failure


def _flush_text(text: TemplateText, out: BinaryIO) -> None:
    if len(text.text):
        out.write(text.text)
        text.text.clear()
