"""Results of benchmarks: one each, as lines like db_bench's, tables, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from kafkalog.inspect.rows import Column, Rows
from kafkalog.util.text import plural

if TYPE_CHECKING:
    from kafkalog.bench.meter import Latencies, Meter
    from kafkalog.bench.settings import Settings
    from kafkalog.bench.surroundings import Surroundings

_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_NAME: Final = 12
_MEGA: Final = 1_000_000


@dataclass(frozen=True)
class Latency:
    """Times of single operations in microseconds; `count` operations were timed.

    A quantile is None if too few were timed for a time above it.

    >>> Latency(2, 4.5, None, None, None, 7.5).shown
    {'p50': 4.5, 'max': 7.5}
    """

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    p99_9: float | None
    max: float | None

    @classmethod
    def of(cls, found: Latencies) -> Latency:
        """Return the quantiles of the counted times."""
        times = (found.quantile(share) for share in _QUANTILES.values())
        p50, p95, p99, p99_9 = (None if ns is None else ns / 1000 for ns in times)
        return cls(found.count, p50, p95, p99, p99_9, found.largest / 1000 if found.count else None)

    @property
    def shown(self) -> dict[str, float]:
        """Known quantiles and the maximum, by name."""
        values = zip((*_QUANTILES, "max"), (self.p50, self.p95, self.p99, self.p99_9, self.max), strict=True)
        return {name: value for name, value in values if value is not None}


@dataclass(frozen=True)
class Result:
    """Result of one benchmark: operations, bytes and time.

    `ops` is the number of operations (of kind `unit`), `asked` the number requested, None if unknown. They covered
    `records` records of `size` bytes in `seconds`, without the pauses that prepare the next operations. `ended_early`
    is True if the time limit ended it. `cached` is the share of the log's bytes that was in memory before, None if
    unknown or nothing was read. `notes` are further remarks.

    >>> found = Result("fillbatch", "batch", 10, 10, 1000, 116_000, 0.5, Latency(0, None, None, None, None, None))
    >>> found.ops_per_s, found.micros_per_op, found.mb_per_s
    (20.0, 50000.0, 0.232)
    """

    name: str
    unit: str
    ops: int
    asked: int | None
    records: int
    size: int
    seconds: float
    latency: Latency
    ended_early: bool = False
    cached: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, unit: str, asked: int | None, meters: Iterable[Meter], **more: Any) -> Result:
        """Return the result of the meters of one or several threads."""
        several = list(meters)
        first = several[0]
        for other in several[1:]:
            first.latencies.merge(other.latencies)
        busy = [one for one in several if one.ended_ns]
        if len(busy) == 1:
            spent = busy[0].busy_ns
        else:
            spent = max((one.ended_ns for one in busy), default=0) - min((one.begun_ns for one in busy), default=0)
        ops, records, size = (sum(getattr(one, what) for one in several) for what in ("ops", "records", "bytes"))
        early = any(one.was_cut for one in several) if asked is None else ops < asked
        latency = Latency.of(first.latencies)
        return cls(name, unit, ops, asked, records, size, spent / 1e9, latency, early, **more)

    @property
    def micros_per_op(self) -> float | None:
        """Microseconds per operation."""
        return self.seconds * 1e6 / self.ops if self.ops else None

    @property
    def ops_per_s(self) -> float | None:
        """Operations per second."""
        return self.ops / self.seconds if self.seconds else None

    @property
    def mb_per_s(self) -> float | None:
        """Megabytes (10^6 bytes) per second; None for a benchmark without bytes."""
        return self.size / _MEGA / self.seconds if self.size and self.seconds else None

    def remarks(self) -> list[str]:
        """Return the remarks after the figures of a line."""
        found = []
        if self.ended_early:
            of = "" if self.asked is None else f": {self.ops:,} of {plural(self.asked, self.unit)}"
            found.append(f"ended early{of}")
        if self.records != self.ops:
            found.append(f"{self.records:,} records in {plural(self.ops, self.unit)}")
        if self.cached is not None:
            found.append(f"cached {self.cached:.0%}")
        return [*found, *self.notes]

    def as_dict(self) -> dict[str, object]:
        """Return all fields and figures, for JSON."""
        figures = {name: getattr(self, name) for name in ("micros_per_op", "ops_per_s", "mb_per_s")}
        found = {**asdict(self), **figures, "latency_us": asdict(self.latency), "bytes": self.size}
        return {name: value for name, value in found.items() if name not in ("name", "latency", "size")}


def lines(result: Result, width: int) -> Iterator[str]:
    """Yield a line like db_bench's, wrapped for a terminal of that width."""
    figures = [f"{_figure(result.micros_per_op):>11} micros/op", f"{_figure(result.ops_per_s, 0):>9} ops/s"]
    if result.mb_per_s is not None:
        figures.append(f"{_figure(result.mb_per_s, 1):>7} MB/s")
    if result.latency.count > 1:
        figures.append(" ".join(f"{name} {_short(value)}" for name, value in result.latency.shown.items()))
    line = f"{result.name:<{_NAME}} :"
    for number, part in enumerate([*figures, *result.remarks()]):
        longer = f"{line}{' ' if number == 0 else '; '}{part}"
        if len(longer) < width or not number:
            line = longer
            continue
        yield f"{line};"
        *whole, line = wrap(part.lstrip(), width - 1, initial_indent="  ", subsequent_indent="  ")
        yield from whole
    yield line


def _short(value: float) -> str:
    return _figure(value, 0 if value >= 100 else 1 if value >= 10 else 2)


def _figure(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{value:,.{digits}f}"


COLUMNS: Final = (
    Column("benchmark", lambda one: one.name, "name"),
    Column("ops", lambda one: one.ops, "number"),
    Column("micros/op", lambda one: one.micros_per_op, "ratio"),
    Column("ops/s", lambda one: one.ops_per_s, "rate"),
    Column("MB/s", lambda one: one.mb_per_s, "rate"),
    Column("p50 µs", lambda one: one.latency.p50, "ratio"),
    Column("p95 µs", lambda one: one.latency.p95, "ratio"),
    Column("p99 µs", lambda one: one.latency.p99, "ratio"),
    Column("p99.9 µs", lambda one: one.latency.p99_9, "ratio"),
    Column("max µs", lambda one: one.latency.max, "ratio"),
    Column("cached", lambda one: one.cached, "share"),
)


@dataclass(frozen=True, repr=False)
class Results:
    """The results of a run, in order, with its settings and machine.

    A repr and a notebook show them as a table; `rows` is that table, `results["fillseq"]` one result.

    >>> from kafkalog.bench import run
    >>> results = run(benchmarks="fillseq,readseq", num=10)
    >>> results.rows["benchmark"], results["fillseq"].ops
    (['fillseq', 'readseq'], 10)
    """

    settings: Settings
    surroundings: Surroundings
    results: tuple[Result, ...]

    def __getitem__(self, name: str) -> Result:
        """Return the last result of a benchmark; raise KeyError if there is none."""
        for one in reversed(self.results):
            if one.name == name:
                return one
        raise KeyError(name)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def rows(self) -> Rows[Result]:
        """The results as a table, with remarks on each below it."""
        notes = [f"{one.name}: {'; '.join(found)}" for one in self.results if (found := _notes(one))]
        return Rows(self.results, COLUMNS, title=self.surroundings.title, notes=notes)

    def __repr__(self) -> str:
        return repr(self.rows)

    def _repr_html_(self) -> str:
        return self.rows._repr_html_()

    def as_dicts(self) -> list[dict[str, object]]:
        """Return each result with settings and machine, for JSON."""
        return [as_dict(one, self.settings, self.surroundings) for one in self.results]


def as_dict(result: Result, settings: Settings, surroundings: Surroundings) -> dict[str, object]:
    """Return a result with settings and machine, for JSON."""
    asked = {name: value for name, value in asdict(settings).items() if name not in ("benchmarks", "only_reads")}
    return {"benchmark": result.name, **result.as_dict(), "settings": asked, "machine": asdict(surroundings)}


def _notes(result: Result) -> list[str]:
    return [remark for remark in result.remarks() if not remark.startswith("cached")]
