r"""Escaping of external text for display, and its width in terminal columns.

Records, keys and names may contain anything: control characters that drive a terminal, marks that reverse the direction
of a line, invisible characters. `escape_text` escapes them (`\x1b`, `\u202e`), so that one line of a table stays one
line and shows its content.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_MARKS: Final = 3
"""Most combining marks on one character; more would run into the lines around it."""
_NULL: Final = "null"


def escape_text(text: str) -> str:
    r"""Return `text` on one line, without anything that a terminal or a browser would interpret.

    A backslash is doubled, so that an escape cannot be confused with text that looks like one.

    >>> escape_text("a\tb"), escape_text("\u202eabc"), escape_text("caf\u00e9")
    ('a\\x09b', '\\u202eabc', 'café')
    """
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    out = []
    marks = _MARKS  # a mark at the start would combine with the text to its left
    for char in text:
        if char == "\\":
            out.append("\\\\")
            marks = 0
        elif not char.isprintable():
            out.append(_escaped(char))
            marks = 0
        elif _width(char):
            out.append(char)
            marks = 0
        else:
            marks += 1
            out.append(char if marks <= _MARKS else _escaped(char))
    return "".join(out)


def escape_bytes(data: bytes | None, most: int = 80) -> str:
    r"""Return a key or a value as text: UTF-8, with other bytes as `\xff`; `null` for None, `""` for an empty one.

    More than `most` bytes are cut and end in `...`.

    >>> escape_bytes(b"u-17"), escape_bytes(b"\xff\x00"), escape_bytes(None), escape_bytes(b"")
    ('u-17', '\\xff\\x00', 'null', '""')
    """
    if data is None:
        return _NULL
    if not data:
        return '""'
    text = escape_text(data[:most].decode("utf-8", "surrogateescape"))
    if text == _NULL:
        text = f'"{text}"'
    return text + "..." if len(data) > most else text


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python represents it in text
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _width(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me") or "\u1160" <= char <= "\u11ff":  # vowels within a Hangul syllable
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def columns_of(text: str) -> int:
    """Return the width of a text in terminal columns: 2 for a wide character, 0 for a combining mark.

    >>> columns_of("abc"), columns_of("日本"), columns_of("e\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int, *, middle: bool = False) -> str:
    """Cut `text` to at most `width` columns (at least 4): its start and `...`; with `middle` its end as well.

    >>> cut("a long name", 7), cut("/data/orders-0", 11, middle=True)
    ('a lo...', '/d...ders-0')
    """
    width = max(width, 4)
    if columns_of(text) <= width:
        return text
    room = width - 3
    head = room // 3 if middle else room
    tail = _last(text, room - head) if middle else ""
    return _first(text, head) + "..." + tail


def _first(text: str, width: int) -> str:
    used = 0
    for at, char in enumerate(text):
        used += _width(char)
        if used > width:
            return text[:at]
    return text


def _last(text: str, width: int) -> str:
    used = 0
    for at in range(len(text) - 1, -1, -1):
        wide = _width(text[at])
        used += wide
        if used > width:
            at += 1
            while at < len(text) and not _width(text[at]):  # marks without their base character
                at += 1
            return text[at:]
    return text
