"""SVG charts: graphics that stretch with their frame, and HTML labels around them that keep their size.

They need no script and no external resource: the value of a mark is its `<title>`, a tooltip in browsers. Colours are
CSS variables of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kafkalog.inspect.width import escape_text

_HEIGHT = 100


def text(value: str) -> str:
    """Escape external text for HTML."""
    return escape(escape_text(value))


def figure(title: str, note: str, inner: str, *, wide: bool = False) -> str:
    """Return a chart with its title and a note."""
    kind = ' class="wide"' if wide else ""
    note_html = f' <span class="dim">{text(note)}</span>' if note else ""
    return f"<figure{kind}><figcaption><b>{text(title)}</b>{note_html}</figcaption>{inner}</figure>"


def _framed(svg: str, ends: Sequence[str], axis: Sequence[str]) -> str:
    """Return a chart between its axes: `ends` from the top down, `axis` from left to right."""
    ys = "".join(f"<span>{text(one)}</span>" for one in ends)
    xs = "".join(f"<span>{text(one)}</span>" for one in axis)
    return f'<div class="frame"><div class="y">{ys}</div><div class="plot">{svg}</div><div class="x">{xs}</div></div>'


def _svg(width: int, inner: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{text(label)}">'
        f"{inner}</svg>"
    )


def _heights(values: Sequence[float], end: float) -> list[float]:
    return [round(_HEIGHT * min(max(value / end, 0.0), 1.0), 2) if end > 0 else 0.0 for value in values]


def area(
    values: Sequence[float], titles: Sequence[str], end: float, ends: Sequence[str], axis: Sequence[str], label: str,
    *, kind: str = "a",
) -> str:
    """Return values at equal steps as a filled step line; `kind` is its colour, a or b."""
    heights = _heights(values, end)
    path = f"M0 {_HEIGHT}" + "".join(f"V{_HEIGHT - height:g}H{at + 1}" for at, height in enumerate(heights))
    marks = "".join(
        f'<rect x="{at}" y="0" width="1" height="{_HEIGHT}"><title>{text(title)}</title></rect>'
        for at, title in enumerate(titles)
    )
    inner = f'<path class="fill {kind}" d="{path}V{_HEIGHT}Z"/><path class="line {kind}" d="{path}"/>'
    return _framed(_svg(len(values), f'{inner}<g class="hit">{marks}</g>', label), ends, axis)


def columns(
    values: Sequence[float], titles: Sequence[str], end: float, ends: Sequence[str], axis: Sequence[str], label: str,
    *, kind: str = "a",
) -> str:
    """Return values as columns side by side."""
    count = len(values)
    gap = 0.5 if count < 5 else 0.3 if count < 12 else 0.18 if count <= 60 else 0.05
    marks = "".join(
        f'<rect class="{kind}" x="{at + gap / 2:g}" y="{_HEIGHT - height:g}" width="{1 - gap:g}" height="{height:g}">'
        f"<title>{text(title)}</title></rect>"
        for at, (height, title) in enumerate(zip(_heights(values, end), titles, strict=True))
    )
    return _framed(_svg(max(len(values), 1), marks, label), ends, axis)


def curve(points: Sequence[tuple[float, float]], axis: Sequence[str], label: str) -> str:
    """Return a curve from (0, 0) to (1, 1), with the diagonal of an even distribution."""
    path = f"M0 {_HEIGHT}" + "".join(f"L{100 * x:.2f} {_HEIGHT - _HEIGHT * y:.2f}" for x, y in points)
    inner = (
        f'<path class="fill a" d="{path}L100 {_HEIGHT}Z"/><path class="even" d="M0 {_HEIGHT}L100 0"/>'
        f'<path class="line a" d="{path}"/>'
    )
    return _framed(_svg(100, inner, label), ("100%", "50%", "0%"), axis)


def bars(rows: Sequence[tuple[str, float, str]], *, kind: str = "a", is_key: bool = False) -> str:
    """Return horizontal bars of (label, share of the longest 0 to 1, value); key labels must already be escaped."""
    mark = ' class="k"' if is_key else ""
    parts = "".join(
        f"<div><span{mark}>{escape(label) if is_key else text(label)}</span>"
        f'<i class="{kind}" style="width:{100 * min(max(part, 0.0), 1.0):.1f}%"></i><span>{text(value)}</span></div>'
        for label, part, value in rows
    )
    return f'<div class="bars">{parts}</div>'
