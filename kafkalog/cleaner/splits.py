"""Retries of a requested clean after segment splits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kafkalog.errors import CleaningAborted, SegmentOffsetOverflow

MOST_SPLITS: Final = 100
"""Maximum number of retries of a clean after segment splits (CLN-26)."""

T = TypeVar("T")


def after_splits(attempt: Callable[[], T]) -> T:
    """Call `attempt`, a clean from its beginning, until no segment has to be split, and return its result.

    CleaningAborted if it is aborted for another reason, or if a segment has to be split after `MOST_SPLITS` retries.
    """
    for _ in range(MOST_SPLITS):
        try:
            return attempt()
        except CleaningAborted as error:
            if not isinstance(error.__cause__, SegmentOffsetOverflow):
                raise
    return attempt()
