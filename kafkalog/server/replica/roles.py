"""Leader, replicas and replication progress of a partition: values, and the rules over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.types import LogOffsetMetadata

ALL: Final = -1
"""`acks` of a produce request that is answered once all in-sync replicas have its records."""
UNKNOWN_PLACE: Final = LogOffsetMetadata(-1)


class Role(NamedTuple):
    """The metadata of a partition, replaced as a whole.

    `partition_epoch` also counts changes of the ISR. `isr` holds the in-sync replicas, including the leader.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class FollowerState(NamedTuple):
    """Progress of a follower, known from its fetches; times are monotonic ms."""

    log_start_offset: int = -1
    log_end: LogOffsetMetadata = UNKNOWN_PLACE
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0

    def fetched(
        self, place: LogOffsetMetadata, log_start_offset: int, now_ms: int, leader_end_offset: int
    ) -> FollowerState:
        """Return the state after a fetch from `place`, when the leader's log ended at `leader_end_offset`.

        A follower has caught up if it fetches from the leader's end, or from what was the end at its previous fetch.
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
        """Return True if the follower has everything, or had everything at most `replica.lag.time.max.ms` ago."""
        return self.log_end.message_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def is_active(self, now_ms: int, lag_max_ms: int) -> bool:
        """Return True if the follower fetched, or was in sync, at most `replica.lag.time.max.ms` ago."""
        return now_ms - max(self.last_fetch_ms, self.last_caught_up_ms) <= lag_max_ms


LEFT: Final = FollowerState(last_caught_up_ms=-(2**62), last_fetch_ms=-(2**62))
"""The state of a follower that said that it stops: it is late until it fetches again."""


def effective_min_isr(min_insync_replicas: int, role: Role, least: int = 1) -> int:
    """Return the number of in-sync replicas that acks=all needs, at most the number of replicas (PART-1).

    `least` applies whatever the setting is. In a replica set it is a majority: with fewer, an election could lose a
    record.
    """
    return min(max(min_insync_replicas, least), len(role.replicas))


def majority_of(replicas: int) -> int:
    """Return the smallest number that is more than half."""
    return replicas // 2 + 1


def epoch_to_begin(
    newest: tuple[int, int], offset: int, last_epoch: int, log_start_offset: int
) -> tuple[int, int] | None:
    """Return the (epoch, offset) of the leader's epoch that a follower has to begin, or None.

    `newest` is the leader's epoch and its start offset. The other parameters come from the request of a follower whose
    last epoch did not end elsewhere. The follower has everything from before the epoch if its log ends at that offset,
    or if its log is empty and begins after it.
    """
    epoch, begin = newest
    if last_epoch >= epoch:
        return None
    is_empty_behind = last_epoch < 0 and offset == log_start_offset and offset > begin
    return (epoch, offset) if offset == begin or is_empty_behind else None


def next_high_watermark(
    end: LogOffsetMetadata, role: Role, followers: Mapping[int, FollowerState], now_ms: int, lag_max_ms: int
) -> LogOffsetMetadata:
    """Return the lowest log end of the leader, the in-sync replicas and the caught-up followers (PART-2).

    Caught-up followers count because they are about to join the ISR. If one became the leader, a high watermark beyond
    its log end would move back.
    """
    lowest = end
    for node_id, state in followers.items():
        counts = node_id in role.isr or state.is_caught_up(end.message_offset, now_ms, lag_max_ms)
        if counts and state.log_end.message_offset < lowest.message_offset:
            lowest = state.log_end
    return lowest


def may_join(state: FollowerState, high_watermark: int, epoch_start: int | None) -> bool:
    """Return True if a follower is in sync again: it has all safe records, and all from before the leader's epoch."""
    reached = state.log_end.message_offset
    return reached >= high_watermark and (epoch_start is None or reached >= epoch_start)


def without_places(followers: Mapping[int, FollowerState]) -> dict[int, FollowerState]:
    """Return the followers of a log that a copy with other segments has replaced: with offsets, but no positions."""
    return {
        node_id: state._replace(log_end=LogOffsetMetadata(state.log_end.message_offset))
        for node_id, state in followers.items()
    }


def role_in_set(own: Role, of_set: Role) -> Role:
    """Return the next role of a partition with the role `own`, from that of all partitions of a replica set.

    The set knows only the ISR with which a leader begins; within its epoch, the partition's own stays.
    """
    is_same = (own.leader, own.leader_epoch) == (of_set.leader, of_set.leader_epoch)
    return of_set._replace(partition_epoch=own.partition_epoch + 1, isr=own.isr if is_same else of_set.isr)


def with_isr(role: Role, isr: Iterable[int]) -> Role:
    """Return the role with these in-sync replicas, in the order of `replicas`; a change raises the partition epoch."""
    chosen = frozenset(isr)
    ordered = tuple(node_id for node_id in role.replicas if node_id in chosen)
    return role if ordered == role.isr else role._replace(isr=ordered, partition_epoch=role.partition_epoch + 1)


def without_late(
    role: Role, followers: Mapping[int, FollowerState], leader_end_offset: int, now_ms: int, lag_max_ms: int
) -> Role:
    """Return the role without late followers; the leader stays.

    A follower is late if it has not caught up, or not fetched, for `replica.lag.time.max.ms`. The second condition is
    needed because a dead follower has everything while nothing is written. In the reference, the controller removes
    nodes that send no heartbeats.
    """
    late = {
        node_id for node_id, state in followers.items()
        if not (state.is_caught_up(leader_end_offset, now_ms, lag_max_ms) and state.is_active(now_ms, lag_max_ms))
    }  # fmt: skip
    return with_isr(role, (node_id for node_id in role.isr if node_id not in late))
