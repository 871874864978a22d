"""Tables as HTML, without scripts and without colours for text, so that they fit light and dark notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, Final

from kafkalog.inspect.values import text_of
from kafkalog.inspect.width import escape_text

if TYPE_CHECKING:
    from kafkalog.inspect.rows import Column, Rows

STYLE: Final = """
.kafkalog{overflow-x:auto;max-width:100%;margin:.4em 0}
.kafkalog table{border-collapse:collapse;color:inherit;font:inherit;font-size:.93em;margin:0}
.kafkalog caption{text-align:left;font-weight:600;padding:.2em 0 .4em;white-space:nowrap}
.kafkalog th,.kafkalog td{padding:.28em .8em;text-align:left;background:none;color:inherit;border:0;
border-bottom:1px solid rgba(128,128,128,.28);vertical-align:baseline;unicode-bidi:isolate}
.kafkalog thead th{border-bottom:1px solid rgba(128,128,128,.7);font-weight:600;white-space:nowrap}
.kafkalog tbody tr:hover{background:rgba(128,128,128,.12)}
.kafkalog .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.kafkalog .t{font-variant-numeric:tabular-nums;white-space:nowrap}
.kafkalog td.k{font-family:ui-monospace,monospace;overflow-wrap:anywhere}
.kafkalog .b{min-width:8em}
.kafkalog .b i{display:block;height:.7em;min-width:1px;border-radius:2px;background:#4c8bf5}
.kafkalog p{margin:.35em 0;font-size:.9em;opacity:.85}
"""
_CLASSES: Final = {"text": "", "name": "k", "key": "k", "time": "t", "bar": "b"}


def fragment(tables: Iterable[Rows[object]], *, most: int | None = None) -> str:
    """Return several tables with their style, for a notebook."""
    parts = "".join(f'<div class="kafkalog">{table(one, most=most)}</div>' for one in tables)
    return f"<style>{STYLE}</style>{parts}"


def table(rows: Rows[object], *, most: int | None = None) -> str:
    """Return one table with title and notes; all text is escaped, including control characters and direction marks."""
    caption = f"<caption>{_text(rows.title)}</caption>" if rows.title else ""
    notes = "".join(f"<p>{_text(note)}</p>" for note in rows.notes)
    head, tail, gap = rows.left_out(most)
    if not head:
        return f"<table>{caption}<tbody><tr><td>(none)</td></tr></tbody></table>{notes}"
    names = "".join(f'<th scope="col"{_class(column)}>{_text(column.name)}</th>' for column in rows.columns)
    body = "".join(_row(rows, thing) for thing in head)
    if gap:
        body += f'<tr><td colspan="{len(rows.columns)}">{gap}</td></tr>'
    body += "".join(_row(rows, thing) for thing in tail)
    return f"<table>{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _row(rows: Rows[object], thing: object) -> str:
    return f"<tr>{''.join(_cell(column, column.get(thing)) for column in rows.columns)}</tr>"


def _cell(column: Column, value: Any) -> str:
    label = f' data-label="{_text(column.name)}"'
    if column.kind == "bar":
        share = 0.0 if value is None else min(max(float(value), 0.0), 1.0)
        return f'<td{_class(column)}{label}><i style="width:{100 * share:.1f}%" title="{share:.1%}"></i></td>'
    return f"<td{_class(column)}{label}>{escape(text_of(value, column.kind))}</td>"


def _class(column: Column) -> str:
    name = _CLASSES.get(column.kind, "n")
    return f' class="{name}"' if name else ""


def _text(text: str) -> str:
    return escape(escape_text(text))
