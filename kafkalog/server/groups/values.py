"""The values that travel between the coordinator's parts."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition; times in ms, `expire_ms` only where the client asked for one."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: UUID | None = None


class KeptPosition(NamedTuple):
    """How far a reader has come that keeps its place by itself, under a name; `committed_ms` says since when."""

    group_id: str
    topic: str
    partition: int
    offset: int
    committed_ms: int


class Joining(NamedTuple):
    """What a member says when it joins; `new_id` is the id that it gets where it has none."""

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
    """What a joining member is answered; the leader alone is told of the members: (id, instance id, metadata)."""

    error_code: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Syncing(NamedTuple):
    """What a member asks for its assignment with; the leader brings all of them."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Synced(NamedTuple):
    """A member's assignment."""

    error_code: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
