"""Report of the job `stats`: tables for people, JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog.inspect.values import moment
from kafkalog.spark.header_survey import HOUR_MS, NO_HOUR, Counts, Group, sums
from kafkalog.util.text import plural


class KeyStats(NamedTuple):
    """Keys of a topic: the distinct ones, by a sketch that errs by 2 % on average, and the records without a key."""

    distinct: int
    null: int


@dataclass(frozen=True)
class StatsReport:
    """Counts by topic, partition, hour and codec; keys by topic, None if they were not read.

    `problems` are errors in words: of segments, which are counted as far as they can be read, and of reading keys.
    """

    groups: dict[Group, Counts]
    keys: dict[str, KeyStats] | None = None
    problems: tuple[str, ...] = ()
    partitions: int = 0
    segments: int = 0

    @property
    def ok(self) -> bool:
        """True if everything could be read."""
        return not self.problems

    def topics(self) -> dict[str, Counts]:
        """Return the sums by topic."""
        return sums((group.topic, counts) for group, counts in self.groups.items())

    def hours(self) -> dict[tuple[str, int], Counts]:
        """Return the sums by topic and hour (ms since 1970; NO_HOUR for batches without a time)."""
        found = sums(((group.topic, group.hour_ms), counts) for group, counts in self.groups.items())
        return dict(sorted(found.items()))

    def codecs(self, topic: str) -> dict[str, Counts]:
        """Return the sums of a topic by codec."""
        return sums((group.codec, counts) for group, counts in self.groups.items() if group.topic == topic)

    def lines(self) -> Iterator[str]:
        """Yield a table of topics, one of their hours, problems, and a summary line."""
        yield from _table(
            ("TOPIC", "RECORDS", "BYTES", "RECORDS/S", "BYTES/S", "RATIO", "CODECS", "KEYS", "FIRST", "LAST"),
            [self._topic_cells(topic, counts) for topic, counts in self.topics().items()],
        )
        yield ""
        yield from _table(
            ("TOPIC", "HOUR", "RECORDS", "BYTES", "RECORDS/S", "BYTES/S", "RATIO"),
            [_hour_cells(topic, hour, counts) for (topic, hour), counts in self.hours().items()],
        )
        yield ""
        for problem in self.problems:
            yield f"problem: {problem}"
        yield self.summary()

    def summary(self) -> str:
        """Return a line with the totals."""
        total = Counts()
        for counts in self.groups.values():
            total.add(counts)
        totals = [
            plural(len(self.topics()), "topic"), plural(self.partitions, "partition"),
            plural(self.segments, "segment"), f"{total.bytes:,} bytes", plural(total.records, "record"),
        ]  # fmt: skip
        return ", ".join(totals) + (f"; {plural(len(self.problems), 'problem')}" if self.problems else "")

    def json_lines(self) -> Iterator[str]:
        """Yield one JSON object a line: hours (`type` "hour"), topics, problems, then the report; times in ms."""
        for (topic, hour), counts in self.hours().items():
            when = None if hour == NO_HOUR else hour
            rates = _rates(_hourly(counts.records), _hourly(counts.bytes))
            yield json.dumps({"type": "hour", "topic": topic, "hour": when, **_count_fields(counts), **rates})
        for topic, counts in self.topics().items():
            codecs = {name: _count_fields(one) for name, one in self.codecs(topic).items()}
            keys = None if self.keys is None or topic not in self.keys else self.keys[topic]._asdict()
            rates = _rates(counts.records_a_second, counts.bytes_a_second)
            yield json.dumps(
                {"type": "topic", "topic": topic, **_count_fields(counts), **rates, "keys": keys, "codecs": codecs}
            )
        for problem in self.problems:
            yield json.dumps({"type": "problem", "what": problem})
        fields = {"type": "stats", "ok": self.ok, "topics": len(self.topics()), "problems": len(self.problems)}
        yield json.dumps({**fields, "partitions": self.partitions, "segments": self.segments})

    def _topic_cells(self, topic: str, counts: Counts) -> tuple[str, ...]:
        keys = None if self.keys is None else self.keys.get(topic)
        return (
            topic, f"{counts.records:,}", f"{counts.bytes:,}", _rate(counts.records_a_second),
            _rate(counts.bytes_a_second), _ratio(counts), "+".join(self.codecs(topic)),
            "-" if keys is None else f"~{keys.distinct:,}", moment(counts.first_ms), moment(counts.last_ms),
        )  # fmt: skip


def _hour_cells(topic: str, hour: int, counts: Counts) -> tuple[str, ...]:
    return (
        topic, moment(hour), f"{counts.records:,}", f"{counts.bytes:,}", _rate(_hourly(counts.records)),
        _rate(_hourly(counts.bytes)), _ratio(counts),
    )  # fmt: skip


def _hourly(count: int) -> float:
    return count * 1000 / HOUR_MS


def _rates(records: float | None, size: float | None) -> dict[str, float | None]:
    return {"records_per_second": records, "bytes_per_second": size}


def _count_fields(counts: Counts) -> dict[str, object]:
    times = {"first": None if counts.first_ms < 0 else counts.first_ms}
    times["last"] = None if counts.last_ms < 0 else counts.last_ms
    fields = {name: value for name, value in vars(counts).items() if not name.endswith("_ms")}
    return {**fields, **times, "ratio": counts.ratio}


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _ratio(counts: Counts) -> str:
    return "-" if counts.ratio is None else f"{counts.ratio:.2f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table with columns two spaces apart: text to the left, numbers to the right."""
    left = {"TOPIC", "HOUR", "CODECS", "FIRST", "LAST"}
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    for row in (head, *rows):
        cells = [
            f"{cell:<{width}}" if name in left else f"{cell:>{width}}"
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
