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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage
from kafkalog.tables.topic_table import need_arrow
from kafkalog.tables.topics import TopicTables

if TYPE_CHECKING:
    import polars

    from kafkalog.dirs.log_dirs import LogDirs

    Path = str | os.PathLike[str]

__all__ = ["scan"]


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
    its number of rows, and its conditions on partition, offset and time decide what is read.

    Raises IllegalArgument for an unknown topic; MissingPackage without Polars or pyarrow; the errors of
    `kafkalog.open_dirs`. Collecting raises the errors of reading.
    """
    need_arrow("kafkalog.polars", "polars")
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingPackage(f"kafkalog.polars needs polars ({error})", hint="pip install 'kafkalog[polars]'") from None
    from kafkalog.tables.polars_filters import arrow_filter

    tables = TopicTables(dirs, [topic], lateness_ms=lateness_ms, time_ranges=time_ranges, options=options)
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
        _, batches = table.batches(needed, prune=None if rows is not None else arrow_filter(predicate, table.schema))
        for batch in batches:
            frame = polars.DataFrame(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - len(frame)
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)
            if left == 0:
                return

    return register_io_source(read, schema=empty.schema)
