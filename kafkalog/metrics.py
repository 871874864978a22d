"""What the logs of this process count: as a dict, as Prometheus text, and as callables for OpenTelemetry.

    snapshot()           {"kafkalog_append_records_total": [{"labels": {...}, "value": 3}, ...], ...}
    prometheus_text()    the text that a Prometheus server scrapes (exposition format 0.0.4)
    instruments()        name, kind, unit, help and a function each; what OpenTelemetry's observable instruments call

Counters begin at 0 when a log is opened. Reading takes no lock of a log and no look at a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog.metric_sources import Source, sources
from kafkalog.util.prometheus import CONTENT_TYPE, Family, Histogram, Kind, Labels, lines, number

__all__ = ["CONTENT_TYPE", "Histogram", "Instrument", "instruments", "prometheus_text", "snapshot"]

class Instrument(NamedTuple):
    """One metric. `read()` gives (value, labels) for each log, partition or job that has it.

    `kafka` is the name of the broker's metric of the same meaning, "" where there is none. The values of a counter only
    grow while the log stays open; those of a histogram are `Histogram`s.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    kafka: str
    read: Callable[[], Iterable[tuple[Any, Mapping[str, str]]]]


def instruments(of: Any = None) -> tuple[Instrument, ...]:
    """Every metric there is, those of the log `of` alone where one is given; their number never changes.

    >>> ends = {one.name: one for one in instruments(log)}["kafkalog_log_end_offset"]
    >>> ends.kind, ends.read()
    ('gauge', [(2, {'topic': 'orders', 'partition': '0', 'directory': '...', 'mode': 'a'})])
    """
    return tuple(
        Instrument(one.name, one.kind, one.unit, one.help, one.kafka, _reader(one, of)) for one in sources()
    )


def _reader(source: Source, of: Any) -> Callable[[], Iterable[tuple[Any, Mapping[str, str]]]]:
    def read() -> list[tuple[Any, Mapping[str, str]]]:
        return [(value, dict(labels)) for labels, value in _merged(source, of).items()]

    return read


def _merged(source: Source, of: Any) -> dict[Labels, Any]:
    """Value by labels. Where two readers of one partition have the same labels, counts add up and places do not."""
    found: dict[Labels, Any] = {}
    for labels, value in source.read(of):
        if labels in found and source.kind == "counter":
            found[labels] += value
        elif labels not in found:
            found[labels] = value
    return found


def snapshot(of: Any = None) -> dict[str, list[dict[str, Any]]]:
    """All metrics at this moment by name, each a list of labels and value; plain values, fit for JSON.

    `of`: a log, to have only its own. A histogram's value is a dict of count, sum and buckets by upper bound.

    >>> snapshot(log)["kafkalog_append_records_total"]
    [{'labels': {'topic': 'orders', 'partition': '0', 'directory': '...', 'mode': 'a'}, 'value': 2}]
    """
    return {
        source.name: [
            {"labels": dict(labels), "value": _plain(value)} for labels, value in _merged(source, of).items()
        ]
        for source in sources()
    }


def _plain(value: Any) -> Any:
    if not isinstance(value, Histogram):
        return value
    buckets = {number(bound): count for bound, count in value.buckets}
    return {"count": value.count, "sum": value.sum, "buckets": buckets}


def prometheus_text(of: Any = None) -> str:
    """All metrics in Prometheus' text format; a metric that nobody has is left out.

    >>> [line for line in prometheus_text(log).splitlines() if line.startswith("kafkalog_append_records_total")]
    ['kafkalog_append_records_total{topic="orders",partition="0",directory="...",mode="a"} 2']
    """
    families = (Family(source.name, source.kind, source.help, _merged(source, of)) for source in sources())
    return "".join(line for family in families for line in lines(family))
