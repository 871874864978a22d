"""Decisions of a follower about its leader's answers: values and functions, without sockets or disks.

A follower fetches from its own log end and sends its last epoch (KIP-595). The leader answers with records, or with the
offset where that epoch ended in its own log. The follower then truncates its log there and fetches again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode

UNKNOWN: Final = -1


class FetchLimits(NamedTuple):
    """Limits of a follower's fetches: Kafka's `replica.fetch.*`.

    The pause after a failure grows up to `backoff_ms`. An answer must arrive within `timeout_ms`, which includes the
    wait at the leader (KafkaConfig: it is never the shorter one).
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20
    backoff_ms: int = 1000
    least_backoff_ms: int = 50
    timeout_ms: int = 30_000


class Position(NamedTuple):
    """Position of a log: its end, its last epoch (-1: none) and its start."""

    end_offset: int
    last_epoch: int
    start_offset: int


class Following(NamedTuple):
    """State of one followed partition.

    With a `leader_epoch` of -1, requests carry no epoch. `failures` counts the failures in a row.
    """

    position: Position
    leader_epoch: int = UNKNOWN
    is_in_sync: bool = False
    not_before_ms: int = 0
    failures: int = 0
    is_suspended: bool = False

    def is_due(self, now_ms: int) -> bool:
        """Return True if the partition is due for a fetch."""
        return not self.is_suspended and now_ms >= self.not_before_ms

    def moved(self, position: Position, *, is_in_sync: bool) -> Following:
        """Return the state after an answer that had an effect."""
        return self._replace(position=position, is_in_sync=is_in_sync, failures=0, not_before_ms=0)

    def failed(self, now_ms: int, limits: FetchLimits, position: Position | None = None) -> Following:
        """Return the state after a failure: the partition is due again after a pause."""
        return self._replace(
            position=self.position if position is None else position,
            is_in_sync=False,
            failures=self.failures + 1,
            not_before_ms=now_ms + pause_ms(self.failures, limits),
        )


def pause_ms(failures: int, limits: FetchLimits) -> int:
    """Return the pause after a failure that follows `failures` others: it doubles each time, up to `backoff_ms`."""
    return min(limits.backoff_ms, limits.least_backoff_ms << min(failures, 20))


class PartitionAnswer(NamedTuple):
    """A leader's answer for one partition; unknown offsets are -1."""

    error_code: int
    high_watermark: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    records: memoryview | None = None
    diverging: tuple[int, int] | None = None  # (epoch, end offset)


class AppendRecords(NamedTuple):
    """Append the records, and adopt the leader's high watermark and log start."""

    records: memoryview | None
    high_watermark: int
    log_start_offset: int


class TruncateToEpoch(NamedTuple):
    """Truncate to the leader's newest epoch up to the requested one; `end_offset` is where it ends at the leader."""

    epoch: int
    end_offset: int


class TruncateTo(NamedTuple):
    """Truncate the log so that it ends at this offset."""

    offset: int


class RestartAt(NamedTuple):
    """Discard all records and restart the log at this offset."""

    offset: int


class RequestBounds(NamedTuple):
    """Ask the leader for its log start and end: the fetch offset lies outside them."""


class RetryLater(NamedTuple):
    """Do nothing now and retry later."""

    error_code: int


class Suspend(NamedTuple):
    """Do nothing until the role changes: the leader has a later epoch."""

    error_code: int


OnDisk = AppendRecords | TruncateToEpoch | TruncateTo | RestartAt
Plan = OnDisk | RequestBounds | RetryLater | Suspend


def plan_of(answer: PartitionAnswer) -> Plan:
    """Return the plan for an answer."""
    code = answer.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return RequestBounds()
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return Suspend(code)
    if code:
        return RetryLater(code)
    if answer.diverging is not None:
        return TruncateToEpoch(*answer.diverging)
    return AppendRecords(answer.records, answer.high_watermark, answer.log_start_offset)


def first_plan(position: Position, high_watermark: int) -> TruncateTo | None:
    """Return the plan before the first fetch in an epoch of leadership, or None.

    Records without an epoch have an old format, and no leader can say where they differ. So the follower truncates to
    the high watermark.
    """
    if position.last_epoch >= 0 or position.end_offset <= position.start_offset:
        return None
    return TruncateTo(high_watermark) if high_watermark < position.end_offset else None


def truncation_offset(leader_end: int, own_end: int, own: tuple[int, int] | None) -> int:
    """Return where to truncate the own log if the leader's newest epoch up to our last one ends at `leader_end`.

    `own` is (epoch, end) of our newest epoch up to the leader's. Records past either end cannot be the same in both
    logs. If our epoch differs from the leader's, the next fetch continues the search.
    """
    offset = min(leader_end, own_end)
    return max(0, offset if own is None else min(offset, own[1]))


def last_epoch_for(leader_epoch: int, epochs: Sequence[tuple[int, int]], end_offset: int) -> int:
    """Return the last epoch to send to the leader of `leader_epoch`, or -1.

    It is the leader's own epoch once that has begun, otherwise the epoch of the last record. `epochs` are (epoch, first
    offset) of the own log.

    An epoch of another leader that has begun but has no record cannot be compared by this leader. If it had to be
    removed first, a node that stops then would rank behind logs that lack its records.
    """
    for epoch, begin in reversed(epochs):
        if begin < end_offset or epoch == leader_epoch:
            return epoch
    return UNKNOWN


def has_unused_epoch(epochs: Sequence[tuple[int, int]], end_offset: int, next_epoch: int) -> bool:
    """Return True if the last epoch began at the log end, but the next record there has an earlier epoch.

    The leader of that record knew less than this one, whose log does not have that start of an epoch.
    """
    return bool(epochs) and epochs[-1][1] >= end_offset and epochs[-1][0] > next_epoch


def plan_of_bounds(own_end: int, leader_start: int, leader_end: int) -> TruncateTo | RestartAt | RetryLater:
    """Return the plan if the leader's log is from `leader_start` to `leader_end` and ours ends outside of it.

    A leader with a shorter log was elected without being in sync. A leader whose log begins after our end has deleted
    the records that we lack. If our end is inside by now, the follower asks again.
    """
    if not 0 <= leader_start <= leader_end:
        return RetryLater(ErrorCode.UNKNOWN_SERVER_ERROR)
    if leader_end < own_end:
        return TruncateTo(leader_end)
    if leader_start > own_end:
        return RestartAt(leader_start)
    return RetryLater(ErrorCode.OFFSET_OUT_OF_RANGE)


class Row(NamedTuple):
    """The request for one partition."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    leader_epoch: int
    max_bytes: int


def row_of(state: Following, limits: FetchLimits) -> Row:
    """Return the request for a partition."""
    end, epoch, start = state.position
    return Row(end, epoch, start, state.leader_epoch, limits.partition_max_bytes)


def next_due_ms(states: Iterable[Following]) -> int | None:
    """Return the time when the first waiting partition is due, or None if none waits for a time."""
    return min((state.not_before_ms for state in states if not state.is_suspended), default=None)
