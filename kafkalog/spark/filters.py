"""Filters that a read can apply itself, and the offsets of each partition that they leave.

Filters are those of `pyspark.sql.datasource`. They are recognized by name, so that nothing of Spark is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from kafkalog.storage.names import MAX_OFFSET
from kafkalog.types import TopicPartition
from kafkalog.where.bounds import EVERY, MAX, MIN, NONE, Spans, joined, shared

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from kafkalog.where import Bounds

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_COMPARISONS: Final = frozenset({"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"})
_OF_TIMES: Final = _COMPARISONS | {"EqualTo", "EqualNullSafe", "In"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(slots=True)
class Bounded:
    """Whole numbers from `first` to `last`, both included, and only those in `among` if it is a set."""

    first: int = 0
    last: int = MAX_OFFSET
    among: frozenset[int] | None = None

    def apply(self, kind: str, value: Any) -> bool:
        """Apply a filter; return False and change nothing for one that is not understood."""
        if kind == "In":
            if not all(_is_number(one) or one is None for one in value):
                return False
            values = frozenset(one for one in value if one is not None)  # nothing equals null
            self.among = values if self.among is None else self.among & values
            return True
        if not _is_number(value):
            return False
        if kind in ("EqualTo", "EqualNullSafe"):
            return self.apply("In", (value,))
        if kind not in _COMPARISONS:
            return False
        if kind.startswith("Greater"):
            self.first = max(self.first, value + (kind == "GreaterThan"))
        else:
            self.last = min(self.last, value - (kind == "LessThan"))
        return True

    def contains(self, number: int) -> bool:
        """Return True if the number passes the filters."""
        return self.first <= number <= self.last and (self.among is None or number in self.among)

    def span(self) -> tuple[int, int]:
        """Return the smallest [start, stop) that contains all numbers that pass."""
        passing = [one for one in self.among if self.first <= one <= self.last] if self.among is not None else None
        if passing is None:
            return self.first, self.last + 1
        return (min(passing), max(passing) + 1) if passing else (0, 0)


class Pruning:
    """Topics (None for all), partitions, offsets and times in ms that pass the filters so far."""

    __slots__ = ("nothing", "offsets", "partitions", "times", "topics")

    def __init__(self) -> None:
        self.topics: frozenset[str] | None = None
        self.partitions = Bounded()
        self.offsets = Bounded()
        self.times: Spans = EVERY
        self.nothing = False

    def apply_condition(self, bounds: Bounds) -> None:
        """Narrow the ranges to what a condition leaves; it is evaluated for each record all the same."""
        self.nothing = self.nothing or bounds.nothing
        if self.nothing:
            return
        for numbers, spans in ((self.offsets, bounds.offsets), (self.partitions, bounds.partitions)):
            numbers.first = max(numbers.first, spans[0][0])
            numbers.last = min(numbers.last, spans[-1][1] - 1)
        self.times = shared(self.times, bounds.times)

    def apply(self, one: Filter) -> bool:
        """Apply a filter; return True if it is applied exactly here, so that Spark need not apply it again.

        Filters on time rule out ranges of offsets and batches, but return False, since what is left has other times
        too. A set of offsets also returns False, since its whole span is read, and so does any filter that is not
        understood.
        """
        kind = type(one).__name__
        column = ".".join(getattr(one, "attribute", ()))
        if kind in ("IsNotNull", "IsNull"):
            if column not in _NEVER_NULL:
                return False
            self.nothing = self.nothing or kind == "IsNull"
            return True
        value: Any = getattr(one, "value", None)
        if column == "topic":
            return self._apply_topic(kind, value)
        if column == "partition":
            return self.partitions.apply(kind, value)
        if column == "offset":
            return self.offsets.apply(kind, value) and not (kind == "In" and len(set(value)) > 1)
        if column == "timestamp":
            self.times = shared(self.times, _times_of(kind, value) if kind in _OF_TIMES else EVERY)
        return False

    def _apply_topic(self, kind: str, value: Any) -> bool:
        if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
            value = (value,)
        elif kind != "In" or not all(isinstance(name, str) or name is None for name in value):
            return False
        values = frozenset(name for name in value if name is not None)
        self.topics = values if self.topics is None else self.topics & values
        return True

    def narrowed(
        self, starts: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the bounds of the partitions that pass, narrowed to the smallest span of the offsets that pass."""
        first, stop = self.offsets.span()
        passing = [one for one in starts if self._contains(one)]
        begins = {one: max(starts[one], first) for one in passing}
        return begins, {one: max(begins[one], min(stops[one], stop)) for one in passing}

    def _contains(self, one: TopicPartition) -> bool:
        if self.nothing or not self.partitions.contains(one.partition):
            return False
        return self.topics is None or one.topic in self.topics


def _times_of(kind: str, value: object) -> Spans:
    """Return the times in ms that a filter on the column `timestamp` leaves; EVERY for one that is not understood."""
    if kind == "In" and isinstance(value, tuple):
        found = NONE
        for one in value:
            if one is not None:  # nothing equals null
                found = joined(found, _times_of("EqualTo", one))
        return found
    if not isinstance(value, datetime):
        return EVERY
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    low, rest = divmod(value - _EPOCH, _MILLISECOND)
    high = low + 1 if rest else low
    if kind in ("EqualTo", "EqualNullSafe"):
        return NONE if rest else ((low, low + 1),)
    if kind.startswith("Greater"):
        return ((high if kind == "GreaterThanOrEqual" else low + 1, MAX),)
    return ((MIN, high if kind == "LessThan" else low + 1),)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
