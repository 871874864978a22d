"""What is checked first: what a request says by itself, or what its client may do (FLOW-25, compared with a broker)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.security.acls import Operation, ResourceType
from tests.server.apis.test_topic_calls import allow
from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for, node_for

ACLS: dict[str, Any] = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:root"}
INVALID, NO_TOPIC, NO_GROUP, NO_CLUSTER = 42, 29, 30, 31
LONG = "m" * 37


def resource(kind: int, *settings: tuple[str, int, str | None], name: str = "t") -> dict[str, Any]:
    configs = [dict(zip(("name", "config_operation", "value"), one, strict=True)) for one in settings]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


SET, DELETE = 0, 1
RESOURCES = [
    (resource(2, ("a", SET, "1"), ("a", DELETE, None)), INVALID, "Error due to duplicate config keys"),
    (resource(2, ("a", SET, None)), INVALID, "Null value not supported for : a"),
    (resource(5, ("a", SET, "1")), INVALID, "Unknown resource type 5"),
    (resource(2, ("a", SET, "1"), name="u"), NO_TOPIC, "Topic authorization failed."),
    (resource(32, ("a", SET, "1")), NO_GROUP, "Group authorization failed."),
    (resource(4, ("a", SET, "1"), name="none"), NO_CLUSTER, "Cluster authorization failed."),
]


@pytest.mark.parametrize(("given", "code", "message"), RESOURCES)
@pytest.mark.parametrize("name", ["alter_configs", "incremental_alter_configs"])
@in_loop
async def test_settings_that_make_no_sense_are_refused_to_anybody(
    tmp_path: Path, name: str, given: dict[str, Any], code: int, message: str
) -> None:
    if name == "alter_configs":
        configs = [{"name": one["name"], "value": one["value"]} for one in given["configs"]]
        given = {**given, "configs": configs}
    async with node_for(tmp_path, **ACLS) as node:
        tree = {"resources": [given], "validate_only": False}
        answer = await call(node, name, 1, tree, connection=connection_for("User:u"))
        assert [(row.error_code, row.error_message) for row in answer.responses] == [(code, message)]


@pytest.mark.parametrize("topic", ["", "a/b", "."])
@pytest.mark.parametrize("user", ["User:u", "User:root"])
@in_loop
async def test_producers_of_a_topic_that_cannot_be(tmp_path: Path, user: str, topic: str) -> None:
    async with node_for(tmp_path, **ACLS) as node:
        tree = {"topics": [{"name": name, "partition_indexes": [0]} for name in (topic, "t")]}
        answer = await call(node, "describe_producers", 0, tree, connection=connection_for(user))
        [row], [other] = (one.partitions for one in answer.topics)
        assert row.error_code == 17 and row.error_message.startswith("Topic name is invalid")
        assert other.error_code == (3 if user == "User:root" else NO_TOPIC)


SHARE = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["t"]}
FETCH = {
    "group_id": "g", "member_id": "m", "share_session_epoch": 0, "max_wait": 0, "min_bytes": 0, "max_bytes": 1,
    "max_records": 1, "batch_size": 1, "topics": [], "forgotten_topics_data": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tree", "of_nothing", "of_group"),
    [
        ("share_group_heartbeat", SHARE | {"member_id": ""}, NO_GROUP, INVALID),
        ("share_group_heartbeat", SHARE | {"member_id": LONG}, NO_GROUP, INVALID),
        ("share_group_heartbeat", SHARE | {"rack_id": ""}, NO_GROUP, NO_TOPIC),
        ("share_group_heartbeat", SHARE | {"subscribed_topic_names": []}, NO_GROUP, INVALID),
        ("share_fetch", FETCH | {"group_id": None}, INVALID, INVALID),
        ("share_fetch", FETCH | {"member_id": None}, NO_GROUP, INVALID),
        ("share_acknowledge", FETCH | {"group_id": None}, INVALID, INVALID),
    ],
)
@in_loop
async def test_share_groups(tmp_path: Path, name: str, tree: dict[str, Any], of_nothing: int, of_group: int) -> None:
    async with node_for(tmp_path, **ACLS) as node:
        user = connection_for("User:u")
        assert (await call(node, name, 1, tree, connection=user)).error_code == of_nothing
        acls = (allow("g", Operation.READ, kind=ResourceType.GROUP),)
        await node.credentials.file.change(node.run, lambda state: state._replace(acls=acls))
        assert (await call(node, name, 1, tree, connection=user)).error_code == of_group


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": " "}, "GroupId can't be empty."), ({"member_id": "\t "}, "MemberId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."), ({"member_id": LONG}, None),
    ],
)  # fmt: skip
@in_loop
async def test_ids_of_blanks_are_empty(tmp_path: Path, changes: dict[str, Any], message: str | None) -> None:
    consumer = {
        **SHARE, "instance_id": None, "rebalance_timeout": 1000, "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    async with node_for(tmp_path) as node:
        answer = await call(node, "share_group_heartbeat", 1, SHARE | changes)
        assert (answer.error_code, answer.error_message) == (INVALID, message)
        if message is not None:
            answer = await call(node, "consumer_group_heartbeat", 1, consumer | changes)
            assert (answer.error_code, answer.error_message) == (INVALID, message)
        else:  # ids of consumer groups may be longer
            assert (await call(node, "consumer_group_heartbeat", 1, consumer | changes)).error_code == 0


@in_loop
async def test_a_static_member_leaves_for_a_while_without_an_id(tmp_path: Path) -> None:
    tree = {
        "group_id": "g", "member_id": "", "member_epoch": -2, "instance_id": "i", "rack_id": None,
        "rebalance_timeout": -1, "subscribed_topic_names": None, "server_assignor": None, "topic_partitions": None,
    }  # fmt: skip
    async with node_for(tmp_path) as node:
        codes = {epoch: (await call(node, "consumer_group_heartbeat", 0, tree | {"member_epoch": epoch})).error_code
                 for epoch in (-2, -1, 1)}  # fmt: skip
        assert codes == {-2: 69, -1: INVALID, 1: INVALID}


@in_loop
async def test_share_partitions_are_looked_up_by_who_may_act_as_a_node(tmp_path: Path) -> None:
    async with node_for(tmp_path, **ACLS) as node:
        for version, user, code in ((6, "User:u", NO_CLUSTER), (6, "User:root", INVALID), (5, "User:u", INVALID)):
            tree = {"key_type": 2, "coordinator_keys": ["not a key"]}
            answer = await call(node, "find_coordinator", version, tree, connection=connection_for(user))
            assert [row.error_code for row in answer.coordinators] == [code]


@in_loop
async def test_a_refusal_for_all_partitions_says_why(tmp_path: Path) -> None:
    async with node_for(tmp_path, **ACLS) as node:
        user = connection_for("User:u")
        tree = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout": 1}
        answer = await call(node, "alter_partition_reassignments", 0, tree, connection=user)
        rows = [answer, answer.responses[0].partitions[0]]
        tree = {"topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1}
        answer = await call(node, "elect_leaders", 0, tree, connection=user)
        rows.append(answer.replica_election_results[0].partition_result[0])
        assert {(row.error_code, row.error_message) for row in rows} == {(NO_CLUSTER, "Cluster authorization failed.")}
