"""Continuation of a stream: its offsets compared with the existing ones, and what of it is lost.

The rules are those of Spark's Kafka source: a new partition begins at its earliest offset, a missing one is left out,
and one that went back continues at its current end. An end before its begin means that the stream continues at that end
and that nothing is read. These are pure functions; `stream.py` raises or warns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog.types import TopicPartition


class Standing(NamedTuple):
    """Offsets of a partition: readable from `earliest` up to `latest`, exclusive; `log_end` is the end of its log.

    `latest` is before `log_end` if isolation ends reading there.
    """

    earliest: int
    latest: int
    log_end: int


class Loss(NamedTuple):
    """Records that a stream can no longer read: a text, and their first offset if there is one."""

    partition: TopicPartition
    text: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Reach:
    """Start and end of reading in each partition, and the losses before that."""

    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    losses: tuple[Loss, ...]


def reachable(
    start: Mapping[TopicPartition, int],
    standings: Mapping[TopicPartition, Standing],
    recreated: Collection[TopicPartition] = (),
) -> Reach:
    """Return all that a stream at `start` can read of the partitions in `standings`.

    `recreated` are partitions known to be new ones of the same name. They begin at their earliest offset.
    """
    begins, ends, losses = {}, {}, _missing(start, standings)
    for one, standing in standings.items():
        begin, end = start.get(one), standing.latest
        if begin is None:
            begin = standing.earliest
            losses += _late_start(one, standing.earliest)
        elif one in recreated and begin > standing.earliest:
            end = standing.earliest
            text = f"{one} was deleted and created again after it was read up to {begin}: reading continues at {end}"
            losses.append(Loss(one, text, end))
        elif begin > standing.log_end:
            text = f"{one} was read up to {begin} but now ends at {standing.log_end}: reading continues at {end}"
            losses.append(Loss(one, text, end))
        elif begin > standing.latest:
            end = begin  # isolation ends before what was read: it continues once the end is past that
        elif begin < standing.earliest:
            losses.append(_deleted(one, begin, standing.earliest))
            begin = standing.earliest
        begins[one], ends[one] = begin, end
    return Reach(begins, ends, tuple(losses))


def replayed(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    standings: Mapping[TopicPartition, Standing],
) -> Reach:
    """Return what can be read of a planned micro-batch from `start` to `end`, with the losses in it."""
    begins, ends, losses = {}, {}, _missing(start, end)
    for one, until in end.items():
        begin, standing = start.get(one), standings.get(one)
        if begin == until:
            continue
        if standing is None:
            losses.append(Loss(one, f"{one} is missing, but offsets up to {until} of it were to be read", begin))
            continue
        if begin is None:
            begin = standing.earliest
            losses += _late_start(one, begin)
        elif begin > until:
            losses.append(Loss(one, f"{one} was read up to {begin} and went back: reading continues at {until}", until))
        elif begin < standing.earliest:
            losses.append(_deleted(one, begin, min(until, standing.earliest)))
        if until > standing.latest and begin <= until:
            lost = max(begin, standing.latest)
            losses.append(Loss(one, f"{one} ends at {standing.latest}, but was to be read up to {until}", lost))
        begins[one] = max(begin, standing.earliest)
        ends[one] = min(until, standing.latest)
    return Reach(begins, ends, tuple(losses))


def _missing(start: Mapping[TopicPartition, int], standings: Collection[TopicPartition]) -> list[Loss]:
    text = "{} is missing or no longer subscribed; it was read up to {}"
    return [Loss(one, text.format(one, offset), offset) for one, offset in start.items() if one not in standings]


def _late_start(one: TopicPartition, earliest: int) -> list[Loss]:
    """Return the loss for a new, unread partition whose first records are already deleted."""
    return [Loss(one, f"the new partition {one} begins at {earliest}, not at 0", 0)] if earliest else []


def _deleted(one: TopicPartition, begin: int, earliest: int) -> Loss:
    return Loss(one, f"offsets {begin} to {earliest - 1} of {one} were deleted before they were read", begin)
