"""`like` and `matches` on columns of text and of bytes.

Bytes that are UTF-8 are text; bytes that are not are matched byte by byte, one character each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import IllegalArgument
from kafkalog.where.nodes import Like, Matches

Test = Callable[[pa.Array], pa.BooleanArray]
_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""Bytes that are UTF-8; for bytes, Arrow reads a pattern as one of bytes."""


def like(node: Like) -> Test:
    """Return the test of `like`: the whole text is the pattern's."""
    pattern = node.pattern
    parts = _parts(pattern)
    if _ONE in parts:
        return lambda column: _as_text(column, lambda text: pc.match_like(text, pattern))
    if "\\" in pattern and (literal := _without_like(parts)) is not None:
        return literal
    return lambda column: pc.match_like(column, pattern)  # the same for bytes and for text


_ANY, _ONE = object(), object()


def _parts(pattern: str) -> list[object]:
    """Return the characters of a pattern, with _ANY for a % and _ONE for a _ that no backslash is before."""
    found: list[object] = []
    characters = iter(pattern)
    for one in characters:
        if one == "\\":
            found.append(next(characters, one))
        elif one != "%" or found[-1:] != [_ANY]:
            found.append({"%": _ANY, "_": _ONE}.get(one, one))
    return found


def _without_like(parts: list[object]) -> Test | None:
    """Return the test of a pattern with % at its ends alone: Arrow does not see a backslash in one as what it is."""
    at_start, at_end = parts[:1] == [_ANY], parts[-1:] == [_ANY]
    inner = [one for one in parts if one is not _ANY]
    if len(parts) - len(inner) > at_start + (at_end and len(parts) > 1):
        return None
    text = "".join(map(str, inner))
    if at_start and at_end:
        return lambda column: pc.match_substring(column, text)
    if at_start or at_end:
        kernel = pc.ends_with if at_start else pc.starts_with
        return lambda column: kernel(column, text)
    return lambda column: pc.equal(column, pa.scalar(text.encode(), column.type))


def matches(node: Matches) -> Test:
    """Return the test of `matches`; raise IllegalArgument for an invalid regular expression."""
    pattern = node.pattern

    def test(text: pa.Array) -> pa.BooleanArray:
        return pc.match_substring_regex(text, pattern)

    for type in (pa.string(), pa.binary()):
        try:
            test(pa.array([""], type))
        except pa.ArrowInvalid as error:
            raise IllegalArgument(
                f"{error}, at character {node.position + 1} of the expression",
                hint="the syntax is RE2's: it has no back references and no look-around",
            ) from None
    return lambda column: _as_text(column, test)


def _as_text(column: pa.Array, test: Test) -> pa.BooleanArray:
    if column.type in (pa.string(), pa.large_string()):
        return test(column)
    text = pa.large_string() if column.type == pa.large_binary() else pa.string()
    try:
        return test(column.cast(text))
    except pa.ArrowInvalid:  # some row is not UTF-8
        is_text = pc.match_substring_regex(column, _UTF8)
        of_text = test(pc.if_else(is_text, column, pa.scalar(None, column.type)).cast(text))
        return pc.if_else(is_text, of_text, test(column))
