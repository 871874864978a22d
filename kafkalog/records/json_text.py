"""JSON text as the reference's tools print it: no spaces, bytes in base64, doubles in Java's notation."""

from __future__ import annotations

import base64
import math
import re
from decimal import Decimal
from typing import Final

from kafkalog.errors import InvalidRecord

_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_PLAIN_FROM, _PLAIN_TO = -3, 7


def json_text(value: object) -> str:
    """Format None, booleans, numbers, strings, bytes, and lists and dicts of such values as JSON.

    Anything else (times, decimals, uuids) is formatted by str() and written as a string. Raises InvalidRecord for lists
    and dicts nested deeper than Python's stack allows; a parser written in C accepts deeper nesting.
    """
    try:
        return _text(value)
    except RecursionError:
        raise InvalidRecord("it is nested too deeply to be printed") from None


def _text(value: object) -> str:
    if isinstance(value, str):
        return f'"{_ESCAPED.sub(_escape, value)}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_text(str(name))}:{_text(x)}" for name, x in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_text(item) for item in value]) + "]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, float):
        return java_double(value) if math.isfinite(value) else f'"{java_double(value)}"'
    return _text(str(value))


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}"


def java_double(value: float) -> str:
    """Format a double as Java prints it: plain from 10^-3 up to 10^7, otherwise with an exponent after E."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent  # the value is 0.<text> times ten to this
    if not _PLAIN_FROM < point <= _PLAIN_TO:
        return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{text}"
    return f"{sign}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
