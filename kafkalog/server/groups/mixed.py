"""Groups that change between the classic and the consumer protocol while they have members (KIP-848).

A classic group becomes a consumer group when a member of the consumer protocol joins; its own members stay with the
classic protocol and have to rejoin. Their requests are answered from the consumer group. When the last member of
the consumer protocol leaves, the group becomes a classic one again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups import records
from kafkalog.server.groups.classic_group import CONSUMER, ClassicGroup, State
from kafkalog.server.groups.classic_member import ClassicMember
from kafkalog.server.groups.consumer_group import (
    NO_PARTITIONS,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from kafkalog.server.groups.consumer_heartbeat import (
    Draft,
    HeartbeatResult,
    Rules,
    VisibleTopics,
    advance,
    delete,
    replace_static,
    subscribe,
    topics_hash,
)
from kafkalog.server.groups.embedded import (
    HasUserData,
    IdOf,
    Malformed,
    NameOf,
    assignment_bytes,
    read_assignment,
    read_subscription,
    version_of,
)
from kafkalog.server.groups.records import Record, group_record, tombstone
from kafkalog.server.groups.values import Joining, Synced, Syncing

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

DISABLED: Final = "disabled"
UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})


# Between the protocols


def upgraded(
    group: ClassicGroup, topics: VisibleTopics, id_of: IdOf, rules: Rules, policy: str
) -> tuple[ConsumerGroup, tuple[Record, ...]]:
    """Return the consumer group with the same members, and the records of the change.

    Its epoch is the generation. Every member has what it was assigned, also as its target. Raise Refused.
    """
    name = f"Cannot upgrade classic group {group.id} to consumer group because"
    if policy.lower() not in UPGRADES:
        raise _refused(f"{name} online upgrade is disabled.")
    if group.protocol_type != CONSUMER:
        raise _refused(f"{name} the group does not use the consumer embedded protocol.")
    if len(group.members) > rules.max_size:
        raise _refused(f"{name} the group size exceeds the consumer group maximum size.")
    try:
        members = [_consumer_member(group, one, id_of) for one in group.members.values()]
    except Malformed:
        raise _refused(f"{name} the embedded consumer protocol is malformed.") from None
    except HasUserData:
        raise _refused(
            f"{name} an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade."
        ) from None
    draft = Draft(ConsumerGroup(group.id))
    for one in members:
        draft.put(records.CONSUMER_MEMBER, (one.id,), one.subscription_fields())
    metadata_hash = topics_hash(draft.group, topics)
    epoch: Message = {"epoch": group.generation, **({"metadataHash": metadata_hash} if metadata_hash else {})}
    draft.put(records.CONSUMER_GROUP, (), epoch)
    for one in members:
        draft.put(records.TARGET_MEMBER, (one.id,), {"topicPartitions": records.partition_rows(one.assigned)})
    draft.put(records.TARGET, (), {"assignmentEpoch": group.generation})  # no assignor has run
    for one in members:
        draft.put(records.CURRENT_MEMBER, (one.id,), one.assignment_fields())
    return draft.group, (tombstone(records.CLASSIC_GROUP, group.id), *draft.records)


def _refused(message: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _consumer_member(group: ClassicGroup, one: ClassicMember, id_of: IdOf) -> ConsumerMember:
    subscription = read_subscription(one.protocols[0][1], id_of)
    assigned = read_assignment(one.assignment, id_of)
    return ConsumerMember(
        one.id, one.instance_id, subscription.rack_id, one.client_id, one.client_host, subscription.topics, None,
        one.rebalance_timeout_ms, None, group.generation, group.generation, MemberState.STABLE, assigned,
        classic=ClassicMetadata(one.session_timeout_ms, one.protocols),
    )  # fmt: skip


def may_downgrade(group: ConsumerGroup, leaving: Collection[str], policy: str, max_size: int) -> bool:
    """Return True if the group becomes a classic one when these members leave: only classic members stay."""
    staying = [member for member in group.members.values() if member.id not in leaving]
    is_classic = bool(staying) and all(member.is_classic for member in staying)
    return is_classic and policy.lower() in DOWNGRADES and len(staying) <= max_size


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], name_of: NameOf, now_ms: int
) -> tuple[ClassicGroup, tuple[Record, ...]]:
    """Return the classic group of the members that stay, and the records of the change.

    Its generation is the epoch. Every member is assigned its target.
    """
    classic = ClassicGroup(group.id, now_ms)
    classic.move_to(State.STABLE, now_ms)
    classic.generation, classic.protocol_type = group.epoch, CONSUMER
    for one in group.members.values():
        if one.id not in leaving and one.classic is not None:
            classic.members[one.id] = ClassicMember(
                one.id, one.instance_id, one.client_id, one.client_host, one.classic.session_timeout_ms,
                one.rebalance_timeout_ms, CONSUMER, one.classic.protocols,
            )  # fmt: skip
            if one.instance_id is not None:
                classic.instances[one.instance_id] = one.id
    classic.leader = next(iter(classic.members))
    classic.protocol = classic.select_protocol()
    classic.read_topics = classic.topics_of_members(classic.protocol)
    for member in classic.members.values():
        target = group.targets.get(member.id, NO_PARTITIONS)
        member.assignment = assignment_bytes(target, name_of, version_of(member.metadata(classic.protocol)))
        classic.assignment_bytes += len(member.assignment)
    return classic, (*delete(group), group_record(group.id, classic.fields()))


# Requests of classic members


def join_refusal(group: ConsumerGroup, event: Joining, policy: str, max_size: int) -> int:
    """Return the error code if a client of the classic protocol cannot join, else 0."""
    if event.member_id not in group.members:
        is_returning = event.instance_id is not None and event.instance_id in group.instances
        if len(group.members) >= max_size and not is_returning:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if policy.lower() == DISABLED:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if event.protocol_type != CONSUMER or not event.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    common = {name for name, _ in event.protocols}
    for member in group.classic_members():
        if member.classic is not None:
            common &= {name for name, _ in member.classic.protocols}
    return 0 if common else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def join(
    group: ConsumerGroup, event: Joining, member_id: str, topics: VisibleTopics, id_of: IdOf, rules: Rules
) -> HeartbeatResult:
    """Apply a JoinGroup of a classic member, or of a client that becomes one. Refused with the broker's error code."""
    replaced = None if event.instance_id is None else _static_to_replace(group, event)
    try:
        subscription = read_subscription(event.protocols[0][1], id_of)
    except Malformed:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The subscription is malformed.") from None
    draft = Draft(group)
    if replaced is not None:
        replace_static(draft, replaced, member_id)
    old = draft.group.members.get(member_id)
    new = (old or ConsumerMember(member_id))._replace(
        instance_id=event.instance_id,
        rack_id=subscription.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=subscription.topics,
        regex=None,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        classic=ClassicMetadata(event.session_timeout_ms, event.protocols),
    )
    is_bumped = subscribe(draft, old, new, topics, rules.now_ms)
    after = advance(draft, member_id, is_bumped, subscription.owned, topics, rules)
    return draft.result(after, after.epoch, True, None if replaced is None else replaced.id)


def _static_to_replace(group: ConsumerGroup, event: Joining) -> ConsumerMember | None:
    """Return the member whose instance id a new client takes over; None if there is none, or it is the client."""
    holder_id = group.instances.get(event.instance_id or "")
    if holder_id is None:
        if event.member_id:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "The instance id is unknown.")
        return None
    if event.member_id and event.member_id != holder_id:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"The instance id is owned by member {holder_id}.")
    return None if event.member_id else group.members[holder_id]


def check_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> int:
    """Return 0 for a classic member in its generation, else the error code."""
    if instance_id is not None:
        known = group.instances.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    if member is None or not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return 0 if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if a classic member has to join again: to catch up, to revoke partitions, or to get free ones."""
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if another member still has a partition of this one's target."""
    return any(
        group.owners.get((topic_id, number), member.id) != member.id
        for topic_id, numbers in group.targets.get(member.id, NO_PARTITIONS).items()
        for number in numbers
    )


def sync(group: ConsumerGroup, event: Syncing, name_of: NameOf) -> Synced:
    """Return the answer to a SyncGroup of a classic member: what it is assigned, or an error."""
    error = check_member(group, event.member_id, event.instance_id, event.generation)
    if error:
        return Synced(error)
    member = group.members[event.member_id]
    assert member.classic is not None
    name, metadata = member.classic.protocols[0] if member.classic.protocols else ("", b"")
    for sent, own in ((event.protocol_type, CONSUMER), (event.protocol, name)):
        if sent is not None and sent != own:
            return Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    return Synced(0, CONSUMER, name, assignment_bytes(member.assigned, name_of, version_of(metadata)))
