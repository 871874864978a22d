"""Scans of a topic: all of its partitions as columns, read on use, by partition or by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from kafkalog.dirs.merge import merged_by_time, piece_limits
from kafkalog.errors import IllegalArgument
from kafkalog.log.scan import SCHEMA_OPTIONS, TYPED_OPTIONS, ArrowScan, ColumnScan, LogScan
from kafkalog.records.column_reader import BATCH_BYTES, BATCH_ROWS, kinds_of
from kafkalog.util.closing import Closing
from kafkalog.util.packages import needed

if TYPE_CHECKING:
    import pyarrow

    from kafkalog._core.arrow.columns import Columns
    from kafkalog.dirs.window import TopicWindow
    from kafkalog.log.log import Log
    from kafkalog.log.typed_keywords import Projection
    from kafkalog.log.typed_scan import TypedScan

    Order = Literal["partition", "time"]

TIME_COLUMN: Final = "timestamp"
_READING: Final = ("since", "until", "isolation", "on_damage")


def scan_topic(
    topic: str,
    logs: Iterable[Log],
    columns: Iterable[str] | None,
    order: Order,
    window: TopicWindow | None = None,
    **options: Any,
) -> TopicScan | ArrowTopicScan:
    """Return the scan of a topic's partitions for the arguments of `LogDirs.scan`."""
    if order not in ("partition", "time"):
        raise IllegalArgument(f"order is {order!r}", hint="give 'partition' or 'time'")
    names = None if columns is None else [*columns]
    if order == "time":
        return _merge_scan(topic, [*logs], names, window, options)
    scans = _scans_of(topic, [*logs], names, window, options)
    plain = tuple(scan for scan in scans if isinstance(scan, LogScan))
    if len(plain) == len(scans):
        return TopicScan(topic, plain, names, window)
    return ArrowTopicScan(topic, scans, window)


def _merge_scan(
    topic: str, logs: list[Log], names: list[str] | None, window: TopicWindow | None, options: dict[str, Any]
) -> ArrowTopicScan:
    rows, size = options.pop("batch_rows", BATCH_ROWS), options.pop("batch_bytes", BATCH_BYTES)
    time, is_hidden = TIME_COLUMN, False
    if options.get("project") is not None:
        options["project"], time = _project_with_time(options["project"])
        is_hidden = True
    elif names and TIME_COLUMN not in names:
        names, is_hidden = [*names, TIME_COLUMN], True
    limits = dict(zip(("batch_rows", "batch_bytes"), piece_limits(len(logs), rows, size), strict=True))
    scans = _scans_of(topic, logs, names, window, {**options, **limits})
    for scan in scans:
        plain = scan if isinstance(scan, LogScan) else scan.scan
        plain.reads_ahead = False  # else each partition would hold what its threads decode ahead
    return ArrowTopicScan(topic, scans, window, by=time, hides_time=is_hidden, batch_rows=rows)


def _project_with_time(project: Projection) -> tuple[Projection, str]:
    """Return a projection with the time under a name that it does not use, and that name.

    One that a scan refuses is returned as it is.
    """
    if isinstance(project, str):
        return project, TIME_COLUMN
    pairs = [*project.items()] if isinstance(project, Mapping) else [(path, path) for path in project]
    named = dict(pairs)
    if not named or len(named) < len(pairs):
        return [name for name, _ in pairs], TIME_COLUMN
    hidden = TIME_COLUMN
    while hidden in named:
        hidden += "_"
    return {**named, hidden: TIME_COLUMN}, hidden


def _scans_of(
    topic: str, logs: list[Log], names: list[str] | None, window: TopicWindow | None, options: dict[str, Any]
) -> tuple[LogScan | TypedScan, ...]:
    """Return the scans of the partitions; their keys and values are decoded by the same decoders, to the same types."""
    bounds: Callable[[Log], dict[str, Any]] = (lambda _: {}) if window is None else window.bounds
    options = with_decoders(topic, logs, names, options, bounds)
    return tuple(log.scan(names, **options, **bounds(log)) for log in logs)


def with_decoders(
    topic: str,
    logs: Iterable[Log],
    names: list[str] | None,
    options: dict[str, Any],
    bounds: Callable[[Log], dict[str, Any]] = lambda _: {},
    samples: dict[str, list[bytes]] | None = None,
    typical: Mapping[str, bytes] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the options with decoders in place of their names; types that no schema gives are those of all logs.

    `samples` are values by column, read before; those read here are put in it. A `typical` value of a column counts
    as one more in front of them.
    """
    known = {} if samples is None else samples
    if not any(isinstance(options.get(root), str) for root in ("key", "value")):
        return options
    from kafkalog.log.typed_keywords import selection_of
    from kafkalog.log.typed_scan import SAMPLE_ROWS, first_values

    reading = {name: options[name] for name in _READING if name in options}

    def sample(root: str) -> list[bytes]:
        if root not in known:
            scans = (log.scan([root], batch_rows=SAMPLE_ROWS, **reading, **bounds(log)) for log in logs)
            found = first_values(scans, root)
            known[root] = [typical[root], *found] if found and root in typical else found
        return known[root]

    typed = {name: options[name] for name in TYPED_OPTIONS if options.get(name) is not None}
    found = selection_of(names, typed, sample, topic).decoders
    return {name: value for name, value in options.items() if name not in SCHEMA_OPTIONS} | found


class _Windowed(Closing):
    """The part of a scan that has a cursor."""

    __slots__ = ()
    _window: TopicWindow | None

    def commit(self) -> dict[int, int]:
        """Store the ends of this scan in its cursor, so that the next scan of it starts there; return them.

        The ends are those at the creation of the scan, by partition number. Raises IllegalArgument for a scan without a
        cursor; StorageError.

        >>> topic = dirs.create_topic("orders")
        >>> info = dirs["orders", 0].append([b"first", b"second"])
        >>> with dirs.scan("orders", cursor="reports", cursors="cursors") as scan:
        ...     len(scan.table()), scan.commit()
        (2, {0: 2})
        >>> with dirs.scan("orders", cursor="reports", cursors="cursors") as scan:
        ...     len(scan.table())
        0
        """
        if self._window is None:
            raise IllegalArgument("this scan has no cursor", hint='give one: dirs.scan("orders", cursor="reports")')
        return self._window.commit()

    def close(self) -> None:
        """Release the scan's cursor, if it has one; what is not committed stays for the next scan of the cursor.

        >>> topic = dirs.create_topic("orders")
        >>> dirs.scan("orders", cursor="reports", cursors="cursors").close()
        """
        if self._window is not None:
            self._window.close()


class TopicScan(ColumnScan, _Windowed):
    """The records of a topic's partitions as columns, read on use: partition after partition, each by offset.

    Like a `LogScan`, it has the Arrow C stream interface, so DuckDB, Polars and pyarrow read it in bounded memory, and
    iteration yields the same record batches. `scans` are those of the partitions, with their bounds; errors are theirs.

    >>> topic = dirs.create_topic("orders", 2)
    >>> for number in (0, 1):
    ...     info = dirs["orders", number].append([b"first", b"second"])
    >>> scan = dirs.scan("orders", ["partition", "offset", "value"])
    >>> scan, scan.topic, len(scan.scans), scan.columns
    (<TopicScan orders, 2 partitions: partition, offset, value>, 'orders', 2, ('partition', 'offset', 'value'))
    >>> scan.table().offsets.tolist(), len(scan.to_pandas()), len(scan.to_polars())
    ([0, 1, 0, 1], 4, 4)
    """

    __slots__ = ("_kinds", "_window", "scans", "topic")

    def __init__(
        self, topic: str, scans: tuple[LogScan, ...], columns: list[str] | None, window: TopicWindow | None = None
    ) -> None:
        self.topic = topic
        self.scans = scans
        self._kinds = kinds_of(columns)
        self._window = window

    def _pieces(self) -> Iterator[Columns]:
        return chain.from_iterable(scan._pieces() for scan in self.scans)

    def __repr__(self) -> str:
        return f"<TopicScan {_described(self.topic, len(self.scans))}: {', '.join(self.columns)}>"


class ArrowTopicScan(ArrowScan, _Windowed):
    """The records of a topic's partitions as pyarrow record batches, read on use: by time, or with typed columns.

    By time, the partitions are merged: the oldest of their next records follows; at equal times the one of the lowest
    partition. Each partition keeps the order of its offsets, also where its times fall: such a record follows the one
    before it at once. About 64 MiB of keys, values and headers are held, and up to 5 MiB more for each partition.

    It has the Arrow C stream interface; iteration yields record batches, and `table()` is a pyarrow Table. Raises
    MissingPackage if pyarrow is not installed. An error of a partition is raised after the rows before it.

    >>> topic = dirs.create_topic("orders", 2)
    >>> for number, times in enumerate(([1000, 3000], [2000, 4000])):
    ...     info = dirs["orders", number].append([(None, b"-", time) for time in times])
    >>> scan = dirs.scan("orders", ["partition", "offset"], order="time")
    >>> scan, scan.topic, scan.is_by_time, len(scan.scans), scan.columns
    (<ArrowTopicScan orders, 2 partitions by time: partition, offset>, 'orders', True, 2, ('partition', 'offset'))
    >>> scan.table()["partition"].to_pylist(), len(scan.to_pandas()), len(scan.to_polars())
    ([0, 1, 0, 1], 4, 4)
    """

    __slots__ = ("_batch_rows", "_by", "_hides_time", "_window", "is_by_time", "scans", "topic")

    def __init__(
        self,
        topic: str,
        scans: tuple[LogScan | TypedScan, ...],
        window: TopicWindow | None = None,
        *,
        by: str | None = None,
        hides_time: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        _pyarrow()
        self.topic = topic
        self.scans = scans
        self.is_by_time = by is not None
        self._by = by
        self._window = window
        self._hides_time = hides_time
        self._batch_rows = batch_rows

    @property
    def schema(self) -> pyarrow.Schema:
        """Schema of the record batches.

        >>> topic = dirs.create_topic("orders")
        >>> dirs.scan("orders", ["offset"], order="time").schema.names
        ['offset']
        """
        schema = schema_of_scan(self.scans[0])
        return schema.remove(schema.get_field_index(self._by)) if self._hides_time else schema

    @property
    def undecodable(self) -> int:
        """Number of keys and values that did not decode, in the readings that began last.

        >>> topic = dirs.create_topic("orders")
        >>> dirs.scan("orders", value="string").undecodable
        0
        """
        return sum(0 if isinstance(scan, LogScan) else scan.undecodable for scan in self.scans)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        pa = _pyarrow()
        inputs = [(pa.record_batch(piece) for piece in scan) for scan in self.scans]
        if self._by is None:
            yield from chain.from_iterable(inputs)
            return
        shown: list[int] | None = None
        for batch in merged_by_time(inputs, self._by, self._batch_rows):
            if self._hides_time:
                shown = shown or [at for at, name in enumerate(batch.schema.names) if name != self._by]
                batch = batch.select(shown)
            yield batch

    def __repr__(self) -> str:
        order = " by time" if self.is_by_time else ""
        return f"<ArrowTopicScan {_described(self.topic, len(self.scans))}{order}: {', '.join(self.columns)}>"


def schema_of_scan(scan: Any) -> pyarrow.Schema:
    """Return the schema of a log's scan, plain or typed."""
    if hasattr(scan, "__arrow_c_schema__"):
        return _pyarrow().schema(scan)
    return _pyarrow().RecordBatchReader.from_stream(scan).schema


def _pyarrow() -> Any:
    return needed("pyarrow", "this scan of a topic needs pyarrow ({})", "arrow")


def _described(topic: str, partitions: int) -> str:
    return f"{topic}, {partitions} partition{'' if partitions == 1 else 's'}"


