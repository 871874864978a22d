"""Calls about several nodes that one node can answer: elections, reassignments; and the list of what has settings."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from tests.server.apis.test_topic_calls import with_node
from tests.server.nodes import call

ACLS = {"authorizer_class_name": "StandardAuthorizer"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_partition_needs_an_election(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        await node.topics.create("t", 2)
        named = [{"topic": "t", "partitions": [0, 1, 1, 2, -1]}, {"topic": "none", "partitions": [0]}]
        named.append({"topic": "__cluster_metadata", "partitions": [0]})  # which a set of nodes has
        fields: dict[str, Any] = {"topic_partitions": named, "timeout": 1000} | (
            {"election_type": 1} if version else {}
        )  # fmt: skip
        rows = (await call(node, "elect_leaders", version, fields)).replica_election_results
        assert [len(row.partition_result) for row in rows] == [5, 1, 1]  # one row for each that was asked for
        found = {(row.topic, one.partition_id): one.error_code for row in rows for one in row.partition_result}
        assert found == {("t", 0): 84, ("t", 1): 84, ("t", 2): 3, ("t", -1): 3, ("none", 0): 3,
                         ("__cluster_metadata", 0): 3}  # fmt: skip
        everything = {**fields, "topic_partitions": None}
        rows = (await call(node, "elect_leaders", version, everything)).replica_election_results
        assert [(row.topic, row.partition_result) for row in rows] == [("t", ())]
        if version:
            odd = await call(node, "elect_leaders", version, {**fields, "election_type": 7})
            assert odd.error_code == ErrorCode.INVALID_REQUEST
            results = {one for row in odd.replica_election_results for one in row.partition_result}
            assert {one.error_message for one in results} == {"Unknown election type 7"}
            nothing = {**fields, "election_type": 7, "topic_partitions": []}
            assert (await call(node, "elect_leaders", version, nothing)).error_code == 0

    with_node(tmp_path, use)


def test_nothing_moves(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        for topics in (None, [{"name": "t", "partition_indexes": [0]}]):
            answer = await call(node, "list_partition_reassignments", 0, {"timeout": 1000, "topics": topics})
            assert (answer.error_code, answer.topics) == (0, ())

    with_node(tmp_path, use)


def test_what_has_settings_is_listed_by_type(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        await node.topics.create("t", 1)
        me = str(node.node_id)
        assert (await call(node, "list_config_resources", 0)).config_resources == ()
        for asked, found in (
            ([], {(8, me), (4, me), (2, "t")}), ([2], {(2, "t")}), ([16, 32], set()), ([4, 4], {(4, me)}),
        ):  # fmt: skip
            answer = await call(node, "list_config_resources", 1, {"resource_types": asked})
            rows = [(row.resource_type, row.resource_name) for row in answer.config_resources]
            assert (answer.error_code, set(rows), len(rows)) == (0, found, len(found))
        wrong = await call(node, "list_config_resources", 1, {"resource_types": [3]})
        assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION

    with_node(tmp_path, use)


def test_who_may_not_is_told_so(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        named = [{"topic": "t", "partitions": [0]}]
        for version in (0, 1, 2):
            more = {"election_type": 0} if version else {}
            fields = {"topic_partitions": named, "timeout": 1000, **more}
            answer = await call(node, "elect_leaders", version, fields)
            assert answer.replica_election_results[0].partition_result[0].error_code == refused
        asked = {"timeout": 1000, "topics": None}
        assert (await call(node, "list_partition_reassignments", 0, asked)).error_code == refused
        assert (await call(node, "list_config_resources", 1, {"resource_types": []})).error_code == refused

    with_node(tmp_path, use, **ACLS)
