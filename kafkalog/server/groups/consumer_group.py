"""A group of the consumer protocol (KIP-848): its members, their target and their current assignments.

Only `apply` changes the group, both while it is loaded and in use, so the group always matches its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.groups import records
from kafkalog.server.groups.memory_limit import MEMBER_BYTES, NAME_BYTES, long_names_bytes

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

LEFT: Final = -1
LEFT_FOR_A_WHILE: Final = -2
"""Epoch of a static member that left temporarily."""

Partitions = Mapping[UUID, frozenset[int]]
NO_PARTITIONS: Final[Partitions] = {}
NO_EPOCHS: Final[Mapping[tuple[UUID, int], int]] = {}


class GroupState(StrEnum):
    """States of a consumer group, by the names reported to clients."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """Progress of a member towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """Session and protocols of a member that uses the classic protocol in a consumer group.

    `protocols` are names with metadata, the preferred one first.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...] = ()


class ConsumerMember(NamedTuple):
    """A member: its subscription, its epoch, its assigned partitions and those it must revoke."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    classic: ClassicMetadata | None = None  # None for a member that uses the consumer protocol
    epochs: Mapping[tuple[UUID, int], int] = NO_EPOCHS  # epoch in which it got each partition (KIP-1251)

    @property
    def is_classic(self) -> bool:
        """True if the member uses the classic protocol."""
        return self.classic is not None

    @property
    def held(self) -> Partitions:
        """Partitions that the member has: those assigned, and those that it must still revoke."""
        none: frozenset[int] = frozenset()
        topics = {**self.assigned, **self.revoking}
        return {one: self.assigned.get(one, none) | self.revoking.get(one, none) for one in topics}

    @property
    def held_bytes(self) -> int:
        """Estimated memory of the names and the subscription, in bytes."""
        protocols = () if self.classic is None else self.classic.protocols
        texts = sum(NAME_BYTES + len(name) + len(data) for name, data in protocols)
        texts += long_names_bytes(self.id, self.instance_id, self.rack_id, self.client_id, self.assignor)
        return texts + MEMBER_BYTES + len(self.regex or "") + sum(NAME_BYTES + len(topic) for topic in self.topics)

    def subscription_fields(self) -> Message:
        """Return the fields of the member's subscription record."""
        return {
            "instanceId": self.instance_id,
            "rackId": self.rack_id,
            "clientId": self.client_id,
            "clientHost": self.client_host,
            "subscribedTopicNames": sorted(self.topics),
            "subscribedTopicRegex": self.regex or "",
            "rebalanceTimeoutMs": self.rebalance_timeout_ms,
            "serverAssignor": self.assignor,
            "classicMemberMetadata": None if self.classic is None else {  # if omitted, it would mean a classic member
                "sessionTimeoutMs": self.classic.session_timeout_ms,
                "supportedProtocols": [{"name": name, "metadata": data} for name, data in self.classic.protocols],
            },
        }

    def assignment_fields(self) -> Message:
        """Return the fields of the member's current assignment record."""
        return {
            "memberEpoch": self.epoch,
            "previousMemberEpoch": self.previous_epoch,
            "state": int(self.state),
            "assignedPartitions": records.rows_with_epochs(self.assigned, self.epochs, self.epoch),
            "partitionsPendingRevocation": records.rows_with_epochs(self.revoking, self.epochs, self.epoch),
        }


class ResolvedRegex(NamedTuple):
    """The topics that match a pattern, with the version and time (ms) of the match."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """The state that a group's records describe. Not thread-safe."""

    id: str
    epoch: int = 1  # the first member gets epoch 2, as from a broker
    metadata_hash: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    target_epoch: int = 0
    targets: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)  # who has a partition or must still revoke it
    held_bytes: int = 0  # estimated memory of the members' subscriptions
    has_current_topics: bool = False  # the topics are unchanged since they were last compared

    def copy(self) -> ConsumerGroup:
        """Return a copy that can be changed independently; the items it contains are immutable."""
        return replace(
            self, members=dict(self.members), instances=dict(self.instances), targets=dict(self.targets),
            regexes=dict(self.regexes), owners=dict(self.owners),
        )  # fmt: skip

    @property
    def state(self) -> GroupState:
        """Current state, derived from the members and epochs."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        reconciled = (m.state is MemberState.STABLE and m.epoch == self.target_epoch for m in self.members.values())
        return GroupState.STABLE if all(reconciled) else GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    def classic_members(self) -> list[ConsumerMember]:
        """Return the members that use the classic protocol."""
        return [member for member in self.members.values() if member.is_classic]

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member is subscribed to by name and by pattern."""
        found = None if member.regex is None else self.regexes.get(member.regex)
        return member.topics if found is None else member.topics | found.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member is subscribed to."""
        return frozenset[str]().union(*map(self.topics_of, self.members.values()))

    def patterns(self) -> set[str]:
        """Return the members' subscription patterns."""
        return {member.regex for member in self.members.values() if member.regex is not None}

    def apply(self, kind: int, names: Message, value: Message | None) -> bool:
        """Apply a record of the group. Return True if the record deletes the group."""
        member_id = names.get("memberId", "")
        if kind == records.CONSUMER_GROUP:
            if value is None:
                return True
            self.epoch, self.metadata_hash = value["epoch"], value.get("metadataHash", 0)
        elif kind == records.CONSUMER_MEMBER:
            self._apply_member(member_id, value)
        elif kind == records.TARGET:
            self.target_epoch = -1 if value is None else value["assignmentEpoch"]
        elif kind == records.TARGET_MEMBER:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = records.partitions_of(value["topicPartitions"])
        elif kind == records.CURRENT_MEMBER:
            self._apply_current(member_id, value)
        elif kind == records.REGULAR_EXPRESSION:
            pattern = names["regularExpression"]
            if value is None:
                self.regexes.pop(pattern, None)
            else:
                topics = frozenset(value["topics"])
                self.regexes[pattern] = ResolvedRegex(topics, value["version"], value["timestamp"])
        return False

    def _apply_member(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            self.held_bytes -= old.held_bytes
            if old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
                del self.instances[old.instance_id]
        if value is None:
            if old is not None:
                self._update_owners(old, old._replace(assigned=NO_PARTITIONS, revoking=NO_PARTITIONS))
                del self.members[member_id]
            return
        member = (old or ConsumerMember(member_id))._replace(
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            topics=frozenset(value["subscribedTopicNames"]),
            regex=value["subscribedTopicRegex"] or None,
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            assignor=value["serverAssignor"],
            classic=_classic_metadata(value.get("classicMemberMetadata", _NO_SESSION)),
        )
        self.members[member_id] = member
        self.held_bytes += member.held_bytes
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def _apply_current(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if old is None:
            if value is None:
                return
            old = ConsumerMember(member_id)  # its subscription record comes later in the compacted log
            self.held_bytes += old.held_bytes
        if value is None:
            new = old._replace(epoch=LEFT, previous_epoch=LEFT, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS)
        else:
            state = value["state"]
            known = state in (0, 1, 2)
            rows = [*value["assignedPartitions"], *value["partitionsPendingRevocation"]]
            new = old._replace(
                epoch=value["memberEpoch"],
                previous_epoch=value["previousMemberEpoch"],
                state=MemberState(state) if known else MemberState.UNKNOWN,
                assigned=records.partitions_of(value["assignedPartitions"]),
                revoking=records.partitions_of(value["partitionsPendingRevocation"]),
                epochs=records.epochs_of(rows, value["memberEpoch"]),
            )
        self._update_owners(old, new)
        self.members[member_id] = new

    def _update_owners(self, old: ConsumerMember, new: ConsumerMember) -> None:
        for place in _places(old):
            if self.owners.get(place) == old.id:
                del self.owners[place]
        for place in _places(new):
            self.owners[place] = new.id


_NO_SESSION: Final[Message] = {"sessionTimeoutMs": 0, "supportedProtocols": []}
"""What an omitted field means."""


def _classic_metadata(fields: Message | None) -> ClassicMetadata | None:
    if fields is None:
        return None
    protocols = tuple((one["name"], bytes(one["metadata"])) for one in fields["supportedProtocols"])
    return ClassicMetadata(fields["sessionTimeoutMs"], protocols)


def _places(member: ConsumerMember) -> list[tuple[UUID, int]]:
    both = (*member.assigned.items(), *member.revoking.items())
    return [(topic_id, partition) for topic_id, partitions in both for partition in partitions]
