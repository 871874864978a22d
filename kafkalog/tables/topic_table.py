"""TopicTable: a topic that a query reads by columns and filter, only where the filter can match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.dirs.scan import schema_of_scan, with_decoders
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.log.json_conditions import Conditioned
from kafkalog.log.pruning import possible_ranges, time_ranges_of
from kafkalog.reading.chunks import check_end
from kafkalog.reading.source import isolation_of
from kafkalog.tables.conditions import both
from kafkalog.tables.duckdb_filters import condition_of
from kafkalog.tables.pruning import Limits, columns_to_read, limits_of
from kafkalog.util.packages import needed
from kafkalog.where import Expression, parse
from kafkalog.where.bounds import EVERY, MIN, Spans

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.dirs.log_dirs import LogDirs
    from kafkalog.dirs.window import TopicWindow
    from kafkalog.log.log import Log

_DECODED: Final = {"key_error": "key", "value_error": "value"}


def need_arrow(call: str, extra: str) -> None:
    """Raise MissingPackage if pyarrow is not installed."""
    needed("pyarrow.dataset", f"{call} needs pyarrow ({{}})", extra)


class _Range(NamedTuple):
    """Offsets of a partition that a query reads, the times that it can match, and the end if it can match behind it."""

    log: Log
    start: int
    stop: int
    times: Spans = EVERY
    end: int = -1


class TopicTable:
    """A topic as a table of a query engine: each reading gives some columns of the rows that match a filter.

    `options` are keywords of `Log.scan`. `lateness_ms` is the most by which a record may be older than any record
    before it in its partition; None is any: an upper bound of time then spares only what is known to have other times.
    `window` gives the range of a cursor. The error of the last reading is in `failure`, since an engine replaces it
    by another. `has_undecodable` is True if keys or values that were read did not decode. Threads: any number may read.
    """

    def __init__(
        self,
        dirs: LogDirs,
        topic: str,
        options: dict[str, Any],
        *,
        lateness_ms: int | None = None,
        window: Callable[[], TopicWindow | None] = lambda: None,
    ) -> None:
        refuse_options(options)
        if lateness_ms is not None and lateness_ms < 0:
            raise IllegalArgument(f"lateness_ms is {lateness_ms}", hint="give 0 or more, or None for any")
        self.dirs = dirs
        self.topic = topic
        self.failure: KafkalogError | None = None
        self.has_undecodable = False
        self._options = options
        self._lateness_ms = lateness_ms
        self._window = window
        self._found: list[tuple[pyarrow.Schema, dict[str, Any]]] = []  # by threads; the first counts

    @property
    def schema(self) -> pyarrow.Schema:
        """Schema of all columns."""
        return self._settled()[0]

    def _settled(self) -> tuple[pyarrow.Schema, dict[str, Any]]:
        """Return what `_typed` returned first, for all threads: the types of a later one may differ."""
        if not self._found:
            self._found.append(self._typed())
        return self._found[0]

    def _typed(self) -> tuple[pyarrow.Schema, dict[str, Any]]:
        """Return the schema, and the options with decoders in place of their names."""
        logs = self.dirs.logs(self.topic)
        options = with_decoders(self.topic, logs, None, self._options)
        return schema_of_scan(logs[0].scan(**options, stop=0)), options

    def _check_types(self) -> None:
        """Raise IllegalState if values now show a type that was unknown when the schema was returned."""
        import pyarrow

        if any(pyarrow.types.is_null(field.type) for field in self.schema) and self._typed()[0] != self.schema:
            raise IllegalState(
                f"topic {self.topic} got its first values after its table was made, and they tell its types",
                hint="make the table again, or give a schema",
            )

    def batches(
        self,
        columns: Iterable[str] | None = None,
        filter: pyarrow.compute.Expression | None = None,
        *,
        prune: pyarrow.compute.Expression | None = None,
        condition: Expression | None = None,
    ) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
        """Return the schema and the record batches of the rows that match `filter`, as of this call.

        `prune` and `condition` only limit what is read and decoded: rows that do not match them may be left out.

        Raises UnknownTopicOrPartition if the topic is gone, IllegalState if its first values came after its schema was
        given out, and the errors of `Log.scan`; so does iteration.
        """
        import pyarrow

        self.failure = None
        names = self.schema.names if columns is None else [*columns]
        schema = pyarrow.schema([self.schema.field(name) for name in names])
        try:
            self._check_types()
            ranges = [*self._ranges(filter if prune is None else prune)]
        except KafkalogError as error:
            self.failure = error
            raise
        needed = [*columns_to_read(names, filter, self.schema.names)] or ["offset"]
        found = condition_of(filter, self.schema) if condition is None else condition
        # times have given the ranges; a column with other types in the option `where` is left to the engine
        left = frozenset({"time", *(name for name, one in self._settled()[1].items() if isinstance(one, Conditioned))})
        found = None if found is None else found.split(left)[0]
        return schema, self._read(ranges, needed, names, filter, both(self._own_condition(), found))

    def _own_condition(self) -> Expression | None:
        """Return the condition among the options."""
        given = self._options.get("where")
        return parse(given) if isinstance(given, str) else given

    def _read(
        self,
        ranges: list[_Range],
        needed: list[str],
        names: list[str],
        filter: pyarrow.compute.Expression | None,
        where: Expression | None,
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        # a column of errors comes with the column that is decoded
        scanned = [*dict.fromkeys(_DECODED.get(name, name) for name in needed)]
        decoded = self._settled()[1]
        options = decoded if where is None else {**decoded, "where": where}
        try:
            for piece in chain.from_iterable(self._scans(part, scanned, options) for part in ranges):
                batch = pyarrow.record_batch(piece)
                if filter is None:
                    yield batch.select(names)
                    continue
                rows = pyarrow.Table.from_batches([batch]).filter(filter).select(names)
                yield from rows.to_batches()
        except KafkalogError as error:
            self.failure = error
            raise

    def _scans(self, part: _Range, columns: list[str], options: dict[str, Any]) -> Iterator[Any]:
        """Yield the record batches of a range, without the parts whose times the query cannot match."""
        is_empty = part.start >= part.stop
        ranges = () if is_empty else possible_ranges(time_ranges_of(part.log), part.start, part.stop, part.times)
        for start, stop in ranges:
            scan = part.log.scan(columns, **options, start=start, stop=stop)
            try:
                yield from scan
            finally:
                self.has_undecodable = self.has_undecodable or bool(getattr(scan, "undecodable", 0))
        if part.end >= 0 and self._options.get("on_damage") != "skip":
            is_committed = isolation_of(self._options.get("isolation")) == "committed"
            check_end(part.log._source, part.end, is_committed, None)

    def _ranges(self, filter: pyarrow.compute.Expression | None) -> Iterator[_Range]:
        """Yield the ranges of offsets in which rows can match."""
        logs = {log.partition: log for log in self.dirs._all_logs(self.topic)}
        window = self._window()
        for number, limits in limits_of(filter, self.schema, self.topic, logs).items():
            log = logs[number]
            bounds = {} if window is None else window.bounds(log)
            found = self._range(log, limits, bounds.get("start"), bounds.get("stop"))
            if found.start < found.stop or found.end >= 0:
                yield found

    def _range(self, log: Log, limits: Limits, start: int | None, stop: int | None) -> _Range:
        reading = {name: self._options[name] for name in ("isolation", "on_damage") if name in self._options}
        base = log.scan(["offset"], start=start, stop=stop, **reading)
        first, last = max(base.start, limits.first), min(base.stop, limits.stop)
        end = base.stop if limits.stop > base.stop else -1
        if first < last and limits.since is not None:
            first = max(first, _first_at(log, limits.since, otherwise=(last, first)))
        if first >= last or limits.until is None:
            return _Range(log, first, last, end=end)
        if self._lateness_ms is None:
            since = MIN if limits.since is None else limits.since
            return _Range(log, first, last, ((since, limits.until),), end)
        found = _first_at(log, limits.until + self._lateness_ms, otherwise=(last, last))
        return _Range(log, first, min(last, found), end=end if found >= last else -1)


def _first_at(log: Log, time_ms: int, *, otherwise: tuple[int, int]) -> int:
    """Return the offset of the first record at or after a time.

    `otherwise` is the result if there is none, and the one if damage hides it: reading meets the damage.
    """
    try:
        found = log.offset_for_time(time_ms)
    except KafkalogError:  # damage, or a segment that is being deleted
        return otherwise[1]
    return otherwise[0] if found is None else found.offset


def refuse_options(options: dict[str, Any]) -> None:
    """Raise IllegalArgument for options of a scan that a query has by its own means."""
    for name in ("columns", "start", "stop", "since", "until", "order", "project"):
        if name in options:
            raise IllegalArgument(f"a table takes no {name}", hint="the query says which columns and rows it wants")
