"""Parser of Java's `.properties` files: keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def parse_properties(content: bytes) -> dict[str, str]:
    """Return the pairs of a file; of a repeated key the last one counts, as in Java.

    Comment lines begin with # or !. A line that ends in a backslash continues on the next line. `=`, `:` or blanks
    separate key and value. A `\\u` without four digits after it is the letter u; two of them may be the halves of one
    character.
    """
    pairs = {}
    for line in _logical_lines(content.decode("latin-1")):
        match = _PAIR.fullmatch(line)
        if match is not None:
            pairs[_unescape(match[1])] = _unescape(match[2])
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        if line != "\\":
            parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield "".join(parts)
            parts.clear()
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _PLAIN.get(escaped, escaped)

    return _ESCAPE.sub(meaning, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
