"""A group of the consumer protocol (KIP-848): its members, what each should have and what each has.

The group is what its records say: `apply` is the only way to change it, when it is loaded and when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafkalog.server.groups import records
from kafkalog.server.groups.held import MEMBER_BYTES, NAME_BYTES

LEFT: Final = -1
LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that will be back."""

Partitions = Mapping[UUID, frozenset[int]]
NO_PARTITIONS: Final[Partitions] = {}
NO_EPOCHS: Final[Mapping[tuple[UUID, int], int]] = {}


class GroupState(StrEnum):
    """The states of a consumer group, by the names that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """What a member has still to do, or to wait for."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerMember(NamedTuple):
    """A member: what it asked for, the epoch it is in, the partitions it has and those it has to give back."""

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
    is_classic: bool = False
    epochs: Mapping[tuple[UUID, int], int] = NO_EPOCHS  # since which epoch it has a partition (KIP-1251)

    @property
    def held_bytes(self) -> int:
        """What it holds in memory for what it asks for."""
        return MEMBER_BYTES + len(self.regex or "") + sum(NAME_BYTES + len(topic) for topic in self.topics)

    def subscription_fields(self) -> dict[str, Any]:
        """What it asked for, as a record has it."""
        return {
            "instanceId": self.instance_id,
            "rackId": self.rack_id,
            "clientId": self.client_id,
            "clientHost": self.client_host,
            "subscribedTopicNames": sorted(self.topics),
            "subscribedTopicRegex": self.regex,
            "rebalanceTimeoutMs": self.rebalance_timeout_ms,
            "serverAssignor": self.assignor,
            "classicMemberMetadata": None,  # left out it would mean a classic member
        }

    def assignment_fields(self) -> dict[str, Any]:
        """What it has, as a record has it."""
        return {
            "memberEpoch": self.epoch,
            "previousMemberEpoch": self.previous_epoch,
            "state": int(self.state),
            "assignedPartitions": records.rows_with_epochs(self.assigned, self.epochs, self.epoch),
            "partitionsPendingRevocation": records.rows_with_epochs(self.revoking, self.epochs, self.epoch),
        }


class ResolvedRegex(NamedTuple):
    """The topics that a pattern stands for, and since when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """All that the records of a group say. One thread at a time."""

    __slots__ = (
        "epoch", "has_current_topics", "held_bytes", "id", "instances", "members", "metadata_hash", "owners", "regexes",
        "target_epoch", "targets",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1  # the first member is given epoch 2, as by a broker
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}
        self.target_epoch = 0
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[UUID, int], str] = {}  # who has a partition, or has yet to give it back
        self.held_bytes = 0  # what it holds in memory for what its members ask for
        self.has_current_topics = False  # nothing changed among the topics since the assignment was computed

    def copy(self) -> ConsumerGroup:
        """A group that can be changed without this one; what is in it is immutable."""
        other = ConsumerGroup(self.id)
        other.epoch, other.metadata_hash, other.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        other.members, other.instances = dict(self.members), dict(self.instances)
        other.targets, other.regexes, other.owners = dict(self.targets), dict(self.regexes), dict(self.owners)
        other.has_current_topics, other.held_bytes = self.has_current_topics, self.held_bytes
        return other

    @property
    def state(self) -> GroupState:
        """What the group is at."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        reconciled = (m.state is MemberState.STABLE and m.epoch == self.target_epoch for m in self.members.values())
        return GroupState.STABLE if all(reconciled) else GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member reads: those it names, and those its pattern stands for."""
        found = None if member.regex is None else self.regexes.get(member.regex)
        return member.topics if found is None else member.topics | found.topics

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that any member reads."""
        return frozenset[str]().union(*map(self.topics_of, self.members.values()))

    def patterns(self) -> set[str]:
        """The patterns that members have."""
        return {member.regex for member in self.members.values() if member.regex is not None}

    def apply(self, kind: int, names: Mapping[str, Any], value: Mapping[str, Any] | None) -> bool:
        """Takes in a record of the group; True where the group is no more."""
        member_id = names.get("memberId", "")
        if kind == records.CONSUMER_GROUP:
            if value is None:
                return True
            self.epoch, self.metadata_hash = value["epoch"], value.get("metadataHash", 0)
        elif kind == records.CONSUMER_MEMBER:
            self._member(member_id, value)
        elif kind == records.TARGET:
            self.target_epoch = -1 if value is None else value["assignmentEpoch"]
        elif kind == records.TARGET_MEMBER:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = records.partitions_of(value["topicPartitions"])
        elif kind == records.CURRENT_MEMBER:
            self._current(member_id, value)
        elif kind == records.REGULAR_EXPRESSION:
            pattern = names["regularExpression"]
            if value is None:
                self.regexes.pop(pattern, None)
            else:
                topics = frozenset(value["topics"])
                self.regexes[pattern] = ResolvedRegex(topics, value["version"], value["timestamp"])
        return False

    def _member(self, member_id: str, value: Mapping[str, Any] | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            self.held_bytes -= old.held_bytes
        if value is None:
            if old is not None:
                self._own(old, old._replace(assigned=NO_PARTITIONS, revoking=NO_PARTITIONS))
                del self.members[member_id]
                if old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
                    del self.instances[old.instance_id]
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
            is_classic=value.get("classicMemberMetadata", "default") is not None,
        )
        self.members[member_id] = member
        self.held_bytes += member.held_bytes
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def _current(self, member_id: str, value: Mapping[str, Any] | None) -> None:
        old = self.members.get(member_id)
        if old is None:
            if value is None:
                return
            old = ConsumerMember(member_id)  # its subscription changed later, and the log was compacted since
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
        self._own(old, new)
        self.members[member_id] = new

    def _own(self, old: ConsumerMember, new: ConsumerMember) -> None:
        for place in _places(old):
            if self.owners.get(place) == old.id:
                del self.owners[place]
        for place in _places(new):
            self.owners[place] = new.id


def _places(member: ConsumerMember) -> list[tuple[UUID, int]]:
    both = (*member.assigned.items(), *member.revoking.items())
    return [(topic_id, partition) for topic_id, partitions in both for partition in partitions]
