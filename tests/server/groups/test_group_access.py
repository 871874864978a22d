"""Groups behind ACLs: every call is authorized, and denied callers get an authorization error (KIP-11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from tests.server.groups.groups import BEHIND_ACLS, CLERK, JOIN, allow, commit_offset, create_topic, fetch_offset
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
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        await create_topic(node)
        await commit_offset(node, 1)
        for name, (version, tree) in CALLS.items():
            answer = await call(node, name, version, tree, connection=stranger)
            assert f"error_code={int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}" in str(answer), name
        listed = await call(node, "list_groups", 5, {}, connection=stranger)
        assert (listed.error_code, listed.groups) == (0, ())
        assert (await fetch_offset(node)).committed_offset == 1


@in_loop
async def test_a_member_reads_the_topics_that_it_may_see_alone(tmp_path: Path) -> None:
    async with node_for(tmp_path, **BEHIND_ACLS) as node:
        ids = {name: (await create_topic(node, name)).id for name in ("seen", "secret")}
        await allow(node, (3, "g", 3), (3, "g", 8), (2, "seen", 8))

        async def beat(member_id: str, connection: Any, **more: Any) -> Any:
            fields = {"group_id": "g", "member_id": member_id, "member_epoch": 0, "rebalance_timeout": 60_000}
            tree = {**fields, "topic_partitions": [], **more}
            return await call(node, "consumer_group_heartbeat", 1, tree, connection=connection)

        async def described() -> Any:
            tree = {"group_ids": ["g"], "include_authorized_operations": True}
            return (await call(node, "consumer_group_describe", 1, tree, connection=CLERK)).groups[0]

        refused = await beat("m", CLERK, subscribed_topic_names=["seen", "secret"])
        assert (refused.error_code, refused.assignment) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        assert (await described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        joined = await beat("m", CLERK, subscribed_topic_regex="se.*")
        assert [one.topic_id for one in joined.assignment.topic_partitions] == [ids["seen"]]
        group = await described()
        assert (group.error_code, group.group_id, group.authorized_operations) == (0, "g", 1 << 3 | 1 << 8)
        assert [one.subscribed_topic_regex for one in group.members] == ["se.*"]
        assert (await beat("n", connection_for(), subscribed_topic_names=["secret"])).error_code == 0
        hidden = await described()
        assert (hidden.error_code, hidden.group_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "g")
        assert (hidden.members, hidden.authorized_operations) == ((), -(2**31))
        assert hidden.error_message == (
            "The described group uses topics that the client is not authorized to describe."
        )
