"""Answers about topics where calls contradict themselves, as a broker gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from kafkalog.server.node.node import Node
from tests.server.apis.test_security_calls import acl_creation, acl_filter
from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for, node_for

OTHER_ID: Final = UUID(int=77)


def new_topic(name: str, partitions: int = 1, factor: int = 1, **settings: str | None) -> dict[str, Any]:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    return {
        "name": name, "num_partitions": partitions, "replication_factor": factor, "assignments": [], "configs": configs
    }  # fmt: skip


async def create(node: Node, *topics: dict[str, Any]) -> list[Any]:
    tree = {"topics": topics, "timeout": 5000, "validate_only": False}
    return list((await call(node, "create_topics", 7, tree)).topics)


async def delete(node: Node, *topics: tuple[str | None, UUID | None]) -> list[tuple[Any, ...]]:
    rows = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    answer = await call(node, "delete_topics", 6, {"topics": rows, "timeout": 5000})
    return [(row.name, row.topic_id, int(row.error_code)) for row in answer.responses]


@in_loop
async def test_a_new_topics_settings_are_shown_in_the_words_of_the_request(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        (row,) = await create(node, new_topic("t", preallocate=" TRUE ", cleanup_policy="delete , compact"))
        shown = {one.name: one.value for one in row.configs}
        assert (shown["preallocate"], shown["cleanup.policy"]) == (" TRUE ", "delete , compact")
        assert node.topics.own_settings("t") == {"preallocate": "true", "cleanup.policy": "delete,compact"}


@in_loop
async def test_too_many_partitions_refuse_the_whole_call(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        rows = await create(node, new_topic("twice"), new_topic("large", 10_001), new_topic("twice"), new_topic("t"))
        assert [(row.name, int(row.error_code)) for row in rows] == [
            ("twice", 44), ("large", 44), ("twice", 44), ("t", 44),
        ]  # fmt: skip
        rows = await create(node, new_topic("twice", 6000), new_topic("twice", 6000), new_topic("t"))
        assert [(row.name, int(row.error_code)) for row in rows] == [("twice", 42), ("t", 0)]  # no partitions of theirs


@in_loop
async def test_numbers_of_partitions_are_checked_before_nodes(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        (row,) = await create(node, new_topic("t", 0, 3))
        assert row.error_code == 37
        (row,) = await create(node, new_topic("t", 1, 3))
        assert row.error_code == 38


@in_loop
async def test_a_setting_given_with_and_without_a_value_is_refused(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        configs = [{"name": "flush.messages", "value": None}, {"name": "flush.messages", "value": "5"}]
        (row,) = await create(node, {**new_topic("t"), "configs": configs})
        assert (row.error_code, row.error_message) == (40, "Null value not supported for topic configs: flush.messages")


@in_loop
async def test_topics_that_are_named_and_given_by_id(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        (topic_id,) = [row.topic_id for row in await create(node, new_topic("t"))]
        assert await delete(node, (None, topic_id), ("t", None)) == [("t", topic_id, 42)]
        assert await delete(node, (None, None), (None, None)) == [(None, None, 42)] * 2
        both = [("t", OTHER_ID, 42)] * 2
        assert await delete(node, ("t", OTHER_ID), ("t", OTHER_ID)) == both
        assert node.topics.get("t") is not None
        twice = [("t", None), ("t", None), (None, topic_id)]
        assert await delete(node, *twice) == [("t", None, 42), ("t", topic_id, 0)]


@pytest.mark.parametrize("named", [["a"], ["a", "c"]])
@in_loop
async def test_a_cursor_is_at_a_topic_that_is_asked_for(tmp_path: Path, named: list[str]) -> None:
    async with node_for(tmp_path) as node:
        await create(node, new_topic("a"), new_topic("b"), new_topic("c"))
        tree = {"topics": [{"name": name} for name in named], "response_partition_limit": 9,
                "cursor": {"topic_name": "b", "partition_index": 0}}  # fmt: skip
        answer = await call(node, "describe_topic_partitions", 0, tree)
        assert [(row.name, int(row.error_code)) for row in answer.topics] == [(name, 42) for name in named]
        answer = await call(node, "describe_topic_partitions", 0, {**tree, "topics": []})
        assert [row.name for row in answer.topics] == ["b", "c"]


@in_loop
async def test_operations_are_told_of_topics_that_are_not_there(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        tree = {"topics": [{"name": "none"}, {"name": "a b"}], "response_partition_limit": 9, "cursor": None}
        rows = (await call(node, "describe_topic_partitions", 0, tree)).topics
        found = [(row.name, int(row.error_code), row.topic_authorized_operations) for row in rows]
        assert found == [("a b", 17, 3576), ("none", 3, 3576)]


@in_loop
async def test_a_refused_answer_has_no_cluster(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        flags = dict.fromkeys((
            "allow_auto_topic_creation", "include_cluster_authorized_operations", "include_topic_authorized_operations",
        ), False)  # fmt: skip
        answer = await call(node, "metadata", 10, {"topics": [{"name": "t", "topic_id": OTHER_ID}], **flags})
        assert [(row.name, row.topic_id, int(row.error_code)) for row in answer.topics] == [("t", OTHER_ID, 42)]
        assert (answer.brokers, answer.controller_id, answer.cluster_id) == ((), -1, None)
        tree = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False, "endpoint_type": 2}
        refused = await call(node, "describe_cluster", 2, tree)
        assert (refused.error_code, refused.brokers, refused.controller_id, refused.cluster_id) == (114, (), -1, "")


@in_loop
async def test_a_reassignment_of_nothing_has_the_defaults(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create(node, new_topic("t"))
        rows = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        for topics, expected in (([], True), (rows, False)):
            tree = {"timeout": 1000, "allow_replication_factor_change": False, "topics": topics}
            answer = await call(node, "alter_partition_reassignments", 1, tree)
            assert (answer.error_code, answer.allow_replication_factor_change) == (0, expected)


RETENTION: Final = ("retention.ms", 0, "5")
APPEND: Final = ("retention.ms", 2, "5")
BAD: Final = ("retention.ms", 0, "x")


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (2, "none", RETENTION, 3), (2, "none", BAD, 40), (2, "none", APPEND, 40), (2, "a b", RETENTION, 17),
        (2, "a b", BAD, 17), (2, "a b", APPEND, 40), (2, "", RETENTION, 42), (2, "", APPEND, 40),
        (32, "", ("share.isolation.level", 2, "x"), 40), (32, "", ("share.isolation.level", 0, "x"), 42),
        (4, "1", ("max.connections.per.ip.overrides", 2, "127.0.0.9:5"), 40),
        (4, "", ("cordoned.log.dirs", 0, ""), 42), (4, "1", ("cordoned.log.dirs", 0, ""), 0),
    ],
)  # fmt: skip
@in_loop
async def test_operations_and_values_are_checked_before_a_topic_is_looked_for(
    tmp_path: Path, kind: int, name: str, changes: tuple[str, int, str], code: int
) -> None:
    async with node_for(tmp_path) as node:
        key, operation, value = changes
        row = {"name": key, "config_operation": operation, "value": value}
        tree = {"resources": [{"resource_type": kind, "resource_name": name, "configs": [row]}], "validate_only": True}
        (answer,) = (await call(node, "incremental_alter_configs", 1, tree)).responses
        assert answer.error_code == code


@in_loop
async def test_a_nodes_values_are_checked_before_the_least_replicas_in_sync(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        for value, code in (("x", 42), ("5", 40)):  # all settings are replaced: min.insync.replicas would be removed
            row = {"name": "log.retention.ms", "value": value}
            resource = {"resource_type": 4, "resource_name": "", "configs": [row]}
            (answer,) = (
                await call(node, "alter_configs", 2, {"resources": [resource], "validate_only": False})
            ).responses
            assert answer.error_code == code


@in_loop
async def test_an_unknown_type_refuses_the_whole_description(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        rows = [{"resource_type": kind, "resource_name": "1", "configuration_keys": None} for kind in (4, 64)]
        answer = await call(node, "describe_configs", 4, {"resources": rows, "include_synonyms": False})
        assert [(row.resource_type, int(row.error_code), row.configs) for row in answer.results] == [
            (4, 42, ()), (64, 42, ()),
        ]  # fmt: skip


@in_loop
async def test_synonyms_begin_with_a_settings_own_name(tmp_path: Path) -> None:
    """As a broker of 4.4 with these settings shows them."""
    settings = {"log.retention.hours": 3, "log.retention.minutes": 9}
    async with node_for(tmp_path, **settings) as node:
        names = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
        row = {"resource_type": 4, "resource_name": "1", "configuration_keys": names}
        answer = await call(node, "describe_configs", 4, {"resources": [row], "include_synonyms": True})
        found = {one.name: [(other.name, other.value) for other in one.synonyms] for one in answer.results[0].configs}
        hours = [("log.retention.hours", "3"), ("log.retention.hours", "168")]
        assert found == {
            "log.retention.ms": [], "log.retention.minutes": [("log.retention.minutes", "9"), *hours],
            "log.retention.hours": hours,
        }  # fmt: skip
        await node.dynamic.change("1", {"follower.replication.throttled.rate": "5"})
        row["configuration_keys"] = ["follower.replication.throttled.rate"]
        answer = await call(node, "describe_configs", 4, {"resources": [row], "include_synonyms": True})
        assert [(one.value, one.source) for one in answer.results[0].configs[0].synonyms] == [("5", 2)]


@in_loop
async def test_throttled_replicas_may_have_gaps(tmp_path: Path) -> None:
    """A broker accepts empty items only in these lists."""
    async with node_for(tmp_path) as node:
        name = "leader.replication.throttled.replicas"
        (row,) = await create(node, new_topic("t", **{name.replace(".", "_"): "0:1,"}))
        assert row.error_code == 0 and node.topics.own_settings("t") == {name: "0:1,"}
        (row,) = await create(node, new_topic("u", cleanup_policy="delete,"))
        assert row.error_code == 40


@in_loop
async def test_who_may_not_delete_a_topic_learns_no_more_than_from_a_broker(tmp_path: Path) -> None:
    async with node_for(tmp_path, authorizer_class_name="StandardAuthorizer", super_users="User:ANONYMOUS") as node:
        (topic_id,) = [row.topic_id for row in await create(node, new_topic("t"))]
        stranger = connection_for("User:u")
        for operation, code in ((8, 3), (0, 29)):  # who may describe it learns that there is none
            if operation:
                await call(node, "create_acls", 3, {"creations": [acl_creation(resource_name="*", operation=8)]})
            else:
                await call(node, "delete_acls", 3, {"filters": [acl_filter(resource_name_filter="*")]})
            rows = [{"name": "none", "topic_id": None}, {"name": "t", "topic_id": None},
                    {"name": None, "topic_id": topic_id}]  # fmt: skip
            tree = {"topics": rows, "timeout": 1000}
            answer = await call(node, "delete_topics", 6, tree, connection=stranger)
            assert [int(row.error_code) for row in answer.responses] == [code, 29, 29]


@pytest.mark.parametrize(("creates", "code"), [(True, 29), (False, 17)])
@in_loop
async def test_the_right_to_create_comes_before_the_name(tmp_path: Path, creates: bool, code: int) -> None:
    async with node_for(tmp_path, authorizer_class_name="StandardAuthorizer", super_users="User:ANONYMOUS") as node:
        await call(node, "create_acls", 3, {"creations": [acl_creation(resource_name="*", operation=8)]})
        tree = {"topics": [{"name": "a b"}], "allow_auto_topic_creation": creates}
        (row,) = (await call(node, "metadata", 4, tree, connection=connection_for("User:u"))).topics
        assert row.error_code == code
