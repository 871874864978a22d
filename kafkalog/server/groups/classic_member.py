"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkalog.server.groups.values import Joining


@dataclass(slots=True, eq=False)
class ClassicMember:
    """Who it is, which protocols it speaks, what it was given, and the request of it that waits for an answer."""

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
    awaiting_join: Any = None
    awaiting_sync: Any = None
    skips_assignment: bool = False

    @classmethod
    def of(cls, event: Joining, member_id: str) -> ClassicMember:
        """The member that joins with `event`."""
        return cls(
            member_id, event.instance_id, event.client_id, event.client_host, event.session_timeout_ms,
            event.rebalance_timeout_ms, event.protocol_type, event.protocols, skips_assignment=event.skips_assignment,
        )  # fmt: skip

    def update(self, event: Joining) -> None:
        """Takes over what the member says when it joins again."""
        self.client_id, self.client_host = event.client_id, event.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = event.session_timeout_ms, event.rebalance_timeout_ms
        self.protocol_type, self.protocols = event.protocol_type, event.protocols
        self.skips_assignment = event.skips_assignment

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it waits: then its session does not end."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; empty where it does not speak it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first protocol it names that all members speak."""
        return next(name for name, _ in self.protocols if name in candidates)
