"""Metrics in Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution: `buckets` are (upper bound, number of values up to it); the last bound is infinite.

    >>> log.flush()
    >>> metric = {one.name: one for one in kafkalog.metrics.instruments(log)}["kafkalog_flush_seconds"]
    >>> [(value.count, value.buckets[-1]) for value, labels in metric.read()]
    [(1, (inf, 1))]
    """

    count: int
    sum: float
    buckets: tuple[tuple[float, int], ...]


class Family(NamedTuple):
    """One metric with its values at a moment: numbers, or `Histogram`s for a histogram."""

    name: str
    kind: Kind
    help: str
    values: Mapping[Labels, float | Histogram]


def lines(family: Family) -> Iterator[str]:
    """Yield the lines of a metric, with line ends; none for a metric without values."""
    if not family.values:
        return
    name = family.name
    yield f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.kind}\n"
    for labels, value in family.values.items():
        if not isinstance(value, Histogram):
            yield f"{name}{_braced(labels)} {number(value)}\n"
            continue
        for bound, count in value.buckets:
            yield f"{name}_bucket{_braced((*labels, ('le', number(bound))))} {count}\n"
        yield f"{name}_sum{_braced(labels)} {number(value.sum)}\n"
        yield f"{name}_count{_braced(labels)} {value.count}\n"


_LARGEST: Final = ("_failed", "_last_run_seconds", "_timestamp_seconds")
"""How the names of gauges end whose values cannot be added."""


def added(texts: Iterable[str]) -> str:
    """Return the metrics of several processes as those of one: values of the same name and labels are added.

    Of times and marks such as `kafkalog_job_failed`, the largest counts.
    """
    heads: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {}
    for text in texts:
        name = ""
        for line in text.split("\n"):  # a label's value may hold other ends of lines
            if line.startswith("# "):
                name = line.split(" ", 3)[2]
                if f"{line}\n" not in heads.setdefault(name, ""):
                    heads[name] += f"{line}\n"
            elif line:
                sample, _, value = line.rpartition(" ")
                samples = values.setdefault(name, {})
                before, own = samples.get(sample), float(value)
                if before is not None:
                    own = max(before, own) if name.endswith(_LARGEST) else before + own
                samples[sample] = own
    return "".join(
        head + "".join(f"{sample} {_whole(value)}\n" for sample, value in values.get(name, {}).items())
        for name, head in heads.items()
    )


def sums_of(text: str) -> str:
    """Return the counters and histograms of a process as a whole: all but those of a directory or a store."""
    found: list[str] = []
    head = ""
    is_sum = False
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            head = f"{line}\n"
        elif line.startswith("# TYPE "):
            head += f"{line}\n"
            is_sum = not line.endswith(" gauge")
        elif line and is_sum and 'directory="' not in line and 'store="' not in line:
            found.append(f"{head}{line}\n")
            head = ""
    return "".join(found)


def _whole(value: float) -> str:
    return str(int(value)) if value.is_integer() else number(value)


def number(value: float) -> str:
    """Return a value, or the bound of a bucket, as text."""
    return "+Inf" if value == float("inf") else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels) + "}"


def _quoted(value: str) -> str:
    # a path may hold bytes that are not UTF-8: they are escaped as in Python
    text = value.encode(sys.getdefaultencoding(), "backslashreplace").decode()
    return _escaped(text).replace('"', '\\"')
