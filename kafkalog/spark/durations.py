"""Durations in the notation of Spark's options: `250ms`, `90s`, `15m`."""

from __future__ import annotations

import re
from typing import Final

from kafkalog.errors import IllegalArgument

__all__ = ["duration_ms"]

_UNIT_US: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip
_TEXT: Final = re.compile(r"(\d{1,18})([a-z]*)", re.ASCII)
MAX_MS: Final = 2**63 - 1


def duration_ms(text: str, option: str) -> int:
    """Parse a duration by the rules of Spark's time strings, a number and a unit (default ms), to whole milliseconds.

    Raises IllegalArgument, naming the option, for anything else.
    """
    found = _TEXT.fullmatch(text.strip().lower())
    unit_us = _UNIT_US.get(found[2] or "ms") if found else None
    if found is None or unit_us is None or (length := int(found[1]) * unit_us // 1_000) > MAX_MS:
        units = ", ".join(_UNIT_US)
        raise IllegalArgument(f"{option} is {text!r}", hint=f"give a number and one of {units}, such as 90s or 15m")
    return length
