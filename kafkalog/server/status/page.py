"""The status page: one self-contained HTML document without scripts, which refreshes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, TypeVar

from kafkalog.server.status.snapshot import (
    DiskStatus,
    GroupStatus,
    LagStatus,
    PartitionStatus,
    Status,
    TopicStatus,
    status_of,
)
from kafkalog.util.text import plural

__all__ = ["page", "status_of"]

MAX_ROWS: Final = 2000
"""Maximum rows of partitions, and of groups' offsets; the page shows the number of omitted rows."""
MAX_BYTES: Final = 400_000
"""Maximum bytes of topics, and of groups; the page shows the number of omitted ones. Clients choose number and names of
groups."""
_MOST_NAME: Final = 260
_MOST_UNCLEANABLE: Final = 50
REFRESH_S: Final = 10
_STYLE: Final = """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--text:#1b2330;--dim:#56606f;--line:#dde2e9;--good:#0b6b3a;
--bad:#a3231a;--bar:#2f6fde}
@media (prefers-color-scheme:dark){:root{--back:#11151b;--card:#1a2029;--text:#e6eaf0;--dim:#a2adbb;--line:#2d3643;
--good:#6fd39a;--bad:#ff9a8f;--bar:#79a8ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.2rem}
h1{font-size:1.35rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .6rem}
.dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.7rem;margin-top:1rem}
.card,details,table{background:var(--card);border:1px solid var(--line);border-radius:8px}
.card{padding:.7rem .9rem}.card b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
details{margin:.4rem 0;padding:.5rem .9rem}summary{cursor:pointer;overflow-wrap:anywhere}details table{margin:.6rem 0}
table{width:100%;border-collapse:separate;border-spacing:0;overflow-wrap:anywhere}
th{overflow-wrap:normal}
th,td{padding:.35rem .7rem;text-align:left;border-top:1px solid var(--line)}thead th{border-top:0;color:var(--dim);
font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
meter{width:9rem;max-width:100%;height:.8rem;vertical-align:middle}
@media (max-width:40rem){thead{display:none}tr{display:block;padding:.4rem 0;border-top:1px solid var(--line)}
tbody tr:first-child{border-top:0}td>span{max-width:75%}
td,td.n{display:flex;justify-content:space-between;gap:1rem;border:0;
padding:.1rem .7rem;text-align:right;white-space:normal}td::before{content:attr(data-label);color:var(--dim);
text-align:left;overflow-wrap:normal}}
"""

Cell = tuple[str, str]
"""A cell's class ("n" for a number) and its text, as HTML."""
T = TypeVar("T")
R = TypeVar("R")
Block = Callable[[T, Sequence[R]], str]


def page(status: Status) -> str:
    """Render the HTML document. All external text is escaped."""
    topics = _section("Topics", status.topics, lambda one: one.partitions, _topic)
    groups = _section("Groups", status.groups, lambda one: one.offsets, _group)
    body = "".join((_head(status), _cards(status), _disks(status), topics, groups, _cleaner(status)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><title>kafkalog: node {status.node_id}</title>'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _head(status: Status) -> str:
    where = ", ".join(f"{escape(name)} {escape(address)}" for name, address in status.listeners)
    up = _duration(status.now_ms - status.started_ms)
    return (
        f"<header><h1>kafkalog, node {status.node_id}</h1>"
        f'<div class="dim">{where or "no listeners"}; cluster {escape(status.cluster_id)}; '
        f"version {escape(status.version)}; up {up}</div></header>"
    )


def _cards(status: Status) -> str:
    partitions = [one for topic in status.topics for one in topic.partitions]
    broken = sum(bool(one.problem) for one in partitions)
    state = f'<b class="bad">{broken:,} offline</b>' if broken else '<b class="good">all online</b>'
    cards = (
        ("topics", f"<b>{len(status.topics):,}</b>"),
        ("partitions", f"<b>{len(partitions):,}</b>"),
        ("state of partitions", state),
        ("groups", f"<b>{len(status.groups):,}</b>"),
        ("size of logs", f"<b>{_size(sum(one.size_bytes for one in partitions))}</b>"),
    )
    return (
        '<div class="cards">' + "".join(f'<div class="card">{value}{name}</div>' for name, value in cards) + "</div>"
    )


def _disks(status: Status) -> str:
    rows = [_disk(one) for one in status.disks]
    return "<h2>Disk</h2>" + _table(("directory", "state", "used", "free", "total"), rows, numbers=(3, 4))


def _disk(one: DiskStatus) -> tuple[Cell, ...]:
    used = one.total_bytes - one.free_bytes
    share = used / one.total_bytes if one.total_bytes else 0.0
    meter = f'<meter min="0" max="1" high="0.9" value="{share:.3f}"></meter> {share:.0%}'
    return (("", escape(one.path)), ("", _state(one.is_online)), ("", meter), ("n", _size(one.free_bytes)),
            ("n", _size(one.total_bytes)))  # fmt: skip


def _state(is_online: bool) -> str:
    return '<span class="good">online</span>' if is_online else '<span class="bad">offline</span>'


def _section(title: str, listed: Sequence[T], rows_of: Callable[[T], Sequence[R]], block: Block[T, R]) -> str:
    """Render a block for each item, within the page's limits of rows and bytes."""
    parts: list[str] = []
    remaining, room = MAX_ROWS, MAX_BYTES
    for one in listed:
        visible = rows_of(one)[:remaining]
        html = block(one, visible)
        if _bytes(html) > room:
            visible = ()
            html = block(one, visible)
        remaining -= len(visible)
        room -= _bytes(html)
        if room < 0:
            break
        parts.append(html)
    more = _more(len(listed) - len(parts), title.lower())
    return f"<h2>{title}</h2>" + ("".join(parts) + more or '<p class="dim">none yet</p>')


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))


def _text(text: str) -> str:
    """Return external text as HTML; only the beginning of a long one."""
    return escape(text if len(text) <= _MOST_NAME else text[:_MOST_NAME] + "…")


def _topic(topic: TopicStatus, visible: Sequence[PartitionStatus]) -> str:
    records = sum(one.high_watermark - one.log_start_offset for one in topic.partitions)
    broken = sum(bool(one.problem) for one in topic.partitions)
    summary = f"{plural(len(topic.partitions), 'partition')}, {records:,} offsets, " + _size(
        sum(one.size_bytes for one in topic.partitions)
    )
    marks = (', <span class="dim">internal</span>' if topic.is_internal else "") + (
        f', <span class="bad">{broken:,} offline</span>' if broken else ""
    )
    head = f'<summary><b>{_text(topic.name)}</b> <span class="dim">{summary}</span>{marks}</summary>'
    names = ("partition", "state", "start", "high watermark", "end", "epoch", "segments", "size")
    table = _table(names, [_partition(one) for one in visible], numbers=range(2, 8))
    more = _more(len(topic.partitions) - len(visible), "partitions")
    open_attribute = " open" if broken or not topic.is_internal and len(topic.partitions) <= 3 else ""
    return f'<details{open_attribute}>{head}<div class="dim">id {escape(topic.topic_id)}</div>{table}{more}</details>'


def _partition(one: PartitionStatus) -> tuple[Cell, ...]:
    if one.problem:
        return (("", str(one.partition)), ("", f'<span class="bad">{_problem(one.problem)}</span>'), *([("n", "")] * 6))
    return (
        ("", str(one.partition)), ("", _state(True)), ("n", f"{one.log_start_offset:,}"),
        ("n", f"{one.high_watermark:,}"),
        ("n", f"{one.log_end_offset:,}"), ("n", str(one.leader_epoch)), ("n", f"{one.segments:,}"),
        ("n", _size(one.size_bytes)),
    )  # fmt: skip


def _problem(text: str) -> str:
    """Return an error's message as HTML, with at most 500 characters."""
    return escape(text[:500])


def _group(group: GroupStatus, visible: Sequence[LagStatus]) -> str:
    lag = sum(one.lag or 0 for one in group.offsets)
    summary = f"{group.state}, {group.group_type}, {plural(group.members, 'member')}, lag {lag:,}"
    head = f'<summary><b>{_text(group.group_id)}</b> <span class="dim">{escape(summary)}</span></summary>'
    rows = [
        (("", _text(one.topic)), ("n", str(one.partition)), ("n", f"{one.committed_offset:,}"),
         ("n", "gone" if one.lag is None else f"{one.lag:,}"))
        for one in visible
    ]  # fmt: skip
    table = _table(("topic", "partition", "committed", "lag"), rows, numbers=(1, 2, 3))
    open_attribute = " open" if len(group.offsets) <= 3 else ""
    return f"<details{open_attribute}>{head}{table}{_more(len(group.offsets) - len(visible), 'offsets')}</details>"


def _cleaner(status: Status) -> str:
    report = status.cleaner
    totals = report.totals
    last_check = "never" if report.last_look_ms is None else _duration(status.now_ms - report.last_look_ms) + " ago"
    summary = (
        f"{report.threads:,} threads, {len(report.running):,} cleans in progress, {totals.cleans:,} done, "
        f"{totals.failures:,} failed; read {_size(totals.bytes_read)}, kept {_size(totals.bytes_written)}; "
        f"last check {last_check}, the dirtiest log {report.dirtiest_ratio:.0%} dirty"
    )
    rows = [
        (("", _text(str(one.topic_partition))), ("", _text(one.directory)), ("", _problem(one.reason)))
        for one in report.uncleanable[:_MOST_UNCLEANABLE]
    ]
    remaining = "<h3>Excluded from cleaning</h3>" + _table(("partition", "directory", "reason"), rows) if rows else ""
    remaining += _more(len(report.uncleanable) - len(rows), "partitions")
    return f"<h2>Cleaner</h2><p>{summary}</p>{remaining}"


def _table(names: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)
    head = "".join(
        f'<th class="n">{name}</th>' if column in right else f"<th>{name}</th>" for column, name in enumerate(names)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-label="{name}"><span>{text}</span></td>'
            for name, (kind, text) in zip(names, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _more(count: int, summary: str) -> str:
    return f'<p class="dim">{count:,} more {summary} are not shown</p>' if count else ""


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _duration(milliseconds: int) -> str:
    seconds = max(milliseconds // 1000, 0)
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    visible = [f"{value} {unit}" for value, unit in parts if value][:2]
    return " ".join(visible) or "0 s"
