"""Conversion of times (datetime, ISO text, milliseconds) to milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from kafkalog.errors import IllegalArgument

Time = datetime | date | str | int
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


def to_ms(time: Time) -> int:
    """Return milliseconds since 1970-01-01 UTC.

    An int is in milliseconds already; a datetime or ISO-8601 text without a zone is UTC; a date is its midnight.
    Fractions of a millisecond are rounded up, so that "at or after" stays true. Raises IllegalArgument for text that is
    no time, TypeError for other types.
    """
    if isinstance(time, bool):
        raise TypeError("a time is a datetime, ISO-8601 text or milliseconds, got bool")
    if isinstance(time, int):
        return time
    if isinstance(time, str):
        time = _parse(time)
    elif not isinstance(time, datetime) and isinstance(time, date):
        time = datetime(time.year, time.month, time.day)
    if not isinstance(time, datetime):
        kind = type(time).__name__
        hint = "; for seconds write int(seconds * 1000)" if isinstance(time, float) else ""
        raise TypeError(f"a time is a datetime, ISO-8601 text or whole milliseconds, got {kind}{hint}")
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    whole, rest = divmod(time - EPOCH, _MILLISECOND)
    return whole + (1 if rest else 0)


def moment_ms(time: Time) -> int:
    """Return what `to_ms` does, for a look-up in which negative numbers are codes such as LATEST.

    Raises IllegalArgument for a datetime, a date or text before 1970, which is none of them.
    """
    found = to_ms(time)
    if found < 0 and not isinstance(time, int):
        raise IllegalArgument(f"time {found} is before 1970", hint="no record has a negative timestamp")
    return found


def text_ms(text: str) -> int:
    """Return milliseconds since 1970 of a command line's TIME: digits are milliseconds, other text ISO-8601."""
    return int(text) if _DIGITS.fullmatch(text) else moment_ms(text)


def time_text(ms: int) -> str:
    """Return a time in ms since 1970 as ISO-8601 text in UTC, which `to_ms` reads; beyond the year 9999 as digits.

    All outputs write times in this form, with milliseconds unless 0.

    >>> time_text(1_700_000_000_000), time_text(1_700_000_000_003)
    ('2023-11-14T22:13:20Z', '2023-11-14T22:13:20.003Z')
    """
    try:
        return datetime_text(EPOCH + timedelta(milliseconds=ms))
    except OverflowError:
        return str(ms)


def datetime_text(when: datetime) -> str:
    """Return a datetime in the form of `time_text`, in its own zone, if it has one, and with all digits that it has."""
    digits = "microseconds" if when.microsecond % 1000 else "milliseconds" if when.microsecond else "seconds"
    digits = "nanoseconds" if getattr(when, "nanosecond", 0) else digits  # of pandas
    return when.isoformat(timespec=digits).replace("+00:00", "Z")


def record_ms(time: datetime | int) -> int:
    """Return a record's time in ms: an int unchanged, a datetime (without a zone: UTC) rounded down.

    Raises TypeError for other types, as `Log.append` does.
    """
    if isinstance(time, int):
        return time
    if not isinstance(time, datetime):
        raise TypeError(f"a timestamp is an int (ms since 1970) or a datetime, got {type(time).__name__}")
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise IllegalArgument(
            f"{ascii(text[:40])} is not a time",
            hint="use ISO-8601, such as 2026-11-20T12:00Z or 2026-11-20 (UTC if no zone is given), "
            "or milliseconds since 1970",
        ) from None

