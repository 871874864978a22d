"""Values formatted for people: numbers, sizes, times, shares."""

from __future__ import annotations

from typing import Any, Final, Literal

from kafkalog.inspect.width import escape_bytes, escape_text
from kafkalog.util.text import human_size
from kafkalog.util.times import time_text

Kind = Literal["text", "name", "count", "number", "size", "time", "duration", "ratio", "rate", "share", "bar", "key"]
"""Content of a column: `time` and `duration` are ms, `size` bytes, `share` and `bar` 0 to 1, `key` bytes or None.

A `count` is a number already formatted as text. A `name` is cut in the middle if it is too long; a `bar` is drawn.
"""
NOTHING: Final = "-"
LAST_MS: Final = 253_402_300_799_999
"""Last millisecond of year 9999: a larger timestamp has no date."""
BAR_COLUMNS: Final = 16
_EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def moment(ms: int | None) -> str:
    """Format ms since 1970 as ISO-8601 in UTC, with milliseconds unless 0; `-` for none (None, below 0).

    >>> moment(1795176000000), moment(1795176000003), moment(-1)
    ('2026-11-20T12:00:00Z', '2026-11-20T12:00:00.003Z', '-')
    """
    if ms is None or ms < 0:
        return NOTHING
    if ms > LAST_MS:
        return f"{ms:,} ms"
    return time_text(ms)


def duration(ms: float | None) -> str:
    """Format ms in the two largest units.

    >>> duration(93_784_000), duration(61_000), duration(1500), duration(3)
    ('1 d 2 h', '1 min 1 s', '1.5 s', '3 ms')
    """
    if ms is None:
        return NOTHING
    if abs(ms) < 1000:
        return f"{ms:.0f} ms"
    if abs(ms) < 60_000:
        return f"{ms / 1000:.4g} s"
    seconds = int(ms // 1000)
    parts: list[str] = []
    for unit, length in (("y", 31_557_600), ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count or parts:
            parts.append(f"{count:,} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def rate(value: float | None) -> str:
    """Format a number a second.

    >>> rate(0.25), rate(12.34), rate(123456.7), rate(0.0001)
    ('0.25', '12.3', '123,457', '<0.01')
    """
    if value is None:
        return NOTHING
    if 0 < value < 0.01:
        return "<0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def text_of(value: Any, kind: Kind, *, ascii_only: bool = False) -> str:
    """Format a cell, safe to display; None is `-`, or `null` in a `key`."""
    if kind == "key":
        text = escape_text(value) if isinstance(value, str) else escape_bytes(value)
    elif value is None:
        return NOTHING
    elif kind in ("text", "name", "count"):
        text = escape_text(str(value))
    else:
        text = _number(value, kind, ascii_only)
    return text.encode("ascii", "backslashreplace").decode() if ascii_only and not text.isascii() else text


def _number(value: Any, kind: Kind, ascii_only: bool) -> str:
    if kind == "number":
        return f"{value:,}"
    if kind == "size":
        return human_size(int(value))
    if kind == "time":
        return moment(int(value))
    if kind == "duration":
        return duration(float(value))
    if kind == "ratio":
        return f"{value:,.2f}"
    if kind == "rate":
        return rate(float(value))
    if kind == "share":
        return f"{value:.1%}"
    return _bar(float(value), ascii_only)


def _bar(share: float, ascii_only: bool) -> str:
    """Return a bar in eighths of a block; a share above 0 has at least one."""
    share = min(max(share, 0.0), 1.0)
    if ascii_only:
        return "#" * (max(1, round(share * BAR_COLUMNS)) if share else 0)
    eighths = max(1, round(share * BAR_COLUMNS * 8)) if share else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
