"""What a follower does with its leader's answers: values and decisions, without a socket and without a disk.

A follower asks from its own log's end on, and says its last epoch (KIP-595). The leader gives records, or tells where
that epoch ended with it, and the follower cuts its log there and asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode

UNKNOWN: Final = -1


class FetchLimits(NamedTuple):
    """How a follower fetches: Kafka's `replica.fetch.*`; a failure is followed by a pause that grows up to
    `backoff_ms`. An answer has to come within `timeout_ms`, the wait at the leader counted (KafkaConfig: it is never
    the shorter one)."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20
    backoff_ms: int = 1000
    least_backoff_ms: int = 50
    timeout_ms: int = 30_000


class Position(NamedTuple):
    """Where a log is: its end, its last epoch (-1: none), its start."""

    end_offset: int
    last_epoch: int
    start_offset: int


class Following(NamedTuple):
    """One partition that is followed. `leader_epoch` -1 tells the leader none; `failures` in a row until now."""

    position: Position
    leader_epoch: int = UNKNOWN
    is_in_sync: bool = False
    not_before_ms: int = 0
    failures: int = 0
    stands_still: bool = False

    def is_due(self, now_ms: int) -> bool:
        """Whether it is asked for now."""
        return not self.stands_still and now_ms >= self.not_before_ms

    def moved(self, position: Position, *, is_in_sync: bool) -> Following:
        """After something came of an answer."""
        return self._replace(position=position, is_in_sync=is_in_sync, failures=0, not_before_ms=0)

    def failed(self, now_ms: int, limits: FetchLimits, position: Position | None = None) -> Following:
        """After a failure: it is asked for again once the pause is over."""
        return self._replace(
            position=self.position if position is None else position,
            is_in_sync=False,
            failures=self.failures + 1,
            not_before_ms=now_ms + pause_ms(self.failures, limits),
        )


def pause_ms(failures: int, limits: FetchLimits) -> int:
    """How long to wait after a failure that follows so many others: twice as long each time, up to `backoff_ms`."""
    return min(limits.backoff_ms, limits.least_backoff_ms << min(failures, 20))


class Answered(NamedTuple):
    """What a leader answers for one partition; offsets that are not known are -1."""

    error_code: int
    high_watermark: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    records: memoryview | None = None
    diverging: tuple[int, int] | None = None  # (epoch, end offset)


class Take(NamedTuple):
    """Append the records, and take over high watermark and log start."""

    records: memoryview | None
    high_watermark: int
    log_start_offset: int


class CutToEpoch(NamedTuple):
    """The leader's newest epoch up to the one that was asked about, and where it ends there."""

    epoch: int
    end_offset: int


class CutTo(NamedTuple):
    """Cut the log's end, so that it ends at this offset."""

    offset: int


class BeginAt(NamedTuple):
    """Give up all records: the log begins anew at this offset."""

    offset: int


class AskBounds(NamedTuple):
    """Ask the leader where its log begins and ends: the offset that was asked for lies outside."""


class TryLater(NamedTuple):
    """Nothing can be done now."""

    error_code: int


class StandStill(NamedTuple):
    """Nothing can be done until the role is another one: the leader has a later epoch."""

    error_code: int


OnDisk = Take | CutToEpoch | CutTo | BeginAt
Plan = OnDisk | AskBounds | TryLater | StandStill


def plan_of(answer: Answered) -> Plan:
    """What to do with an answer."""
    code = answer.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskBounds()
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return StandStill(code)
    if code:
        return TryLater(code)
    if answer.diverging is not None:
        return CutToEpoch(*answer.diverging)
    return Take(answer.records, answer.high_watermark, answer.log_start_offset)


def first_plan(position: Position, high_watermark: int) -> CutTo | None:
    """What to do before the first fetch in an epoch of leadership. Records without any epoch are of an old format: no
    leader can say where they differ, so all above the high watermark goes."""
    if position.last_epoch >= 0 or position.end_offset <= position.start_offset:
        return None
    return CutTo(high_watermark) if high_watermark < position.end_offset else None


def cut_offset(leader_end: int, own_end: int, own: tuple[int, int] | None) -> int:
    """Where to cut the own log when the leader's newest epoch up to ours ends at `leader_end`.

    `own` is (epoch, end) of our newest epoch up to the leader's. What lies behind either end cannot be the same in both
    logs. Where our epoch is another one than the leader's, the next fetch tells more.
    """
    offset = min(leader_end, own_end)
    return max(0, offset if own is None else min(offset, own[1]))


def last_epoch_for(leader_epoch: int, epochs: Sequence[tuple[int, int]], end_offset: int) -> int:
    """The last epoch that the leader of an epoch is told: its own once it was begun, else that of the last record, -1
    without one. `epochs` are (epoch, first offset) of the own log.

    An epoch of another leader that was begun and has no record is nothing that this one could compare: where it had to
    be given up first, a node that stops then would be behind logs that lack what it has.
    """
    for epoch, begin in reversed(epochs):
        if begin < end_offset or epoch == leader_epoch:
            return epoch
    return UNKNOWN


def begins_for_nothing(epochs: Sequence[tuple[int, int]], end_offset: int, next_epoch: int) -> bool:
    """Whether the last epoch was begun at the log's end, and the next record there is of an earlier one: its leader
    knew less than this one, whose log does not have that begin."""
    return bool(epochs) and epochs[-1][1] >= end_offset and epochs[-1][0] > next_epoch


def plan_of_bounds(own_end: int, leader_start: int, leader_end: int) -> CutTo | BeginAt | TryLater:
    """What to do when the leader's log is from `leader_start` to `leader_end`, and ours ends outside of it.

    A leader with a shorter log was elected without being in sync. One whose log begins behind our end has let go of
    what we lack. Where our end lies inside by now, it is asked again.
    """
    if not 0 <= leader_start <= leader_end:
        return TryLater(ErrorCode.UNKNOWN_SERVER_ERROR)
    if leader_end < own_end:
        return CutTo(leader_end)
    if leader_start > own_end:
        return BeginAt(leader_start)
    return TryLater(ErrorCode.OFFSET_OUT_OF_RANGE)


class Row(NamedTuple):
    """What is asked of one partition."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    leader_epoch: int
    max_bytes: int


def row_of(state: Following, limits: FetchLimits) -> Row:
    """What to ask for a partition."""
    end, epoch, start = state.position
    return Row(end, epoch, start, state.leader_epoch, limits.partition_max_bytes)


def next_due_ms(states: Iterable[Following]) -> int | None:
    """When the first of those that wait is due; None where nobody waits for a time."""
    return min((state.not_before_ms for state in states if not state.stands_still), default=None)
