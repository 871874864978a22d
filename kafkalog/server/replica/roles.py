"""Who leads a partition, who has copies of it, and how far each copy is: values, and the rules over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.types import LogOffsetMetadata

ALL: Final = -1
"""`acks` of a produce request that is answered once all replicas in sync have its records."""
UNKNOWN_PLACE: Final = LogOffsetMetadata(-1)


class Role(NamedTuple):
    """What the metadata says of a partition, replaced as a whole: the leader's node, its epoch, the epoch of the whole
    (which counts changes of the ISR too), the replicas, and those of them in sync, the leader among them."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class FollowerState(NamedTuple):
    """How far a follower has come, by its fetches; times are monotonic ms."""

    log_start_offset: int = -1
    log_end: LogOffsetMetadata = UNKNOWN_PLACE
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0

    def fetched(
        self, place: LogOffsetMetadata, log_start_offset: int, now_ms: int, leader_end_offset: int
    ) -> FollowerState:
        """The state after a fetch from `place`, when the leader's log ended at `leader_end_offset`.

        A follower has caught up when it asks for the leader's end, or for what was the end at its fetch before.
        """
        caught_up_ms = self.last_caught_up_ms
        if place.message_offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif place.message_offset >= self.last_fetch_leader_end:
            caught_up_ms = max(caught_up_ms, self.last_fetch_ms)
        return FollowerState(
            log_start_offset, place, caught_up_ms, now_ms, max(leader_end_offset, self.last_fetch_leader_end)
        )

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has all, or had all at most `replica.lag.time.max.ms` ago."""
        return self.log_end.message_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def is_heard_of(self, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has fetched, or was in sync, at most `replica.lag.time.max.ms` ago."""
        return now_ms - max(self.last_fetch_ms, self.last_caught_up_ms) <= lag_max_ms


def effective_min_isr(min_insync_replicas: int, role: Role, least: int = 1) -> int:
    """How many replicas in sync a write with acks=all needs: never more than there are replicas (PART-1).

    `least` counts whatever the setting says: in a replica set a majority, without which votes could pass by a record.
    """
    return min(max(min_insync_replicas, least), len(role.replicas))


def majority_of(replicas: int) -> int:
    """The smallest number that is more than half."""
    return replicas // 2 + 1


def epoch_to_begin(
    newest: tuple[int, int], offset: int, last_epoch: int, log_start_offset: int
) -> tuple[int, int] | None:
    """(epoch, offset) of the leader's epoch for a follower that has to begin it, None where there is nothing to begin.

    `newest` is the leader's epoch and where it began; the rest is what a follower asks whose last epoch did not end
    elsewhere. It has all from before the epoch when its log ends there, or is empty and begins behind that.
    """
    epoch, begin = newest
    if last_epoch >= epoch:
        return None
    is_empty_behind = last_epoch < 0 and offset == log_start_offset and offset > begin
    return (epoch, offset) if offset == begin or is_empty_behind else None


def next_high_watermark(
    end: LogOffsetMetadata, role: Role, followers: Mapping[int, FollowerState], now_ms: int, lag_max_ms: int
) -> LogOffsetMetadata:
    """The lowest log end of the leader, those in sync, and those that have caught up and are about to be (PART-2).

    Who is about to join is waited for: a high watermark beyond it would be taken back if it became the leader.
    """
    lowest = end
    for node_id, state in followers.items():
        counts = node_id in role.isr or state.is_caught_up(end.message_offset, now_ms, lag_max_ms)
        if counts and state.log_end.message_offset < lowest.message_offset:
            lowest = state.log_end
    return lowest


def may_join(state: FollowerState, high_watermark: int, epoch_start: int | None) -> bool:
    """Whether a follower is in sync again: it has all that is safe, and all from before the leader's epoch."""
    reached = state.log_end.message_offset
    return reached >= high_watermark and (epoch_start is None or reached >= epoch_start)


def with_isr(role: Role, isr: Iterable[int]) -> Role:
    """The role with these replicas in sync, in the order of the replicas: a change counts in its partition epoch."""
    chosen = frozenset(isr)
    ordered = tuple(node_id for node_id in role.replicas if node_id in chosen)
    return role if ordered == role.isr else role._replace(isr=ordered, partition_epoch=role.partition_epoch + 1)


def without_late(
    role: Role, followers: Mapping[int, FollowerState], leader_end_offset: int, now_ms: int, lag_max_ms: int
) -> Role:
    """The role without the followers that have not caught up for `replica.lag.time.max.ms`, or have not asked for
    anything for so long: where nothing is written, a dead one has all. With the reference the controller takes out
    who sends it no heartbeats. The leader stays."""
    late = {
        node_id for node_id, state in followers.items()
        if not (state.is_caught_up(leader_end_offset, now_ms, lag_max_ms) and state.is_heard_of(now_ms, lag_max_ms))
    }  # fmt: skip
    return with_isr(role, (node_id for node_id in role.isr if node_id not in late))


def low_watermark(log_start_offset: int, followers: Iterable[FollowerState], future_start: int | None) -> int:
    """The lowest log start of the leader, these followers, and the future replica (PART-11)."""
    starts = [log_start_offset, *(state.log_start_offset for state in followers)]
    return min(starts if future_start is None else [*starts, future_start])
