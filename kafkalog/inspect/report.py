"""Report on whole data directories: one HTML page without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._version import version
from kafkalog.inspect import svg
from kafkalog.inspect.html import table
from kafkalog.inspect.page_style import STYLE
from kafkalog.inspect.pictures import count_picture, pictures, rate_pictures
from kafkalog.inspect.stats import LogStats, checked, partition_rows
from kafkalog.inspect.values import moment, rate
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from kafkalog.inspect.counts import PathCounts

MAX_TOPICS: Final = 40
"""Number of topics, the largest, that have their own charts; the others are only in the table."""
MAX_ROWS: Final = 2000
_OPEN_TOPICS: Final = 3
_MAX_BARS: Final = 12
_MAX_PROBLEMS: Final = 100


class Report(NamedTuple):
    """Content of a page: the directories, their partitions, the problems, and the time it was made (ms)."""

    directories: tuple[str, ...]
    logs: tuple[LogStats, ...]
    problems: tuple[str, ...]
    made_ms: int
    counts: tuple[PathCounts, ...] = ()
    """Counts of each topic by the value of a path, if they were asked for."""

    def all_problems(self) -> list[str]:
        """Return the problems of the directories, of the partitions, and damage that the counts leave out."""
        found = [*self.problems, *(f"{one.name}: {problem}" for one in self.logs for problem in one.problems)]
        damaged = {one.segment for log in self.logs for one in log.damage}
        left_out = [(one.topic, piece) for one in self.counts for piece in one.damage if piece.path not in damaged]
        return found + [f"{topic}: not counted: {piece.path}: {piece.reason}" for topic, piece in left_out]

    def topics(self) -> list[tuple[str, list[LogStats]]]:
        """Return the partitions by topic, the largest topic first."""
        found: dict[str, list[LogStats]] = {}
        for one in self.logs:
            found.setdefault(one.topic_partition.topic, []).append(one)
        return sorted(found.items(), key=lambda item: (-sum(one.size for one in item[1]), item[0]))


def page(report: Report) -> str:
    """Return the HTML document. All external text is escaped."""
    title = f"kafkalog: {', '.join(report.directories)}"
    sections = (
        _head(report), _cards(report), _notes(report), _overview(report), _counts(report), _topics(report),
        _table(report),
    )  # fmt: skip
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
        f"<title>{svg.text(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(sections)}{_foot()}</main></body></html>\n"
    )


def _head(report: Report) -> str:
    where = ", ".join(svg.text(one) for one in report.directories)
    times_text = f"as of {_time_html(report.made_ms)}"
    times = [one for one in report.logs if one.first_ms >= 0]
    if times:
        first, last = min(one.first_ms for one in times), max(one.last_ms for one in times)
        times_text += f"; records from {_time_html(first)} to {_time_html(last)}"
    return f'<header><h1>{where}</h1><div class="dim">{times_text}</div></header>'


def _time_html(ms: int) -> str:
    return f'<span class="at">{moment(ms // 1000 * 1000)}</span>'


def _cards(report: Report) -> str:
    logs = report.logs
    about = "" if all(one.sample.is_whole for one in logs) else "~"
    size = sum(one.size for one in logs)
    known = [(one.size, one.ratio) for one in logs if one.ratio is not None and one.size]
    ratio = sum(part * known_ratio for part, known_ratio in known) / sum(part for part, _ in known) if known else None
    cards = [
        _count_card(len(report.topics()), "topic"), _count_card(len(logs), "partition"),
        _count_card(sum(one.records for one in logs), "record", about), (human_size(size), "on disk"),
        _count_card(sum(len(one.segments) for one in logs), "segment"),
        ("-" if ratio is None else f"{ratio:.2f} : 1", "compression"),
    ]  # fmt: skip
    rows = "".join(f'<div class="card"><b>{svg.text(value)}</b>{name}</div>' for value, name in cards)
    return f'<div class="cards">{rows}</div>'


def _count_card(count: int, noun: str, about: str = "") -> tuple[str, str]:
    number, _, name = plural(count, noun).partition(" ")
    return about + number, name


def _notes(report: Report) -> str:
    """Return the notes on sampling, compared checksums and problems."""
    lines = []
    sampled = [one for one in report.logs if not one.sample.is_whole]
    if sampled:
        read = sum(one.sample.read_bytes for one in report.logs)
        total = sum(one.sample.total_bytes for one in report.logs)
        share = read / max(total, 1)
        lines.append(
            f"Sampled: {human_size(read)} of {human_size(total)} ({share:.2%}) were read, at equal distances in "
            f"{plural(len(sampled), 'partition')}. Counts with ~ are estimates; offsets, bytes and segments are exact."
        )
    if report.logs:
        lines.append(f"Checksums: {checked(report.logs)}.")
    found = report.all_problems()
    sections = [f"<p>{svg.text(line)}</p>" for line in lines]
    sections += [f'<p class="bad">{svg.text(line)}</p>' for line in found[:_MAX_PROBLEMS]]
    if len(found) > _MAX_PROBLEMS:
        sections.append(f'<p class="bad">{plural(len(found) - _MAX_PROBLEMS, "more problem")}</p>')
    return f'<div class="note">{"".join(sections)}</div>' if sections else ""


def _overview(report: Report) -> str:
    if not report.logs:
        return '<h2>Overview</h2><div class="note">There is no partition here.</div>'
    topics = report.topics()
    sizes = [(name, sum(one.size for one in logs)) for name, logs in topics]
    most = max(sizes[0][1], 1)
    rows = [(name, size / most, human_size(size)) for name, size in sizes[:_MAX_BARS]]
    more = f"the largest {len(rows)} of {len(sizes):,}" if len(rows) < len(sizes) else ""
    sections = [*rate_pictures(report.logs), svg.figure("Size by topic", more, svg.bars(rows))]
    fastest = sorted(topics, key=lambda item: -_rate(item[1]))[:_MAX_BARS]
    highest_rate = max(_rate(fastest[0][1]), 1e-9)
    rows = [(name, _rate(logs) / highest_rate, f"{rate(_rate(logs))} records/s") for name, logs in fastest]
    sections.append(svg.figure("Rate by topic", "between its first record and its last one", svg.bars(rows, kind="b")))
    return f'<h2>Overview</h2><div class="grid">{"".join(sections)}</div>'


def _rate(logs: Iterable[LogStats]) -> float:
    return sum(one.records_per_second or 0.0 for one in logs)


def _topics(report: Report) -> str:
    topics = report.topics()
    if not topics:
        return ""
    sections = [_topic(name, logs, at < _OPEN_TOPICS) for at, (name, logs) in enumerate(topics[:MAX_TOPICS])]
    left = len(topics) - MAX_TOPICS
    more = f'<p class="dim">{plural(left, "smaller topic")} without pictures: see the table</p>' if left > 0 else ""
    return f"<h2>Topics</h2>{''.join(sections)}{more}"


def _counts(report: Report) -> str:
    """Return the counts by a path, a chart for each topic."""
    if not report.counts:
        return ""
    sections = "".join(map(count_picture, report.counts))
    return f'<h2>Records by {svg.text(report.counts[0].path)}</h2><div class="grid">{sections}</div>'


def _topic(name: str, logs: Sequence[LogStats], is_open: bool) -> str:
    about = "" if all(one.sample.is_whole for one in logs) else "~"
    records = sum(one.records for one in logs)
    size = human_size(sum(one.size for one in logs))
    what = f"{plural(len(logs), 'partition')}, {about}{plural(records, 'record')}, {size}"
    head = f'<summary><b>{svg.text(name)}</b> <span class="dim">{what}</span></summary>'
    inner = pictures(logs) or '<p class="dim">empty</p>'
    return f'<details{" open" if is_open and records else ""}>{head}<div class="grid">{inner}</div></details>'


def _table(report: Report) -> str:
    if not report.logs:
        return ""
    rows = report.logs[:MAX_ROWS]
    left = len(report.logs) - len(rows)
    more = f'<p class="dim">{plural(left, "more partition")} not shown</p>' if left else ""
    return f'<h2>Partitions</h2><div class="rows">{table(partition_rows(rows))}</div>{more}'


def _foot() -> str:
    return f"<footer>kafkalog {svg.text(version)}; point at a mark to read its value</footer>"
