"""What the logs of this process count: as a dict, as Prometheus text, and as callables for OpenTelemetry.

    snapshot()           {"kafkalog_append_records_total": [{"labels": {...}, "value": 3}, ...], ...}
    prometheus_text()    the text that a Prometheus server scrapes (exposition format 0.0.4)
    instruments()        name, kind, unit, help and a function each; what OpenTelemetry's observable instruments call

Counters begin at 0 when a log is opened. Reading takes no lock of a log and no look at a disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from kafkalog.metric_sources import Histogram, Labels, Source, sources

__all__ = ["CONTENT_TYPE", "Histogram", "Instrument", "instruments", "prometheus_text", "snapshot"]

Kind = Literal["counter", "gauge", "histogram"]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of `prometheus_text`."""


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
    """Every metric there is, those of the log `of` alone where one is given; their number never changes."""
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
    buckets = {_number(bound): count for bound, count in value.buckets}
    return {"count": value.count, "sum": value.sum, "buckets": buckets}


def prometheus_text(of: Any = None) -> str:
    """All metrics in Prometheus' text format; a metric that nobody has is left out."""
    return "".join(line for source in sources() for line in _lines(source, _merged(source, of)))


def _lines(source: Source, found: Mapping[Labels, Any]) -> Iterator[str]:
    if not found:
        return
    yield f"# HELP {source.name} {_escaped(source.help)}\n# TYPE {source.name} {source.kind}\n"
    for labels, value in found.items():
        if not isinstance(value, Histogram):
            yield f"{source.name}{_braced(labels)} {_number(value)}\n"
            continue
        for bound, count in value.buckets:
            yield f"{source.name}_bucket{_braced((*labels, ('le', _number(bound))))} {count}\n"
        yield f"{source.name}_sum{_braced(labels)} {_number(value.sum)}\n"
        yield f"{source.name}_count{_braced(labels)} {value.count}\n"


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels) + "}"


def _quoted(value: str) -> str:
    # a path may hold bytes that are no UTF-8: shown as they are escaped in Python
    text = value.encode(sys.getdefaultencoding(), "backslashreplace").decode()
    return _escaped(text).replace('"', '\\"')
