"""Search for a key or by a condition: reads from an offset on, reports progress, and stops on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalog._core.batch.decode import RecordTable
from kafkalog.errors import KafkalogError
from kafkalog.reading.chunks import Chunk, batch_chunks, visible_chunks
from kafkalog.records.column_reader import BATCH_ROWS, ColumnReader, kinds_of
from kafkalog.records.table import RecordBatchColumns
from kafkalog.storage.readonly.view import LogView

if TYPE_CHECKING:
    from kafkalog.where import Expression

    Select = Callable[[Expression, Callable[[str], list[bytes]], str], "Predicate"]
    """Makes a predicate of a condition, of a function that returns the first keys or values, and of a topic."""

SEARCH_BYTES: Final = 256 << 20
"""Bytes of batches after which a search stops and reports that; repeated, it continues."""
_ESCAPE: Final = re.compile(rb"\\(\\|x[0-9a-fA-F]{2})")
_SAMPLE_ROWS: Final = 1000
_SAMPLE_BYTES: Final = 16 << 20
"""Limits of the values from which types without a schema are inferred; the last piece read may exceed them."""
_CONDITION: Final = re.compile(r"==|!=|\s(?:[<>]=?|like|in|matches|is)\s", re.IGNORECASE)
"""Marks a text that is meant as a condition even if it is none."""


class Predicate(Protocol):
    """A condition on the columns of records: an `Expression`, or one with decoders."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that `mask` needs."""

    def mask(self, batch: Any) -> Any:
        """Return true, false or null for each row of a record batch."""


class Search(NamedTuple):
    """Result of a search: the offset of the record (None if not found), and the offset to continue from."""

    offset: int | None
    next_offset: int
    read_bytes: int
    is_done: bool
    """True if the log's end was reached or the record was found."""


def parse_key(text: str) -> bytes:
    r"""Parse a key from text: UTF-8, with `\xff` for any byte and `\\` for a backslash, as keys are displayed.

    >>> parse_key("u-17"), parse_key(r"\\xff\\x00"), parse_key(r"a\\\\b")
    (b'u-17', b'\xff\x00', b'a\\b')
    """

    def byte(found: re.Match[bytes]) -> bytes:
        return b"\\" if found[1] == b"\\" else bytes([int(found[1][1:], 16)])

    return _ESCAPE.sub(byte, text.encode("utf-8", "surrogateescape"))


def parse_search(text: str, *, decodes: bool = False) -> bytes | Expression:
    r"""Parse what to search for: a condition (docs/where.md), or else a key as `parse_key` does.

    With `decodes` a condition on keys and values is not checked: that needs their types. Raises IllegalArgument for a
    condition that is wrong; MissingPackage.

    >>> parse_search("u-17"), parse_search("key like 'eu-%' and size > 100")
    (b'u-17', <Expression key like 'eu-%' and size > 100>)
    """
    if not _CONDITION.search(text):
        return parse_key(text)
    from kafkalog.where import parse

    expression = parse(text)
    if not (decodes and expression.typed_roots):
        expression.check()
    return expression


def predicate_for(expression: Expression, select: Select | None, view: LogView) -> Predicate:
    """Return a condition with the decoders of `select`, if it looks into keys or values; else the condition itself."""
    if select is None or not expression.typed_roots:
        return expression
    return select(expression, partial(_first_values, view), view.topic_partition.topic)


def _first_values(view: LogView, root: str) -> list[bytes]:
    """Return the first keys or values of a log that are not null; the search itself meets damage."""
    start, end = view.log_start_offset, view.log_end_offset
    found: list[bytes] = []
    size = 0
    with suppress(KafkalogError):
        for chunk in visible_chunks(view, batch_chunks(view, start, end, sequential=True, skipped=[]), False, end, []):
            for piece in _batches(view, [root], chunk, start, end, _SAMPLE_ROWS):
                some = [one for one in piece[root] if one is not None]
                found += some
                size += sum(map(len, some))
                if len(found) >= _SAMPLE_ROWS or size >= _SAMPLE_BYTES:
                    return found[:_SAMPLE_ROWS]
    return found


def _batches(
    view: LogView, columns: Iterable[str], chunk: Chunk, start: int, stop: int, rows: int = BATCH_ROWS
) -> Iterator[RecordBatchColumns]:
    """Yield the columns of a chunk's records with offsets in [start, stop)."""
    where = view.topic_partition
    reader = ColumnReader(
        kinds_of(columns), start, stop, topic=where.topic, partition=where.partition, batch_rows=rows
    )
    pieces = reader.read(
        chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
    )
    return map(RecordBatchColumns, chain(pieces, reader.rest()))


def find_match(
    view: LogView,
    predicate: Predicate,
    start: int,
    keep_going: Callable[[int, int], bool],
    most_bytes: int = SEARCH_BYTES,
) -> Search:
    """Find the first record at or after `start` for which a condition is true.

    Arguments and errors are those of `find_key`.
    """
    return _find(view, partial(matching_offsets, view, predicate), start, keep_going, most_bytes)


def matching_offsets(view: LogView, predicate: Predicate, chunk: Chunk, start: int, stop: int) -> Iterator[int]:
    """Yield the offsets in [start, stop) of a chunk's records for which the condition is true."""
    import pyarrow

    for piece in _batches(view, dict.fromkeys(("offset", *predicate.columns)), chunk, start, stop):
        batch = pyarrow.record_batch(piece)
        yield from batch.column("offset").filter(predicate.mask(batch)).to_pylist()


def key_offsets(key: bytes, chunk: Chunk, start: int, stop: int) -> Iterator[int]:
    """Yield the offsets in [start, stop) of a chunk's records with exactly this key."""
    for table in chunk.record_tables():
        yield from _with_key(table, key, start, stop)


def find_key(
    view: LogView, key: bytes, start: int, keep_going: Callable[[int, int], bool], most_bytes: int = SEARCH_BYTES
) -> Search:
    """Find the first record at or after `start` with exactly this key.

    `keep_going` is called before each chunk with the offset and the bytes read so far; False ends the search. Raises
    CorruptRecord at damage; InvalidRecord, StorageError.
    """
    return _find(view, partial(key_offsets, key), start, keep_going, most_bytes)


def _find(
    view: LogView,
    offsets_in: Callable[[Chunk, int, int], Iterator[int]],
    start: int,
    keep_going: Callable[[int, int], bool],
    most_bytes: int,
) -> Search:
    at, read, end = max(start, view.log_start_offset), 0, view.log_end_offset
    for chunk in visible_chunks(view, batch_chunks(view, at, end, sequential=True), False, end, None):
        if read >= most_bytes or not keep_going(at, read):
            return Search(None, at, read, False)
        found = next(offsets_in(chunk, at, end), None)
        if found is not None:
            return Search(found, found + 1, read, True)
        at = max(at, chunk.next_offset)
        read += len(chunk.data)
    return Search(None, end, read, True)


def _with_key(table: RecordTable, key: bytes, start: int, stop: int) -> Iterator[int]:
    """Yield the offsets in [start, stop) of the records with the key."""
    from kafkalog.records.arrays import numpy

    for row in numpy.flatnonzero(numpy.asarray(table.key_sizes) == len(key)).tolist():
        if start <= table.offsets[row] < stop and table.key(row) == key:
            yield int(table.offsets[row])
