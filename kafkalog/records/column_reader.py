"""Batches of any format and codec made into columns: which columns there are, and the pieces that come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.column_builder import ColumnBuilder
from kafkalog._core.columns import KIND_NAMES, Columns
from kafkalog._core.scan import BatchTable
from kafkalog.errors import IllegalArgument
from kafkalog.records.compression import DECODED_LIMIT_BYTES
from kafkalog.records.plain_runs import plain_runs

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "COLUMNS", "ColumnReader", "kinds_of"]

COLUMNS: Final = KIND_NAMES
"""The columns of a table: those of Spark's Kafka source, in its order."""
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 8 << 20
"""The most records, and bytes of keys, values and headers, of one record batch; one record may have more."""


def kinds_of(columns: Iterable[str] | None, known: tuple[str, ...] = COLUMNS) -> bytes:
    """The numbers of the columns with these names, in the order given; None is all of `known`.

    IllegalArgument for a name that is no column (it tells the near one), one given twice, and for none at all.
    """
    if columns is None:
        columns = known
    if isinstance(columns, (str, bytes)):
        raise TypeError(f"columns is one {type(columns).__name__}: give a list, [{columns!r}]")
    names = list(columns)
    if not names:
        raise IllegalArgument("no column is asked for", hint=f"there are {', '.join(known)}")
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(str(name).lower(), known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise IllegalArgument(f"there is no column {name!r}", hint=f"{hint}there are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise IllegalArgument("a column is asked for twice", hint=f"columns are {', '.join(names)}")
    return bytes(COLUMNS.index(name) for name in names)


class ColumnReader:
    """Makes chunks of batches, given in order, into Columns of bounded size.

    Only records with rising offsets in [start, stop) are taken; `ended` is True once one at or above `stop` was met.
    Without `start` and `stop` every record is taken.
    `topic` and `partition` are what the columns of that name hold. A reader belongs to one thread at a time.
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
        )

    @property
    def ended(self) -> bool:
        """True when nothing more would be taken."""
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
        """The pieces that rows `first` up to `last` of a batch table made from `data` fill; what is left over stays.

        Arguments and errors as for `records.tables.record_tables`; before an error all records in front of it are
        given.
        """
        builder = self._builder
        for run in plain_runs(data, batches, first, last, base_position=base_position, limit_bytes=limit_bytes):
            row = builder.feed(run.data, run.table, run.first, run.last, base_position=run.base_position)
            while builder.full:
                yield builder.take()
                row = builder.feed(run.data, run.table, row, run.last, base_position=run.base_position)
            if builder.ended:
                return
            run.note(builder)
            if run.failed:
                yield from self.rest()
                run.raise_failure(path)

    def rest(self) -> Iterator[Columns]:
        """The piece with what is left over; none where nothing is."""
        if self._builder.rows:
            yield self._builder.take()
