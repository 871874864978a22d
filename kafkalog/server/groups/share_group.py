"""A share group (KIP-932): its members, their assignments, and the partitions whose delivery state exists.

Only `apply` changes the group, both while it is loaded and in use, so the group always matches its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.groups import records
from kafkalog.server.groups.consumer_group import LEFT, NO_PARTITIONS, Partitions
from kafkalog.server.groups.memory_limit import MEMBER_BYTES, NAME_BYTES, long_names_bytes
from kafkalog.server.groups.other_group import Kind, OtherGroup

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

FIRST_EPOCH: Final = 1
"""Epoch of a group before its first member, as in a broker."""


class ShareMember(NamedTuple):
    """A member: its subscription, its epoch and its assigned partitions, which other members may have as well."""

    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = NO_PARTITIONS

    @property
    def held_bytes(self) -> int:
        """Estimated memory of the names and the subscription, in bytes."""
        names = long_names_bytes(self.id, self.rack_id, self.client_id)
        return MEMBER_BYTES + names + sum(NAME_BYTES + len(topic) for topic in self.topics)

    def subscription_fields(self) -> Message:
        """Return the fields of the member's subscription record."""
        return {
            "rackId": self.rack_id, "clientId": self.client_id, "clientHost": self.client_host,
            "subscribedTopicNames": sorted(self.topics),
        }  # fmt: skip

    def assignment_fields(self) -> Message:
        """Return the fields of the member's current assignment record."""
        return {
            "memberEpoch": self.epoch, "previousMemberEpoch": self.previous_epoch, "state": 0,
            "assignedPartitions": records.partition_rows(self.assigned),
        }  # fmt: skip


class SharedTopic(NamedTuple):
    """A topic in which the group has a state of these partitions."""

    name: str
    partitions: frozenset[int]


SharedTopics = Mapping[UUID, SharedTopic]


@dataclass(slots=True, eq=False)
class ShareGroup(OtherGroup):
    """The state that a group's records describe. Not thread-safe."""

    id: str
    kind: Kind = Kind.SHARE
    metadata_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)  # type: ignore[assignment]  # members of another kind
    targets: dict[str, Partitions] = field(default_factory=dict)
    topics: SharedTopics = field(default_factory=dict)

    def copy(self) -> ShareGroup:
        """Return a copy that can be changed independently; the items it contains are immutable."""
        return replace(self, members=dict(self.members), targets=dict(self.targets))

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    @property
    def held_bytes(self) -> int:
        """Estimated memory of the members' subscriptions, in bytes."""
        return sum(member.held_bytes for member in self.members.values())

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member is subscribed to."""
        return frozenset[str]().union(*(member.topics for member in self.members.values()))

    def apply(self, number: int, names: Message, value: Message | None) -> None:
        """Apply a record of the group."""
        member_id = names.get("memberId", "")
        if number == records.SHARE_GROUP:
            self.epoch = None if value is None else value["epoch"]
            self.metadata_hash = 0 if value is None else value.get("metadataHash", 0)
        elif number == records.SHARE_MEMBER:
            self._apply_member(member_id, value)
        elif number == records.SHARE_TARGET:
            self.target_epoch = 0 if value is None else value["assignmentEpoch"]
        elif number == records.SHARE_TARGET_MEMBER:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = records.partitions_of(value["topicPartitions"])
        elif number == records.SHARE_CURRENT_MEMBER:
            self._apply_current(member_id, value)
        elif number == records.SHARE_PARTITIONS:
            rows = () if value is None else value["initializedTopics"]
            self.topics = {
                records.id_of(row["topicId"]): SharedTopic(row["topicName"], frozenset(row["partitions"]))
                for row in rows
            }

    def _apply_member(self, member_id: str, value: Message | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = self.members.get(member_id, ShareMember(member_id))._replace(
            rack_id=value["rackId"], client_id=value["clientId"], client_host=value["clientHost"],
            topics=frozenset(value["subscribedTopicNames"]),
        )  # fmt: skip

    def _apply_current(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if value is not None:  # its subscription record may come later in the compacted log
            self.members[member_id] = (old or ShareMember(member_id))._replace(
                epoch=value["memberEpoch"],
                previous_epoch=value["previousMemberEpoch"],
                assigned=records.partitions_of(value["assignedPartitions"]),
            )
        elif old is not None:
            self.members[member_id] = old._replace(epoch=LEFT, previous_epoch=LEFT, assigned=NO_PARTITIONS)


def topics_fields(topics: SharedTopics) -> Message:
    """Return the fields of the record with the partitions that have a state."""
    rows = [
        {"topicId": records.id_text(topic_id), "topicName": one.name, "partitions": sorted(one.partitions)}
        for topic_id, one in topics.items()
    ]
    return {"initializingTopics": [], "initializedTopics": rows, "deletingTopics": []}


def assign(members: Iterable[ShareMember], topics: SharedTopics) -> dict[str, Partitions]:
    """Return the partitions of each member, as the simple assignor divides them.

    A partition goes to one member, or to several if there are more readers of its topic than partitions.
    """
    readers = sorted(members, key=lambda member: member.id)
    found: dict[str, dict[UUID, frozenset[int]]] = {member.id: {} for member in readers}
    loads = dict.fromkeys(found, 0)
    for topic_id, topic in sorted(topics.items()):
        names = [member.id for member in readers if topic.name in member.topics]
        names.sort(key=lambda name: (loads[name], name))
        numbers = sorted(topic.partitions)
        if not names or not numbers:
            continue
        for at in range(max(len(names), len(numbers))):
            name, number = names[at % len(names)], numbers[at % len(numbers)]
            found[name][topic_id] = found[name].get(topic_id, frozenset()) | {number}
            loads[name] += 1
    return dict(found)
