"""Heartbeats of share groups (KIP-932): joining, changing a subscription, leaving, being assigned.

A heartbeat results in the records to write and in a copy of the group to which they are already applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups import records
from kafkalog.server.groups.consumer_group import LEFT
from kafkalog.server.groups.consumer_heartbeat import metadata_hash
from kafkalog.server.groups.records import Record, record, tombstone
from kafkalog.server.groups.share_group import (
    FIRST_EPOCH,
    SharedTopic,
    SharedTopics,
    ShareGroup,
    ShareMember,
    assign,
    topics_fields,
)

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

_MEMBER_RECORDS: Final = (records.SHARE_CURRENT_MEMBER, records.SHARE_TARGET_MEMBER, records.SHARE_MEMBER)


class ShareHeartbeat(NamedTuple):
    """A heartbeat. Fields that a member sends only on change are else None."""

    member_id: str
    epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None


class ShareRules(NamedTuple):
    """Settings of share groups, and the current time."""

    max_size: int
    now_ms: int


class ShareResult(NamedTuple):
    """Result of a heartbeat: the changed group, the records of the change, and the answer to the member."""

    group: ShareGroup
    records: tuple[Record, ...]
    member: ShareMember | None  # None if it left
    sends_assignment: bool = False


class _Draft:
    """A group being changed, and the records of the change; each is applied when created."""

    def __init__(self, group: ShareGroup) -> None:
        self.group = group.copy()
        self.records: list[Record] = []

    def put(self, kind: int, names: tuple[str, ...], fields: Message | None) -> None:
        key = (self.group.id, *names)
        self.records.append(tombstone(kind, *key) if fields is None else record(kind, key, fields))
        self.group.apply(kind, {"memberId": names[0]} if names else {}, fields)

    def bump(self, hash_: int) -> None:
        """Start the next epoch of the group."""
        self.put(records.SHARE_GROUP, (), {"epoch": (self.group.epoch or FIRST_EPOCH) + 1, "metadataHash": hash_})


def missing_states(
    group: ShareGroup, topics: Mapping[UUID, SharedTopic], is_lost: Callable[[UUID, int], bool]
) -> dict[UUID, SharedTopic]:
    """Return the partitions of subscribed topics that have no state in the group yet, or have lost it.

    `topics` are those subscribed. `is_lost` returns True for a topic id and partition whose state is not in the log.
    """
    found = {}
    for topic_id, topic in topics.items():
        known = group.topics.get(topic_id)
        has = () if known is None else (number for number in known.partitions if not is_lost(topic_id, number))
        left = topic.partitions - frozenset(has)
        if left:
            found[topic_id] = topic._replace(partitions=left)
    return found


def initialized(group: ShareGroup, added: SharedTopics, *, begins: bool = False) -> ShareResult:
    """Return the group after states were stored for more partitions; `begins` also records a group without members."""
    draft = _Draft(group)
    if begins:
        draft.put(records.SHARE_GROUP, (), {"epoch": group.epoch, "metadataHash": group.metadata_hash})
    topics = dict(group.topics)
    for topic_id, topic in added.items():
        known = topics.get(topic_id)
        partitions = topic.partitions if known is None else topic.partitions | known.partitions
        topics[topic_id] = topic._replace(partitions=partitions)
    draft.put(records.SHARE_PARTITIONS, (), topics_fields(topics))
    return ShareResult(draft.group, tuple(draft.records), None)


def without_topics(group: ShareGroup, topic_ids: frozenset[UUID]) -> ShareResult:
    """Return the group after the states in these topics were deleted."""
    draft = _Draft(group)
    left = {topic_id: topic for topic_id, topic in group.topics.items() if topic_id not in topic_ids}
    draft.put(records.SHARE_PARTITIONS, (), topics_fields(left))
    return ShareResult(draft.group, tuple(draft.records), None)


def share_heartbeat(
    group: ShareGroup, event: ShareHeartbeat, topics: Mapping[UUID, SharedTopic], rules: ShareRules
) -> ShareResult:
    """Apply a heartbeat of a member or of a client that joins. Refused with the broker's error code.

    `topics` are those that members are subscribed to, the sender included; all of their partitions have a state.
    """
    old = check_member(group, event, rules)
    draft = _Draft(group)
    new = subscribed(old, event)
    is_bumped = old is None or new.topics != old.topics or new.rack_id != old.rack_id
    if old is None or new != old:
        draft.put(records.SHARE_MEMBER, (new.id,), new.subscription_fields())
    hash_ = metadata_hash({topic_id: len(topic.partitions) for topic_id, topic in topics.items()})
    if is_bumped or hash_ != group.metadata_hash:
        draft.bump(hash_)
    if (draft.group.epoch or 0) > draft.group.target_epoch:
        _assign(draft, topics, rules)
    before = draft.group.members[new.id]
    after = _reconciled(draft, before)
    sends_assignment = event.epoch == 0 or event.topics is not None or after.assigned != before.assigned
    return ShareResult(draft.group, tuple(draft.records), after, sends_assignment)


def check_member(group: ShareGroup, event: ShareHeartbeat, rules: ShareRules) -> ShareMember | None:
    """Return the sender, None if it joins. Refused for an unknown member or epoch, or a full group."""
    known = group.members.get(event.member_id)
    if known is None:
        if event.epoch:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member of group {group.id}.")
        if len(group.members) >= rules.max_size:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {rules.max_size} members.",
            )
        return None
    # the answer with the newer epoch may have been lost
    if event.epoch > known.epoch or (event.epoch < known.epoch and event.epoch not in (0, known.previous_epoch)):
        relation = "greater" if event.epoch > known.epoch else "smaller"
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {relation} member epoch ({event.epoch}) than the one known by the group "
            f"coordinator ({known.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return known


def subscribed(old: ShareMember | None, event: ShareHeartbeat) -> ShareMember:
    """Return the member with the subscription that it sends."""
    known = old or ShareMember(event.member_id)
    return known._replace(
        rack_id=known.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=known.topics if event.topics is None else frozenset(event.topics),
    )


def _assign(draft: _Draft, topics: SharedTopics, rules: ShareRules) -> None:
    """Compute the target assignment and record the changes."""
    group = draft.group
    for member_id, target in assign(group.members.values(), topics).items():
        if member_id not in group.targets or target != group.targets[member_id]:
            fields = {"topicPartitions": records.partition_rows(target)}
            draft.put(records.SHARE_TARGET_MEMBER, (member_id,), fields)
    draft.put(records.SHARE_TARGET, (), {"assignmentEpoch": group.epoch, "assignmentTimestamp": rules.now_ms})


def _reconciled(draft: _Draft, member: ShareMember) -> ShareMember:
    """Return the member with its target: no member has to revoke a partition first."""
    group = draft.group
    if member.epoch == group.target_epoch:
        return member
    after = member._replace(
        epoch=group.target_epoch, previous_epoch=member.epoch, assigned=group.targets.get(member.id, {})
    )
    draft.put(records.SHARE_CURRENT_MEMBER, (member.id,), after.assignment_fields())
    return after


def left(group: ShareGroup, member_id: str) -> ShareResult:
    """Remove a member that left or timed out, and start an epoch that reassigns its partitions."""
    draft = _Draft(group)
    for kind in _MEMBER_RECORDS:
        draft.put(kind, (member_id,), None)
    draft.bump(group.metadata_hash if draft.group.members else 0)
    if not draft.group.members:
        draft.put(records.SHARE_TARGET, (), {"assignmentEpoch": draft.group.epoch})
    return ShareResult(draft.group, tuple(draft.records), None)


def leave(group: ShareGroup, event: ShareHeartbeat) -> ShareResult:
    """Remove the member that sent epoch -1. Refused if it is unknown."""
    assert event.epoch == LEFT
    if event.member_id not in group.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member of group {group.id}.")
    return left(group, event.member_id)


def tombstones(group: ShareGroup) -> list[Record]:
    """Return the tombstones of all records of a group."""
    kinds = (records.SHARE_PARTITIONS, records.SHARE_TARGET, records.SHARE_GROUP)
    return [
        *(tombstone(kind, group.id, member_id) for member_id in group.members for kind in _MEMBER_RECORDS),
        *(tombstone(kind, group.id) for kind in kinds),
    ]
