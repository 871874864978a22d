"""A member of a classic group, and the collection of its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog.server.groups.effects import Waiter
from kafkalog.server.groups.memory_limit import MEMBER_BYTES, NAME_BYTES, long_names_bytes
from kafkalog.server.groups.values import Joining


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member: its identity, its protocols, its assignment and its pending requests."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: Waiter | None = None
    awaiting_sync: Waiter | None = None
    skips_assignment: bool = False

    @classmethod
    def of(cls, event: Joining, member_id: str) -> ClassicMember:
        """Create the member that joins with `event`."""
        return cls(
            member_id, event.instance_id, event.client_id, event.client_host, event.session_timeout_ms,
            event.rebalance_timeout_ms, event.protocol_type, event.protocols, skips_assignment=event.skips_assignment,
        )  # fmt: skip

    def update(self, event: Joining) -> None:
        """Update the member from its new JoinGroup request."""
        self.client_id, self.client_host = event.client_id, event.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = event.session_timeout_ms, event.rebalance_timeout_ms
        self.protocol_type, self.protocols = event.protocol_type, event.protocols
        self.skips_assignment = event.skips_assignment

    @property
    def held_bytes(self) -> int:
        """Estimated memory without the assignment, in bytes."""
        return held_bytes(self.protocols, self.id, self.client_id, self.instance_id)

    @property
    def is_waiting(self) -> bool:
        """True if a request of the member is pending, so that its session does not time out. False for new members."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the first of the member's protocols that is in `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)


def held_bytes(protocols: Iterable[tuple[str, bytes]], *names: str | None) -> int:
    """Return the estimated memory of a member with these protocols and names, in bytes."""
    return MEMBER_BYTES + long_names_bytes(*names) + sum(NAME_BYTES + len(name) + len(data) for name, data in protocols)


class Members(dict[str, ClassicMember]):
    """The members of a group by id; `supported` counts the members that support each protocol."""

    __slots__ = ("held_bytes", "supported")

    def __init__(self, members: Iterable[ClassicMember] = ()) -> None:
        super().__init__()
        self.held_bytes = 0
        self.supported: Counter[str] = Counter()
        for member in members:
            self[member.id] = member

    def __setitem__(self, member_id: str, member: ClassicMember) -> None:
        if member_id in self:
            del self[member_id]
        super().__setitem__(member_id, member)
        self._count(member, 1)

    def __delitem__(self, member_id: str) -> None:
        self._count(self[member_id], -1)
        super().__delitem__(member_id)

    def change(self, member: ClassicMember, event: Joining) -> None:
        """Update a member from its new JoinGroup request."""
        self._count(member, -1)
        member.update(event)
        self._count(member, 1)

    def common(self) -> set[str]:
        """Return the protocols that all members support."""
        return {name for name, count in self.supported.items() if count == len(self)}

    def _count(self, member: ClassicMember, sign: int) -> None:
        self.held_bytes += sign * member.held_bytes
        for name in {name for name, _ in member.protocols}:
            self.supported[name] += sign
            if not self.supported[name]:
                del self.supported[name]
