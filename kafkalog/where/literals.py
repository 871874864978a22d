"""Constants as the numbers that whole columns are compared with."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.util.times import EPOCH, to_ms
from kafkalog.where.nodes import Literal

_DIGITS: Final = re.compile(r"-?[0-9]{1,18}")
_BELOW_MICROSECONDS: Final = re.compile(r"[^0-9:.,+-][0-9:]+[.,][0-9]{6}([0-9]+)")
"""The digits of a time of a day that Python drops."""


def milliseconds(literal: Literal) -> Decimal:
    """Return a time in ms since 1970, with all of its digits: a number and a text of digits are ms already.

    Other text is ISO-8601, UTC without a zone. Raises IllegalArgument for a constant that is no time.
    """
    value = literal.value
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, str):
        raise IllegalArgument(f"{literal} is not a time", hint="write a time as '2026-11-20T12:00Z', or as ms")
    if _DIGITS.fullmatch(value):
        return Decimal(value)
    to_ms(value)  # raises for what is no time
    time = datetime.fromisoformat(value.strip())
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    below = _BELOW_MICROSECONDS.search(value)
    return Decimal(f"{(time - EPOCH) // timedelta(microseconds=1)}e-3") + Decimal(f"0.000{below[1] if below else 0}")
