"""Calls of groups, as tests make them."""

from __future__ import annotations

from typing import Any

from kafkalog.server.error_codes import ErrorCode
from tests.server.nodes import call, connection_for

PROTOCOLS = [{"name": "range", "metadata": b"m"}]
READS_T = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
"""The metadata of a consumer that reads topic t."""
JOIN = {
    "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "", "protocol_type": "consumer",
    "protocols": PROTOCOLS,
}  # fmt: skip


CLERK = connection_for("User:clerk")
BEHIND_ACLS: Any = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:ANONYMOUS"}


async def allow(node: Any, *allowed: tuple[int, str, int]) -> None:
    """Let the clerk do so much: (kind of resource, name, operation)."""
    for kind, name, operation in allowed:
        made = {
            "resource_type": kind, "resource_name": name, "resource_pattern_type": 3, "principal": "User:clerk",
            "host": "*", "operation": operation, "permission_type": 3,
        }  # fmt: skip
        assert (await call(node, "create_acls", 3, {"creations": [made]})).results[0].error_code == 0


async def create_topic(node: Any, name: str = "t", partitions: int = 2) -> Any:
    return await node.topics.create(name, partitions)


async def join_group(node: Any, group_id: str = "g", **more: Any) -> Any:
    """A member of a new generation, with the id that it was given first."""
    first = await call(node, "join_group", 9, {**JOIN, "group_id": group_id, **more})
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return first
    return await call(node, "join_group", 9, {**JOIN, "group_id": group_id, "member_id": first.member_id, **more})


async def form_group(node: Any, group_id: str = "g", assignment: bytes = b"a") -> Any:
    joined = await join_group(node, group_id)
    assignments = [{"member_id": joined.member_id, "assignment": assignment}]
    synced = await call(node, "sync_group", 5, {
        "group_id": group_id, "generation_id": joined.generation_id, "member_id": joined.member_id,
        "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments,
    })  # fmt: skip
    assert (synced.error_code, bytes(synced.assignment)) == (0, assignment)
    return joined


async def commit_offset(node: Any, offset: int, group_id: str = "g", version: int = 9, **more: Any) -> int:
    index = more.pop("partition", 0)
    partition = {"partition_index": index, "committed_offset": offset, "committed_metadata": more.pop("metadata", "m")}
    topics = [{"name": more.pop("topic", "t"), "partitions": [partition]}]
    tree = {"group_id": group_id, "member_id": "", "generation_id_or_member_epoch": -1, "topics": topics, **more}
    answer = await call(node, "offset_commit", version, tree)
    return int(answer.topics[0].partitions[0].error_code)


async def fetch_offset(node: Any, group_id: str = "g", **more: Any) -> Any:
    groups = [{"group_id": group_id, "topics": [{"name": "t", "partition_indexes": [0]}], **more}]
    answer = await call(node, "offset_fetch", 9, {"groups": groups, "require_stable": True})
    [row] = answer.groups
    assert not row.error_code
    return row.topics[0].partitions[0]
