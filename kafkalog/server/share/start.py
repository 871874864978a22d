"""The offset at which a share group begins in a partition (`share.auto.offset.reset`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def reset_timestamp(reset: str, now_ms: int) -> int:
    """Return the timestamp to look up: `EARLIEST`, `LATEST`, or a time in ms, at least 0, for a duration before now."""
    if reset.lower() == "earliest":
        return EARLIEST
    found = _DURATION.fullmatch(reset)
    if found is None:
        return LATEST
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        past = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:  # before all records
        return 0
    return max(0, now_ms - past // timedelta(milliseconds=1))
