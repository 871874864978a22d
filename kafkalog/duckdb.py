"""Topics as tables of DuckDB, which read only the columns, partitions, offsets and times that a query needs.

>>> import duckdb
>>> topic = dirs.create_topic("orders", 2)
>>> info = dirs["orders", 1].append([(b"u-1", b"first"), (b"u-2", b"second")])
>>> with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs) as tables:
...     connection.sql('SELECT partition, decode(value) FROM orders WHERE "offset" >= 1').fetchall()
[(1, 'second')]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from kafkalog.tables.dataset import dataset_of
from kafkalog.tables.topic_table import need_arrow
from kafkalog.tables.topics import TopicTables

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset

    from kafkalog.dirs.log_dirs import LogDirs

    Path = str | os.PathLike[str]

__all__ = ["register"]

_NEWEST: Final[WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[str, ref[pyarrow.dataset.Dataset]]]] = (
    WeakKeyDictionary()
)
"""The data set that was registered last under each name of a connection, in lower case as SQL ignores case."""


def register(
    connection: duckdb.DuckDBPyConnection,
    dirs: LogDirs | Path | Iterable[Path],
    topics: Iterable[str] | Mapping[str, str] | None = None,
    *,
    cursor: str | None = None,
    cursors: Path | None = None,
    lateness_ms: int | None = None,
    time_ranges: Path | None = None,
    **options: Any,
) -> TopicTables:
    """Make topics tables of a DuckDB connection, all of them or those in `topics`; nothing is read before a query is.

    `dirs` are data directories, or open ones. A table has its topic's name, or the one that a mapping `topics` gives
    it; names with other characters than letters, digits and _ need double quotes in SQL, as does the column `offset`.
    Each query sees the records that exist when it begins, also while a broker writes. Its columns, and its
    conditions on partition, offset and time as far as DuckDB passes them on, decide what is read.

    `time_ranges` is a directory, not a data directory, where the times of segments are kept: the first query with an
    upper bound of time reads the segments after it, later ones only those that may hold a match. By default they are
    kept in memory. `lateness_ms` is the most by which a record may be older than any record before it in its partition.
    It lets an upper bound of time end the reading; a record that is later than that may be missing from such a query.
    `options` are keywords of `Log.scan`,
    such as `isolation` and `on_damage`. With `cursor` the tables have the records after the positions of that named
    cursor, which `commit()` of the result moves; `cursors` is the directory where it is stored.

    Close the result after use. Raises IllegalArgument for an unknown topic, and for topics whose names differ only in
    case; MissingPackage without pyarrow; the errors of `kafkalog.open_dirs`. An error in a query is DuckDB's, with
    kafkalog's text, file and offset in it; the `failure` of the result is the error itself.
    """
    need_arrow("kafkalog.duckdb", "sql")
    tables = TopicTables(
        dirs, topics, cursor=cursor, cursors=cursors, lateness_ms=lateness_ms, time_ranges=time_ranges, options=options,
    )  # fmt: skip
    try:
        for topic, name in tables.names.items():
            dataset = dataset_of(tables.tables[topic], tables)
            _ = dataset.schema  # raises errors of the options here, not in DuckDB
            connection.register(name, dataset)
            made = ref(dataset)
            _NEWEST.setdefault(connection, {})[name.lower()] = made
            tables._on_close(lambda name=name, made=made: _unregister(connection, name, made))  # type: ignore[misc]
    except BaseException:
        tables.close()
        raise
    return tables


def _unregister(
    connection: duckdb.DuckDBPyConnection, name: str, made: ref[pyarrow.dataset.Dataset]
) -> None:
    """Remove a table, unless the name is another's by now."""
    import duckdb

    newest = _NEWEST.get(connection, {})
    if newest.get(name.lower()) is not made:
        return
    del newest[name.lower()]
    if made() is None:  # the connection replaced it with something else of that name
        return
    with suppress(duckdb.Error):  # the connection is closed, and its tables with it
        connection.unregister(name)
