"""How far a micro-batch goes: the limits of a trigger, as pure functions over offsets by partition.

The rules are those of Spark's Kafka source (`KafkaMicroBatchStream.rateLimit` and `delayBatch`), to the same offset,
so that a query takes the same batches from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

from kafkalog.types import TopicPartition

__all__ = ["Admission", "TriggerDelay", "admitted", "lag", "rate_limited"]

Positions = Mapping[TopicPartition, int]


def lag(begins: Positions, ends: Positions) -> int:
    """How many offsets lie between the begins and the ends; a partition that went back counts nothing."""
    return sum(max(0, end - begins[one]) for one, end in ends.items())


def rate_limited(most: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Ends that are about `most` offsets from the begins, each partition's share being that of its lag.

    A share below one offset is one, so that no partition starves; others are rounded down. A partition without lag
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
    """When a batch with fewer than `least` offsets is put off: not longer than `most_ms` after the one before it."""

    least: int
    most_ms: int

    def puts_off(self, waiting: int, now_ms: int, last_ms: int | None) -> bool:
        """Whether `waiting` offsets are too few yet; `last_ms` is when a batch was let go last, None for never."""
        if last_ms is None or now_ms - last_ms >= self.most_ms:
            return False
        return waiting < self.least


@dataclass(frozen=True, slots=True)
class Admission:
    """Where a micro-batch ends: `ends` None means that it is put off; `let_go` that the delay is counted anew."""

    ends: dict[TopicPartition, int] | None
    let_go: bool


def admitted(
    begins: Positions,
    ends: Positions,
    *,
    most: int | None,
    delay: TriggerDelay | None,
    now_ms: int,
    last_ms: int | None,
) -> Admission:
    """The next micro-batch of what lies between `begins` and `ends`, by the lower and then the upper limit."""
    if delay is not None and delay.puts_off(lag(begins, ends), now_ms, last_ms):
        return Admission(None, False)
    return Admission(dict(ends) if most is None else rate_limited(most, begins, ends), delay is not None)
