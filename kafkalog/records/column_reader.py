"""ColumnReader: turns batches of any format and codec into columns; also the list of known columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.arrow.column_builder import ColumnBuilder
from kafkalog._core.arrow.columns import KIND_NAMES, Columns
from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import IllegalArgument
from kafkalog.records.compression import DECODED_LIMIT_BYTES
from kafkalog.records.plain_runs import plain_runs

if TYPE_CHECKING:
    from typing_extensions import Buffer

COLUMNS: Final = KIND_NAMES
"""Columns of a table: those of Spark's Kafka source, in its order."""
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 8 << 20
"""Most records, and most bytes of keys, values and headers, in one record batch; one record may exceed the bytes."""


def kinds_of(columns: Iterable[str] | None, known: tuple[str, ...] = COLUMNS) -> bytes:
    """Return the numbers of the columns with these names, in the given order; None means all of `known`.

    Raises IllegalArgument for an unknown name (with the closest match), a duplicate name, or an empty list.
    """
    if columns is None:
        columns = known
    if isinstance(columns, (str, bytes)):
        raise TypeError(f"columns is a {type(columns).__name__}: give a list, [{columns!r}]")
    names = list(columns)
    if not names:
        raise IllegalArgument("no column is given", hint=f"columns are {', '.join(known)}")
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            nearest = get_close_matches(str(name).lower(), known, n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise IllegalArgument(f"there is no column {name!r}", hint=f"{hint}columns are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise IllegalArgument("a column is given twice", hint=f"columns are {', '.join(names)}")
    return bytes(COLUMNS.index(name) for name in names)


class ColumnReader:
    """Converter of chunks of batches, given in order, into Columns of bounded size.

    Only records with increasing offsets in [start, stop) are read; `ended` is True once a record at or above `stop` was
    met. Without `start` and `stop` every record is read. `topic` and `partition` fill the columns of those names. With
    `chosen`, keys, the values of records with another key are empty. A reader belongs to one thread at a time.
    """

    __slots__ = ("_builder",)

    def __init__(
        self,
        kinds: bytes,
        start: int | None = None,
        stop: int | None = None,
        *,
        topic: str = "",
        partition: int = 0,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        chosen: tuple[bytes, ...] | None = None,
    ) -> None:
        self._builder = ColumnBuilder(
            kinds,
            topic=topic.encode("utf-8", "replace"),
            partition=partition,
            start_offset=start or 0,
            stop_offset=stop or 0,
            every=start is None,
            most_rows=batch_rows,
            most_bytes=batch_bytes,
            chosen=chosen,
        )

    @property
    def ended(self) -> bool:
        """True when no further record would be read."""
        return self._builder.ended

    def read(
        self,
        data: Buffer,
        batches: BatchTable,
        first: int = 0,
        last: int = -1,
        *,
        base_position: int = 0,
        path: str | None = None,
        limit_bytes: int = DECODED_LIMIT_BYTES,
    ) -> Iterator[Columns]:
        """Yield the full pieces of rows `first` up to `last` of a batch table scanned from `data`; keep the rest.

        Arguments and errors as for `records.tables.record_tables`. All records before an error are yielded before it is
        raised.
        """
        builder = self._builder
        for run in plain_runs(data, batches, first, last, base_position=base_position, limit_bytes=limit_bytes):
            row = builder.feed(run.data, run.table, run.first, run.last, base_position=run.base_position)
            while builder.full:
                yield builder.take()
                row = builder.feed(run.data, run.table, row, run.last, base_position=run.base_position)
            if builder.ended:
                return
            run.record_damage(builder)
            if run.failed:
                yield from self.rest()
                run.raise_failure(path)

    def rest(self) -> Iterator[Columns]:
        """Yield the remaining records as one piece, if there are any."""
        if self._builder.rows:
            yield self._builder.take()
