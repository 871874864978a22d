"""A group of the classic protocol: its state, its members, and queries on them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kafkalog.records.message import MessageError, Source
from kafkalog.records.schemas.consumer_protocol import SUBSCRIPTION
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.classic_member import ClassicMember, Members
from kafkalog.server.groups.memory_limit import MEMBER_BYTES
from kafkalog.server.groups.values import Joined, Synced
from kafkalog.util.java_hash import in_java_order

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

CONSUMER: Final = "consumer"


class State(StrEnum):
    """States of a classic group, by the names reported to clients."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """The members of a group, their leader and their generation.

    `rebalance.py` changes it. Not thread-safe.
    """

    id: str
    state_ms: int
    state: State = State.EMPTY  # `move_to` changes it
    previous_state: State = State.DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Members = field(default_factory=Members)
    assignment_bytes: int = 0  # of the latest assignments
    instances: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)  # ids of clients that have not joined with them yet (KIP-394)
    pending_sync: set[str] = field(default_factory=set)
    read_topics: set[str] | None = None  # what the members of the current generation read; None: unknown
    new_member_added: bool = False
    initial_left_ms: int | None = None

    def move_to(self, state: State, now_ms: int) -> None:
        """Enter another state at `now_ms`. The retention of an empty group's offsets starts at that time."""
        self.previous_state, self.state, self.state_ms = self.state, state, now_ms

    @property
    def is_empty(self) -> bool:
        """True if the group has no members; pending ids do not count."""
        return not self.members

    @property
    def held_bytes(self) -> int:
        """Estimated memory of the members, in bytes."""
        return self.members.held_bytes + self.assignment_bytes + MEMBER_BYTES * len(self.pending)

    @property
    def has_all_joined(self) -> bool:
        """True if all members wait for the next generation and no id is pending."""
        return not self.pending and all(member.awaiting_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of the members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """Return 0 for a member, else the error code: FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Return True if a client with these protocols can join the current members."""
        if not protocol_type or not protocols:
            return False
        if self.is_empty:
            return True
        return protocol_type == self.protocol_type and bool(self.members.common() & set(protocols))

    def select_protocol(self) -> str:
        """Return the protocol with most votes among those that all members support.

        Of several with as many votes, it is the one that comes first in a hash map of Java, as in a broker.
        """
        candidates = self.members.common()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(in_java_order(votes), key=lambda name: votes[name])

    def elect_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose a member that has. Return False if no member has."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member.id for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def listing(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return (id, instance id, metadata) of each member, for the leader."""
        return tuple((one.id, one.instance_id, one.metadata(self.protocol)) for one in self.members.values())

    def joined(self, member: ClassicMember) -> Joined:
        """Return the JoinGroup answer for a member in the current generation."""
        is_leader = member.id == self.leader
        return Joined(
            0, member.id, self.generation, self.protocol_type, self.protocol, self.leader or "",
            members=self.listing() if is_leader else (),
        )  # fmt: skip

    def synced(self, member: ClassicMember) -> Synced:
        """Return the SyncGroup answer with the member's assignment."""
        return Synced(0, self.protocol_type, self.protocol, member.assignment)

    def topics_of_members(self, protocol: str | None) -> set[str] | None:
        """Return the topics that the members' metadata for a protocol names, or None if unknown."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            read = _topics(member.metadata(protocol))
            if read is None:
                return None
            topics |= read
        return topics

    def fields(self, assignments: Mapping[str, bytes] | None = None) -> dict[str, object]:
        """Return the fields of the group's record, with `assignments` or by default the members' own."""
        return {
            "protocolType": self.protocol_type or "",
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "currentStateTimestamp": self.state_ms,
            "members": [*self._rows(assignments)],
        }

    def _rows(self, assignments: Mapping[str, bytes] | None) -> Iterator[dict[str, object]]:
        for one in self.members.values():
            given = one.assignment if assignments is None else assignments.get(one.id, b"")
            yield {
                "memberId": one.id,
                "groupInstanceId": one.instance_id,
                "clientId": one.client_id,
                "clientHost": one.client_host,
                "rebalanceTimeout": one.rebalance_timeout_ms,
                "sessionTimeout": one.session_timeout_ms,
                "subscription": one.metadata(self.protocol),
                "assignment": given,
            }

    @classmethod
    def of_fields(cls, group_id: str, fields: Message, now_ms: int) -> ClassicGroup:
        """Build the group from a record's fields: STABLE if it has members, else EMPTY."""
        timestamp_ms = fields.get("currentStateTimestamp", -1)
        group = cls(group_id, now_ms if timestamp_ms == -1 else timestamp_ms)
        group.generation = fields["generation"]
        group.protocol_type = fields["protocolType"] or None
        group.protocol, group.leader = fields["protocol"], fields["leader"]
        for row in fields["members"]:
            session_ms = row["sessionTimeout"]
            rebalance_ms = row.get("rebalanceTimeout", -1)
            member = ClassicMember(
                row["memberId"], row.get("groupInstanceId"), row["clientId"], row["clientHost"], session_ms,
                session_ms if rebalance_ms == -1 else rebalance_ms, fields["protocolType"],
                ((group.protocol or "", row["subscription"]),), row["assignment"],
            )  # fmt: skip
            group.members[member.id] = member
            group.assignment_bytes += len(member.assignment)
            if member.instance_id is not None:
                group.instances[member.instance_id] = member.id
        if group.members:
            group.previous_state, group.state = State.COMPLETING_REBALANCE, State.STABLE
        group.read_topics = group.topics_of_members(group.protocol)
        return group


def _topics(metadata: bytes) -> set[str] | None:
    source = Source(metadata)
    try:
        source.i16()  # all versions begin as version 0, which some clients write under a later number
        return set(SUBSCRIPTION.read(source, 0)["topics"])
    except (MessageError, struct.error):
        return None
