"""Topics as lazy frames of Polars, which read only the columns, partitions, offsets and times that a query needs.

>>> import polars
>>> topic = dirs.create_topic("orders", 2)
>>> info = dirs["orders", 1].append([(b"u-1", b"first"), (b"u-2", b"second")])
>>> orders = kafkalog.polars.scan(dirs, "orders")
>>> orders.filter(polars.col("offset") >= 1).select("partition", "value").collect().rows()
[(1, b'second')]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.tables.topic_table import need_arrow
from kafkalog.tables.topics import TopicTables
from kafkalog.util.packages import needed

if TYPE_CHECKING:
    import polars

    from kafkalog.dirs.log_dirs import LogDirs

    Path = str | os.PathLike[str]

__all__ = ["TopicFrames", "frames", "scan"]


def scan(
    dirs: LogDirs | Path | Iterable[Path],
    topic: str,
    *,
    lateness_ms: int | None = None,
    time_ranges: Path | None = None,
    **options: Any,
) -> polars.LazyFrame:
    """Return a topic as a LazyFrame of Polars; nothing is read before it is collected.

    `dirs`, `lateness_ms`, `time_ranges` and `options` are as for `kafkalog.duckdb.register`. The columns of the query,
    its number of rows, and its conditions on partition, offset and time decide what is read; those on keys, values and
    their fields what is decoded. `frames` has the records after a cursor.

    Raises IllegalArgument for an unknown topic; MissingPackage without Polars or pyarrow; the errors of
    `kafkalog.open_dirs`. Collecting raises the errors of reading.
    """
    _need_polars()
    tables = TopicTables(dirs, [topic], lateness_ms=lateness_ms, time_ranges=time_ranges, options=options)
    return _frame(tables, topic)


def frames(
    dirs: LogDirs | Path | Iterable[Path],
    topics: Iterable[str] | Mapping[str, str] | None = None,
    *,
    cursor: str | None = None,
    cursors: Path | None = None,
    lateness_ms: int | None = None,
    time_ranges: Path | None = None,
    **options: Any,
) -> TopicFrames:
    """Return topics as LazyFrames by their names, all of them or those in `topics`, with one cursor for all.

    Arguments and errors are as for `kafkalog.duckdb.register`: with `cursor` the frames have the records after the
    positions of that named cursor, which `commit()` of the result moves, up to the ends as of the first query. Close
    the result after use.

    >>> topic = dirs.create_topic("orders", 2)
    >>> info = dirs["orders", 1].append([b"first", b"second"])
    >>> with kafkalog.polars.frames(dirs, cursor="reports", cursors="cursors") as frames:
    ...     frames["orders"].select("value").collect().to_series().to_list()
    ...     frames.commit()
    ...     frames["orders"].collect().height
    [b'first', b'second']
    {'orders': {0: 0, 1: 2}}
    0
    """
    _need_polars()
    return TopicFrames(
        dirs, topics, cursor=cursor, cursors=cursors, lateness_ms=lateness_ms, time_ranges=time_ranges, options=options,
    )  # fmt: skip


class TopicFrames(TopicTables):
    """Topics as lazy frames: `frames["orders"]` is that of a topic, `names` are those of the frames by topic.

    >>> topic = dirs.create_topic("orders")
    >>> frames = kafkalog.polars.frames(dirs, {"orders": "o"}, cursor="reports", cursors="cursors")
    >>> frames, frames.names, list(frames), frames["o"].collect().height
    (<TopicFrames o>, {'orders': 'o'}, ['o'], 0)
    >>> frames.failure, frames.commit()
    (None, {'orders': {0: 0}})
    >>> frames.close()
    """

    def __getitem__(self, name: str) -> polars.LazyFrame:
        for topic, known in self.names.items():
            if known == name:
                return _frame(self, topic)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names.values())

    def __len__(self) -> int:
        return len(self.names)


def _need_polars() -> None:
    """Raise MissingPackage if Polars or pyarrow is not installed."""
    need_arrow("kafkalog.polars", "polars")
    needed("polars", "kafkalog.polars needs polars ({})", "polars")


def _frame(tables: TopicTables, topic: str) -> polars.LazyFrame:
    """Return a topic of the tables as a LazyFrame, which keeps them open."""
    import polars
    from polars.io.plugins import register_io_source

    from kafkalog.tables.polars_filters import arrow_filter, condition_of

    table = tables.tables[topic]
    empty = polars.DataFrame(table.schema.empty_table())

    def read(
        columns: list[str] | None, predicate: polars.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[polars.DataFrame]:
        left = rows
        assert tables.tables  # they close the directories when no frame needs them
        needed = columns
        if columns is not None and predicate is not None:
            needed = [*dict.fromkeys((*columns, *predicate.meta.root_names()))]
        # with both, Polars means the first rows of the topic, and of these the ones that match
        condition = None if rows is not None else condition_of(predicate, table.schema)
        _, batches = table.batches(needed, prune=arrow_filter(condition, table.schema), condition=condition)
        for batch in batches:
            frame = polars.DataFrame(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - len(frame)
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)
            if left == 0:
                return

    return register_io_source(read, schema=empty.schema)
