"""Writes records as text: what `kafkalog consume` prints of one partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, NamedTuple, Protocol

from kafkalog._core.scan import BatchTable
from kafkalog._core.template import IS_DONE, IS_FULL, NEEDS_BYTES, TemplateText
from kafkalog.tools.render_errors import stop_error
from kafkalog.tools.templates import Pieces

MAX_OFFSET = 2**63 - 1


class Batches(Protocol):
    """A chunk of whole batches whose checksums are right: rows `first` up to `last` of `batches`.

    `data` begins at `position` of the file `path`; positions in `batches` are the file's.
    """

    @property
    def data(self) -> bytes: ...
    @property
    def batches(self) -> BatchTable: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def position(self) -> int: ...


class Written(NamedTuple):
    """How many records were written, and the offset to go on from."""

    records: int
    next_offset: int


def write_records(
    chunks: Iterable[Batches],
    out: BinaryIO,
    pieces: Pieces,
    *,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    max_records: int = -1,
) -> Written:
    """Writes the records with offsets in [first_offset, end_offset), at most `max_records` (-1: all), to `out`.

    pieces: a template of `kafkalog.tools.templates`. chunks: in the order of their offsets; nothing more is taken from
    it once the last record is written. After each chunk all of its text has been handed to `out`, which is not flushed.
    Control batches are left out. Compressed batches and formats v0 and v1 are refused by name (UnsupportedCompression,
    UnsupportedForFormat); InvalidRecord names file, offset and position of a malformed record. What comes before has
    been written then.
    """
    text = TemplateText(
        pieces, first_offset=first_offset, end_offset=end_offset, max_records=max_records, check_crc=False
    )
    if max_records == 0 or first_offset >= end_offset:
        return Written(0, first_offset)
    for chunk in chunks:
        if _write_chunk(text, chunk, out):
            break
    return Written(text.records, text.next_offset)


def _write_chunk(text: TemplateText, chunk: Batches, out: BinaryIO) -> bool:
    """True when no later chunk has anything to write."""
    table, base = chunk.batches, chunk.position
    at = table.position(chunk.first) - base
    stop = table.position(chunk.last - 1) + table.size(chunk.last - 1) - base
    while True:
        status = text.render(chunk.data, at, stop)
        if len(text.text):
            out.write(text.text)
            text.text.clear()
        if status == IS_FULL:
            at = text.position
        elif status == NEEDS_BYTES:
            return False
        elif status == IS_DONE:
            return True
        else:
            raise stop_error(status, text, chunk.path, base)
