"""Move a member of a consumer group from its current to its target assignment (KIP-848).

The member first revokes partitions that are not in its target and confirms this. Then it gets the partitions of its
target that no other member has.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kafkalog.server.groups.consumer_group import NO_PARTITIONS, ConsumerMember, MemberState, Partitions


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember | None:
    """Return the member after a heartbeat, `member` itself if unchanged, or None if it must rejoin.

    `owned` are the partitions that the member reports, None if the heartbeat omits them; `is_free` returns True if no
    other member has a partition.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        return None
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, member.revoking):
        return member
    return _next(member, target_epoch, target, owned, is_free)


def _still_has(owned: Partitions | None, revoking: Partitions) -> bool:
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & partitions for topic_id, partitions in revoking.items())


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    revoking: dict[UUID, frozenset[int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    must_wait = False
    for topic_id in {**member.assigned, **target}:
        targeted = target.get(topic_id, frozenset())
        assigned = member.assigned.get(topic_id, frozenset())
        _put(kept, topic_id, assigned & targeted)
        _put(revoking, topic_id, assigned - targeted)
        free = frozenset(one for one in targeted - assigned if is_free(topic_id, one))
        must_wait = must_wait or free != targeted - assigned
        _put(added, topic_id, free)
    if revoking and _still_has(owned, revoking):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    epochs = {place: epoch for place, epoch in member.epochs.items() if place[1] in kept.get(place[0], ())}
    for topic_id, partitions in added.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
        epochs |= {(topic_id, number): target_epoch for number in partitions}
    return member._replace(
        epoch=target_epoch,
        # the previous epoch is kept, since the answer may be lost
        previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE,
        assigned=kept,
        revoking=NO_PARTITIONS,
        epochs=epochs,
    )


def _put(to: dict[UUID, frozenset[int]], topic_id: UUID, partitions: frozenset[int]) -> None:
    if partitions:
        to[topic_id] = partitions
