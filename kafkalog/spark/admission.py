"""Size of a micro-batch: the limits of a trigger, as pure functions over offsets by partition.

The rules are those of Spark's Kafka source (`KafkaMicroBatchStream.rateLimit` and `delayBatch`), exact to the offset,
so that a query reads the same batches from either source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

from kafkalog.types import TopicPartition

Positions = Mapping[TopicPartition, int]


def lag(begins: Positions, ends: Positions) -> int:
    """Return the number of offsets between the begins and the ends; a partition that went back counts as 0."""
    return sum(max(0, end - begins[one]) for one, end in ends.items())


def rate_limited(most: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Return ends about `most` offsets after the begins, divided over the partitions in proportion to their lag.

    A share below one offset becomes one, so that no partition starves; others are rounded down. A partition without lag
    keeps its end.
    """
    sizes = {one: end - begins[one] for one, end in ends.items() if end > begins[one]}
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for one, size in sizes.items():
        share = most * (size / total)
        limited[one] = min(ends[one], begins[one] + (ceil(share) if share < 1 else floor(share)))
    return limited


@dataclass(frozen=True, slots=True)
class TriggerDelay:
    """Rule that postpones a batch with fewer than `least` offsets, by at most `most_ms` after the batch before it."""

    least: int
    most_ms: int

    def postpones(self, waiting: int, now_ms: int, last_ms: int | None) -> bool:
        """Return True if `waiting` offsets are too few; `last_ms` is the time of the last batch, None without one."""
        if last_ms is None or now_ms - last_ms >= self.most_ms:
            return False
        return waiting < self.least


@dataclass(frozen=True, slots=True)
class Admission:
    """End of a micro-batch: `ends` is None if it is postponed; `starts_delay` is True if the delay restarts."""

    ends: dict[TopicPartition, int] | None
    starts_delay: bool


def admitted(
    begins: Positions,
    ends: Positions,
    *,
    most: int | None,
    delay: TriggerDelay | None,
    now_ms: int,
    last_ms: int | None,
) -> Admission:
    """Return the next micro-batch between `begins` and `ends`, by the lower and then the upper limit."""
    if delay is not None and delay.postpones(lag(begins, ends), now_ms, last_ms):
        return Admission(None, False)
    return Admission(dict(ends) if most is None else rate_limited(most, begins, ends), delay is not None)
