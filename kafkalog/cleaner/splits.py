"""A clean that is asked for goes on where a segment had to be split first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kafkalog.errors import CleaningAborted, SegmentOffsetOverflow

MOST_SPLITS: Final = 100
"""How often a clean begins again because a segment had to be split, before it gives up (CLN-26)."""

T = TypeVar("T")


def after_splits(attempt: Callable[[], T]) -> T:
    """What `attempt`, a clean from its beginning, gives once no segment has to be split; CleaningAborted otherwise."""
    for _ in range(MOST_SPLITS):
        try:
            return attempt()
        except CleaningAborted as error:
            if not isinstance(error.__cause__, SegmentOffsetOverflow):
                raise
    return attempt()
