"""Format sizes and tables; shorten and escape untrusted names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_CELL: Final = 80


def human_size(size: int) -> str:
    """Return a size as `82 B`, `3.2 KiB`, `2.1 GiB`: units of 1024, one digit after the point."""
    if abs(size) < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if abs(amount) < 1023.95 or unit == "TiB":
            return f"{amount:.1f} {unit}"
    raise AssertionError("unreachable")


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: `1 batch`, `2,000 batches`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 'x')) else 's'}"


def shortened(text: str, width: int) -> str:
    """Return `text`, or its start and end joined by "...", in at most `width` characters (at least 5)."""
    width = max(width, 5)
    if len(text) <= width:
        return text
    head = (width - 3) // 3
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def one_message(text: str) -> str:
    r"""Return `text` with unprintable characters escaped, except line ends and tabs.

    >>> one_message("caf\u00e9 \x1b[2J\u202e\udcff")
    'café \\x1b[2J\\u202e\\udcff'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def html_table(names: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return rows of values as HTML, every text escaped and cut after 80 characters; `note` comes below.

    >>> html_table(["key"], [[b"<b>"]])
    "<table><tr><th>key</th></tr><tr><td>b'&lt;b&gt;'</td></tr></table>"
    """
    from html import escape

    def cell(value: object) -> str:
        text = one_message(str(value))
        return escape(text if len(text) <= _CELL else text[: _CELL - 3] + "...")

    head = "".join(f"<th>{cell(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" + (f"<p>{escape(one_message(note))}</p>" if note else "")
