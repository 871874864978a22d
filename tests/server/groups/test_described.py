"""DescribeGroups and ConsumerGroupDescribe: the whole of what they say of a group and its members."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from tests.server.groups.groups import create_topic, form_group, join_group
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.replica.copies import until

NOT_ASKED = -(2**31)


async def described(node: Any, group_id: str = "g") -> dict[str, Any]:
    tree = {"groups": [group_id], "include_authorized_operations": False}
    [group] = (await call(node, "describe_groups", 6, tree)).groups
    return {**group._asdict(), "members": [one._asdict() for one in group.members]}


async def described_consumers(node: Any, group_id: str = "g") -> dict[str, Any]:
    tree = {"group_ids": [group_id], "include_authorized_operations": False}
    [group] = (await call(node, "consumer_group_describe", 1, tree)).groups
    return {**group._asdict(), "members": [one._asdict() for one in group.members]}


@in_loop
async def test_a_classic_group_shows_its_members_and_what_they_have(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        first = await form_group(node, assignment=b"mine")
        member = {
            "member_id": first.member_id, "group_instance_id": None, "client_id": "test", "client_host": "/127.0.0.1",
            "member_metadata": b"m", "member_assignment": b"mine",
        }  # fmt: skip
        group = {
            "error_code": 0, "error_message": None, "group_id": "g", "group_state": "Stable",
            "protocol_type": "consumer", "protocol_data": "range", "members": [member],
            "authorized_operations": NOT_ASKED,
        }  # fmt: skip
        assert await described(node) == group
        second = asyncio.ensure_future(join_group(node))
        await until(lambda: len(node.groups.groups["g"].members) == 2)
        found = await described(node)
        assert (found["group_state"], found["protocol_type"], found["protocol_data"]) == (
            "PreparingRebalance", "consumer", "",
        )  # fmt: skip
        assert found["members"][0] == member | {"member_metadata": b""}
        shown = [(one["member_metadata"], one["member_assignment"]) for one in found["members"]]
        assert shown == [(b"", b"mine"), (b"", b"")], "the assignment of the last generation stays"
        second.cancel()


@in_loop
async def test_a_group_of_the_other_protocol_is_not_found(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await form_group(node, "classic")
        beat = {"group_id": "new", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000}
        more = {"topic_partitions": [], "subscribed_topic_names": ["t"]}
        assert (await call(node, "consumer_group_heartbeat", 1, {**beat, **more})).error_code == 0
        for found, state, message in (
            (await described(node, "new"), "Dead", "Group new is not a classic group."),
            (await described_consumers(node, "classic"), "", "Group classic is not a consumer group."),
        ):
            assert (found["error_code"], found["error_message"]) == (ErrorCode.GROUP_ID_NOT_FOUND, message)
            assert (found["group_state"], found["members"], found["authorized_operations"]) == (state, [], NOT_ASKED)


@in_loop
async def test_a_consumer_group_tells_what_its_members_have_and_should_have(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        made = await create_topic(node)

        async def beat(member_id: str, **more: Any) -> Any:
            fields = {"group_id": "g", "member_id": member_id, "member_epoch": 0, "rebalance_timeout": 60_000}
            return await call(node, "consumer_group_heartbeat", 1, {**fields, "topic_partitions": [], **more})

        await beat("a", subscribed_topic_names=["t"], instance_id="i", rack_id="r")
        await beat("b", subscribed_topic_names=["u", "t"])
        found = await described_consumers(node)

        def have(*numbers: int) -> Any:
            return ((made.id, "t", numbers),) if numbers else ()

        assert {name: found[name] for name in ("error_code", "error_message", "group_state", "assignor_name")} == {
            "error_code": 0, "error_message": None, "group_state": "Reconciling", "assignor_name": "uniform",
        }  # fmt: skip
        assert (found["group_epoch"], found["assignment_epoch"]) == (3, 3)
        rows = [
            (one["member_id"], one["instance_id"], one["rack_id"], one["member_epoch"], one["client_id"],
             one["client_host"], one["subscribed_topic_names"], one["subscribed_topic_regex"],
             one["assignment"].topic_partitions, one["target_assignment"].topic_partitions, one["member_type"])
            for one in found["members"]
        ]  # fmt: skip
        assert rows == [
            ("a", "i", "r", 2, "test", "/127.0.0.1", ("t",), "", have(0, 1), have(0), 1),
            ("b", None, None, 3, "test", "/127.0.0.1", ("t", "u"), "", have(), have(1), 1),
        ]
