"""Metrics of the logs of this process: as a dict, as Prometheus text, and as callables for OpenTelemetry.

    snapshot()           {"kafkalog_append_records_total": [{"labels": {...}, "value": 3}, ...], ...}
    prometheus_text()    the text that a Prometheus server scrapes (exposition format 0.0.4)
    instruments()        name, kind, unit, help and a function each, for OpenTelemetry's observable instruments

Counters start at 0 when a log is opened. Reading takes no lock of a log and does not access the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.metrics.definitions import Source, sources
from kafkalog.util.prometheus import CONTENT_TYPE, Family, Histogram, Kind, Labels, lines, number

if TYPE_CHECKING:
    from kafkalog.metrics.definitions import AnyLog

__all__ = ["CONTENT_TYPE", "Histogram", "Instrument", "instruments", "prometheus_text", "snapshot"]

class Instrument(NamedTuple):
    """One metric. `read()` returns (value, labels) for each log, partition or job that has it.

    `kafka` is the name of the broker's metric of the same meaning, "" if there is none. The value of a counter never
    decreases while the log is open; the values of a histogram are `Histogram`s.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    kafka: str
    read: Callable[[], Iterable[tuple[float | Histogram, Mapping[str, str]]]]


def instruments(of: AnyLog | None = None) -> tuple[Instrument, ...]:
    """Return all metrics, with values of all logs or of the log `of` only; their number never changes.

    >>> ends = {one.name: one for one in instruments(log)}["kafkalog_log_end_offset"]
    >>> ends.kind, ends.read()
    ('gauge', [(2, {'topic': 'orders', 'partition': '0', 'directory': '...', 'mode': 'a'})])
    """
    return tuple(
        Instrument(one.name, one.kind, one.unit, one.help, one.kafka, partial(_read, one, of)) for one in sources()
    )


def _read(source: Source, of: AnyLog | None) -> list[tuple[float | Histogram, Mapping[str, str]]]:
    return [(value, dict(labels)) for labels, value in _merged(source, of).items()]


def _merged(source: Source, of: AnyLog | None) -> dict[Labels, float | Histogram]:
    """Return values by labels; for equal labels (readers of a partition, jobs of stores), a sum or the largest."""
    found: dict[Labels, Any] = {}
    for labels, value in source.read(of):
        if labels not in found:
            found[labels] = value
        elif source.kind == "counter":
            found[labels] += value
        elif source.kind == "gauge":
            found[labels] = max(found[labels], value)
    return found


def snapshot(of: AnyLog | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the current metrics by name, each a list of labels and value; plain values, fit for JSON.

    `of` limits the result to one log. A histogram's value is a dict of count, sum and buckets by upper bound.

    >>> snapshot(log)["kafkalog_append_records_total"]
    [{'labels': {'topic': 'orders', 'partition': '0', 'directory': '...', 'mode': 'a'}, 'value': 2}]
    """
    return {
        source.name: [
            {"labels": dict(labels), "value": _plain(value)} for labels, value in _merged(source, of).items()
        ]
        for source in sources()
    }


def _plain(value: float | Histogram) -> float | dict[str, float | dict[str, int]]:
    if not isinstance(value, Histogram):
        return value
    buckets = {number(bound): count for bound, count in value.buckets}
    return {"count": value.count, "sum": value.sum, "buckets": buckets}


def prometheus_text(of: AnyLog | None = None) -> str:
    """Return all metrics in Prometheus' text format; a metric without values is left out.

    >>> [line for line in prometheus_text(log).splitlines() if line.startswith("kafkalog_append_records_total")]
    ['kafkalog_append_records_total{topic="orders",partition="0",directory="...",mode="a"} 2']
    """
    families = (Family(source.name, source.kind, source.help, _merged(source, of)) for source in sources())
    return "".join(line for family in families for line in lines(family))
