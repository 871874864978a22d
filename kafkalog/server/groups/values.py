"""Values passed between the parts of the group coordinator."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple
from uuid import UUID, uuid4

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


def new_member_id() -> str:
    """Return a new id for a member of a consumer group that has none, in Kafka's form of a UUID."""
    return base64.urlsafe_b64encode(uuid4().bytes)[:22].decode()


class CommittedOffset(NamedTuple):
    """A group's committed offset for a partition; times in ms, `expire_ms` only if the client set an expiry."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: UUID | None = None


class KeptPosition(NamedTuple):
    """Position that a named reader saved itself, outside of groups; `committed_ms` is the time it was saved."""

    group_id: str
    topic: str
    partition: int
    offset: int
    committed_ms: int


class Joining(NamedTuple):
    """A JoinGroup request; `new_id` is the id for a member that has none."""

    member_id: str
    new_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    is_id_required: bool = False
    skips_assignment: bool = False


class Joined(NamedTuple):
    """A JoinGroup answer; only the leader's has the members: (id, instance id, metadata)."""

    error_code: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Syncing(NamedTuple):
    """A SyncGroup request; only the leader's has the assignments, by member id."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Synced(NamedTuple):
    """A SyncGroup answer: the member's assignment."""

    error_code: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
