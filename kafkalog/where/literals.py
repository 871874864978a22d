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


def milliseconds(literal: Literal) -> Decimal:
    """Return a time in ms since 1970, to the microsecond: a number and a text of digits are ms already.

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
    return Decimal((time - EPOCH) // timedelta(microseconds=1)) / 1000
