"""Heartbeats of consumer groups (KIP-848): joining, changing a subscription, leaving, being assigned.

A heartbeat results in the records to write and in a copy of the group to which they are already applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups import records
from kafkalog.server.groups.assignors import ASSIGNORS, Subscriber
from kafkalog.server.groups.consumer_group import (
    LEFT,
    LEFT_FOR_A_WHILE,
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from kafkalog.server.groups.reconcile import reconcile
from kafkalog.server.groups.records import Record, record, tombstone
from kafkalog.util.safe_pattern import PatternError

if TYPE_CHECKING:
    from kafkalog.records.schema import Message
    from kafkalog.server.node.topics import Topics

_MEMBER_RECORDS: Final = (records.CURRENT_MEMBER, records.TARGET_MEMBER, records.CONSUMER_MEMBER)


class Heartbeat(NamedTuple):
    """A heartbeat. Fields that a member sends only on change are else None; `regex` "" removes the pattern."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Partitions | None


class VisibleTopics:
    """The topics of the node, as groups use them."""

    __slots__ = ("_found", "_may_see", "_topics")

    def __init__(
        self, topics: Topics, may_see: Callable[[str], bool], found: Mapping[str, frozenset[str] | PatternError]
    ) -> None:
        self._topics = topics
        self._may_see = may_see
        self._found = found  # by pattern

    def places(self, names: Iterable[str]) -> dict[UUID, int]:
        """Return the number of partitions of each of these topics that exists."""
        found = (self._topics.get(name) for name in names)
        return {topic.id: topic.partitions for topic in found if topic is not None}

    def ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """Return the ids of those of these topics that exist."""
        return frozenset(self.places(names))

    def matching(self, pattern: str) -> frozenset[str]:
        """Return the visible topics whose whole name matches a pattern. Refused if the pattern is invalid."""
        found = self._found[pattern]
        if isinstance(found, PatternError):
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{pattern}` is not a valid regular "
                f"expression: {found}."
            )  # fmt: skip
        return frozenset(filter(self._may_see, found))


class Rules(NamedTuple):
    """Settings of consumer groups, and the current time."""

    assignors: tuple[str, ...]
    max_size: int
    now_ms: int


class HeartbeatResult(NamedTuple):
    """Result of a heartbeat: the changed group, the records of the change, and the answer to the member."""

    group: ConsumerGroup
    records: tuple[Record, ...]
    member: ConsumerMember | None  # None if it left
    epoch: int
    sends_assignment: bool = False
    replaced: str | None = None  # id of the static member that it replaced


class Draft:
    """A group being changed, and the records of the change; each is applied when created."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[Record] = []

    def put(self, kind: int, names: tuple[str, ...], fields: Message | None) -> None:
        """Create a record of the group and apply it; None for `fields` creates a tombstone.

        The first key field of every record is the group's id, followed by `names`.
        """
        if not self.records:
            self.group = self.group.copy()
        key = (self.group.id, *names)
        self.records.append(tombstone(kind, *key) if fields is None else record(kind, key, fields))
        name = "regularExpression" if kind == records.REGULAR_EXPRESSION else "memberId"
        self.group.apply(kind, {name: names[0]} if names else {}, fields)

    def bump(self, metadata_hash: int) -> None:
        """Start the next epoch of the group."""
        fields: Message = {"epoch": self.group.epoch + 1}
        if metadata_hash:
            fields["metadataHash"] = metadata_hash
        self.put(records.CONSUMER_GROUP, (), fields)

    def remove(self, member_id: str) -> None:
        """Delete all records of a member."""
        for kind in _MEMBER_RECORDS:
            self.put(kind, (member_id,), None)

    def remove_unused_patterns(self) -> None:
        """Delete the records of patterns that no member is subscribed to."""
        for pattern in set(self.group.regexes) - self.group.patterns():
            self.put(records.REGULAR_EXPRESSION, (pattern,), None)

    def result(
        self, member: ConsumerMember | None, epoch: int, sends_assignment: bool = False, replaced: str | None = None
    ) -> HeartbeatResult:
        """Return the result."""
        return HeartbeatResult(self.group, tuple(self.records), member, epoch, sends_assignment, replaced)


def heartbeat(group: ConsumerGroup, event: Heartbeat, topics: VisibleTopics, rules: Rules) -> HeartbeatResult:
    """Apply a heartbeat of a member or of a client that joins. Refused with the broker's error code."""
    draft = Draft(group)
    if event.epoch in (LEFT, LEFT_FOR_A_WHILE):
        return _leave(draft, event, topics)
    old, replaced = _find_member(group, event, rules)
    if replaced is not None:
        replace_static(draft, replaced, event.member_id)
        old = draft.group.members[event.member_id]
    is_bumped = subscribe(draft, old, _subscribed(old, event), topics, rules.now_ms)
    is_bumped |= assignor_of(draft.group, rules.assignors) != assignor_of(group, rules.assignors)
    after = advance(draft, event.member_id, is_bumped, event.owned, topics, rules)
    names_topics = event.topics is not None or event.regex is not None
    is_full = names_topics and event.rebalance_timeout_ms >= 0 and event.owned is not None
    sends_assignment = event.epoch == 0 or is_full or after.assigned != (old or after).assigned
    return draft.result(after, after.epoch, sends_assignment, None if replaced is None else replaced.id)


def advance(
    draft: Draft, member_id: str, is_bumped: bool, owned: Partitions | None, topics: VisibleTopics, rules: Rules
) -> ConsumerMember:
    """Bring the group and a member up to date after it has subscribed, and return the member.

    A new epoch begins if `is_bumped`, or if topics have changed. `owned` are the partitions that the member reports.
    """
    if is_bumped or not draft.group.has_current_topics:
        is_bumped = _update_topics(draft, topics) or is_bumped
    if is_bumped:
        draft.bump(topics_hash(draft.group, topics))
    draft.group.has_current_topics = True  # set on the copy, since writing the records may fail
    if draft.group.epoch > draft.group.target_epoch:
        _assign(draft, topics, rules)
    return _reconcile(draft, draft.group.members[member_id], owned)


def _find_member(
    group: ConsumerGroup, event: Heartbeat, rules: Rules
) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """Return (the sender, None if new; the static member that it replaces, or None)."""
    known = group.members.get(event.member_id)
    is_returning = event.instance_id is not None and event.instance_id in group.instances
    if known is None and not is_returning and len(group.members) >= rules.max_size:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {rules.max_size} members.",
        )
    if event.instance_id is not None:
        holder_id = group.instances.get(event.instance_id)
        holder = None if holder_id is None else group.members[holder_id]
        if event.epoch > 0:
            _check_instance(group, event)
        elif holder is not None:
            if holder.epoch != LEFT_FOR_A_WHILE and not holder.is_classic:  # a classic one has no way to leave so
                raise Refused(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {event.member_id} with instance id {event.instance_id} cannot join the group "
                    f"because the instance id is owned by {holder.id} member.",
                )
            return (known, None) if holder.id == event.member_id else (None, holder)
    if known is None:
        if event.epoch > 0:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member of group {group.id}.")
        return None, None
    _check_epoch(known, event)
    return known, None


def _check_instance(group: ConsumerGroup, event: Heartbeat) -> None:
    holder_id = group.instances.get(event.instance_id or "")
    if holder_id is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {event.instance_id} is unknown.")
    if holder_id != event.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} was fenced by member {holder_id}.",
        )


def _check_epoch(member: ConsumerMember, event: Heartbeat) -> None:
    if event.epoch == 0:
        return
    # the answer with the newer epoch may have been lost: accepted if the member owns only what it was assigned
    is_fenced = event.epoch > member.epoch or event.epoch < member.epoch and (
        event.epoch != member.previous_epoch or event.owned is None or not _is_within(event.owned, member.assigned)
    )
    if is_fenced:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {'greater' if event.epoch > member.epoch else 'smaller'} member epoch "
            f"({event.epoch}) than the one known by the group coordinator ({member.epoch}). The member must abandon "
            "all its partitions and rejoin.",
        )


def _is_within(owned: Partitions, assigned: Partitions) -> bool:
    return all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def replace_static(draft: Draft, old: ConsumerMember, member_id: str) -> None:
    """Replace a static member that returns under another id; the new member keeps its assignment."""
    target = draft.group.targets.get(old.id, NO_PARTITIONS)
    new = old._replace(id=member_id, epoch=0, previous_epoch=0)
    draft.remove(old.id)
    draft.put(records.CONSUMER_MEMBER, (new.id,), new.subscription_fields())
    draft.put(records.TARGET_MEMBER, (new.id,), {"topicPartitions": records.partition_rows(target)})
    draft.put(records.CURRENT_MEMBER, (new.id,), new.assignment_fields())


def _subscribed(old: ConsumerMember | None, event: Heartbeat) -> ConsumerMember:
    """Return the member with what its heartbeat says."""
    known = old or ConsumerMember(event.member_id)
    return known._replace(
        instance_id=event.instance_id if event.instance_id is not None else known.instance_id,
        rack_id=known.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=known.topics if event.topics is None else frozenset(event.topics),
        regex=known.regex if event.regex is None else event.regex or None,
        rebalance_timeout_ms=event.rebalance_timeout_ms if event.rebalance_timeout_ms >= 0
        else known.rebalance_timeout_ms,
        assignor=known.assignor if event.assignor is None else event.assignor,
        classic=None,
    )  # fmt: skip


def subscribe(
    draft: Draft, old: ConsumerMember | None, new: ConsumerMember, topics: VisibleTopics, now_ms: int
) -> bool:
    """Record a member's subscription. Return True if the group needs a new assignment for it."""
    is_pattern_new = new.regex is not None and new.regex not in draft.group.regexes
    if is_pattern_new:
        assert new.regex is not None
        found = topics.matching(new.regex)  # before any change: it raises if the pattern is invalid
    if old is None or new != old:
        draft.put(records.CONSUMER_MEMBER, (new.id,), new.subscription_fields())
    if is_pattern_new:
        assert new.regex is not None
        _put_pattern(draft, new.regex, found, now_ms)
    draft.remove_unused_patterns()
    before = old or ConsumerMember(new.id)  # a new member without topics leaves the assignment as it is
    return new.topics != before.topics or new.regex != before.regex


def _put_pattern(draft: Draft, pattern: str, found: frozenset[str], now_ms: int) -> None:
    known = draft.group.regexes.get(pattern)
    fields = {"topics": sorted(found), "version": 0 if known is None else known.version + 1, "timestamp": now_ms}
    draft.put(records.REGULAR_EXPRESSION, (pattern,), fields)


def _update_topics(draft: Draft, topics: VisibleTopics) -> bool:
    """Match the patterns again. Return True if the subscribed topics changed since the last assignment."""
    for pattern in sorted(draft.group.patterns()):
        known = draft.group.regexes.get(pattern)
        try:
            found = topics.matching(pattern)
        except Refused:
            continue  # with the present topics it would cost too much: its previous topics stay
        if known is None or found != known.topics:
            _put_pattern(draft, pattern, found, 0 if known is None else known.timestamp_ms)
    return topics_hash(draft.group, topics) != draft.group.metadata_hash


def topics_hash(group: ConsumerGroup, topics: VisibleTopics) -> int:
    """Return a hash of the group's topics and their partition counts; 0 without topics."""
    return metadata_hash(topics.places(group.subscribed_topics()))


def metadata_hash(places: Mapping[UUID, int]) -> int:
    """Return a hash of topics and their partition counts; 0 without topics."""
    import hashlib  # the import takes milliseconds, so not at startup

    if not places:
        return 0
    text = ",".join(f"{topic_id}:{count}" for topic_id, count in sorted(places.items()))
    digest = hashlib.sha256(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True) or 1


def _assign(draft: Draft, topics: VisibleTopics, rules: Rules) -> None:
    """Compute the target assignment and record the changes."""
    group = draft.group
    ids: dict[frozenset[str], frozenset[UUID]] = {}  # most members read the same topics
    members = {}
    for one in group.members.values():
        names = group.topics_of(one)
        if names not in ids:
            ids[names] = topics.ids(names)
        members[one.id] = Subscriber(one.instance_id, ids[names], group.targets.get(one.id, NO_PARTITIONS))
    assign = ASSIGNORS[assignor_of(group, rules.assignors)]
    for member_id, target in assign(members, topics.places(group.subscribed_topics())).items():
        if target != group.targets.get(member_id):
            fields = {"topicPartitions": records.partition_rows(target)}
            draft.put(records.TARGET_MEMBER, (member_id,), fields)
    draft.put(records.TARGET, (), {"assignmentEpoch": group.epoch, "assignmentTimestamp": rules.now_ms})


def assignor_of(group: ConsumerGroup, assignors: Sequence[str]) -> str:
    """Return the assignor that most members name; of several the one that comes first in `assignors`, the setting."""
    votes = Counter(one.assignor for one in group.members.values())
    return max(assignors, key=lambda name: votes[name])


def _reconcile(draft: Draft, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
    group = draft.group
    after = reconcile(
        member,
        group.target_epoch,
        group.targets.get(member.id, NO_PARTITIONS),
        owned,
        lambda topic_id, partition: group.owners.get((topic_id, partition)) in (None, member.id),
    )
    if after is None:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"Member {member.id} must rejoin the group.")
    if after != member:
        draft.put(records.CURRENT_MEMBER, (member.id,), after.assignment_fields())
    return after


def _leave(draft: Draft, event: Heartbeat, topics: VisibleTopics) -> HeartbeatResult:
    group = draft.group
    member = group.members.get(event.member_id)
    if event.instance_id is not None:
        _check_instance(group, event)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member of group {group.id}.")
    if event.epoch == LEFT_FOR_A_WHILE:
        after = member._replace(epoch=LEFT_FOR_A_WHILE, revoking=NO_PARTITIONS, state=MemberState.STABLE)
        draft.put(records.CURRENT_MEMBER, (member.id,), after.assignment_fields())
        return draft.result(after, LEFT_FOR_A_WHILE)
    return fence(group, member.id, topics)._replace(epoch=LEFT)


def fence(group: ConsumerGroup, member_id: str, topics: VisibleTopics) -> HeartbeatResult:
    """Remove a member that left or timed out, and start an epoch that reassigns its partitions."""
    draft = Draft(group)
    draft.remove(member_id)
    draft.remove_unused_patterns()
    draft.bump(topics_hash(draft.group, topics))
    if not draft.group.members:
        draft.put(records.TARGET, (), {"assignmentEpoch": draft.group.epoch})
    draft.group.has_current_topics = False
    return draft.result(None, LEFT)


def delete(group: ConsumerGroup) -> list[Record]:
    """Return the tombstones of all records of a group."""
    kinds = (records.TARGET, records.CONSUMER_PARTITIONS, records.CONSUMER_GROUP)
    return [
        *(tombstone(kind, group.id, member_id) for member_id in group.members for kind in _MEMBER_RECORDS),
        *(tombstone(records.REGULAR_EXPRESSION, group.id, pattern) for pattern in group.regexes),
        *(tombstone(kind, group.id) for kind in kinds),
    ]
