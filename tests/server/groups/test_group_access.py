"""Groups behind ACLs: every call asks, and who may not is told so (KIP-11)."""

from __future__ import annotations

from pathlib import Path

from kafkalog.server.error_codes import ErrorCode
from tests.server.groups.groups import JOIN, commit, fetch, topic
from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for, node_for

CALLS = {
    "find_coordinator": (6, {"key_type": 0, "coordinator_keys": ["g"]}),
    "join_group": (9, {**JOIN, "group_id": "g"}),
    "sync_group": (4, {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}),
    "heartbeat": (4, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    "leave_group": (5, {"group_id": "g", "members": [{"member_id": "m"}]}),
    "offset_commit": (9, {"group_id": "g", "member_id": "", "topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]},
    ]}),
    "offset_fetch": (9, {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}),
    "offset_delete": (0, {"group_id": "g", "topics": []}),
    "describe_groups": (6, {"groups": ["g"], "include_authorized_operations": False}),
    "delete_groups": (2, {"groups_names": ["g"]}),
    "consumer_group_heartbeat": (1, {"group_id": "g", "member_id": "m", "member_epoch": 0, "topic_partitions": []}),
    "consumer_group_describe": (1, {"group_ids": ["g"], "include_authorized_operations": False}),
}  # fmt: skip


@in_loop
async def test_who_may_not_touch_a_group_is_told_so_by_every_call(tmp_path: Path) -> None:
    stranger = connection_for("User:stranger")
    async with node_for(tmp_path, authorizer_class_name="StandardAuthorizer", super_users="User:ANONYMOUS") as node:
        await topic(node)
        await commit(node, 1)
        for name, (version, tree) in CALLS.items():
            answer = await call(node, name, version, tree, connection=stranger)
            assert f"error_code={int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}" in str(answer), name
        listed = await call(node, "list_groups", 5, {}, connection=stranger)
        assert (listed.error_code, listed.groups) == (0, ())
        assert (await fetch(node)).committed_offset == 1
