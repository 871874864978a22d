"""Calls of operators' scripts that change nothing here: quorum, reassignments, unregistering, delegation tokens.

The codes and texts are those of a broker of 4.4.0, except those that a node's settings decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.apis.alter_partition_reassignments import refusal_of
from kafkalog.server.node.node import Node
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.security.authorizer import Authorizer
from tests.server.nodes import call, connection_for, run_node

METADATA = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
GIVEN = "The manual partition assignment includes"


async def reassign(node: Node, *rows: tuple[int, list[int] | None], version: int = 1, topic: str = "t") -> list[Any]:
    partitions = [{"partition_index": number, "replicas": replicas} for number, replicas in rows]
    fields = {"timeout": 1000, "topics": [{"name": topic, "partitions": partitions}]}
    answer = await call(node, "alter_partition_reassignments", version, fields)
    assert answer.error_code == 0
    return [(one.error_code, one.error_message) for one in answer.responses[0].partitions]


def test_reassignments(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        me = node.node_id
        for version in (0, 1):
            assert await reassign(node, (0, [me]), (0, [me]), version=version) == [(0, None)] * 2
        assert await reassign(node, (0, None), (9, [me]), (9, None)) == [
            (85, None), (3, "Unable to find partition t:9."), (3, "Unable to find partition t:9."),
        ]  # fmt: skip
        assert await reassign(node, (0, [7]), (0, [])) == [
            (39, f"{GIVEN} broker 7, but no such broker is registered."), (39, f"{GIVEN} an empty replica list."),
        ]  # fmt: skip
        assert await reassign(node, (0, [me]), topic="none") == [(3, "Unable to find a topic named none.")]
        empty = await call(node, "alter_partition_reassignments", 1, {"timeout": 1000, "topics": []})
        assert (empty.error_code, empty.error_message, empty.responses) == (0, "", ())
        assert empty.allow_replication_factor_change

    run_node(tmp_path, body)


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([1], None), ([1, 1], "the broker 1 more than once."), ([1, 2], "broker 2, but no such broker is registered."),
        ([-1], "broker -1, but no such broker is registered."),
    ],
)  # fmt: skip
def test_replicas_of_a_single_node(replicas: list[int], reason: str | None) -> None:
    assert refusal_of(replicas, [1]) == (None if reason is None else f"{GIVEN} {reason}")


def test_replicas_of_a_set() -> None:
    """Every node has a copy, so nothing but all of them is possible."""
    assert refusal_of([3, 1, 2], [1, 2, 3]) is None
    assert refusal_of([3, 1], [1, 2, 3]) == f"{GIVEN} only 2 of the 3 brokers: every broker has a copy, also 2."


def test_nodes_are_not_unregistered(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        gone = await call(node, "unregister_broker", 0, {"broker_id": 7})
        assert (gone.error_code, gone.error_message) == (102, "Broker ID 7 is not currently registered")
        own = await call(node, "unregister_broker", 0, {"broker_id": node.node_id})
        assert own.error_code == 44 and "its settings" in own.error_message

    run_node(tmp_path, body)


def test_a_server_by_itself_is_a_quorum(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        for version in (0, 1, 2):
            answer = await call(node, "describe_quorum", version, {"topics": [METADATA]})
            row = answer.topics[0].partitions[0]
            assert (answer.error_code, row.error_code, row.leader_id) == (0, 0, node.node_id)
            assert [one.replica_id for one in row.current_voters] == [node.node_id] and row.observers == ()
            assert row.current_voters[0].log_end_offset == row.high_watermark >= 0
        assert [(one.node_id, len(one.listeners)) for one in answer.nodes] == [(node.node_id, 1)]
        other = {"topic_name": "t", "partitions": [{"partition_index": 0}]}
        answer = await call(node, "describe_quorum", 2, {"topics": [other]})
        assert (answer.topics[0].partitions[0].error_code, answer.nodes) == (3, ())

    run_node(tmp_path, body)


@pytest.mark.parametrize(
    ("protocol", "principal", "code"),
    [("PLAINTEXT", "User:ANONYMOUS", 64), ("SSL", "User:ANONYMOUS", 64), ("SSL", "User:CN=ann", 61),
     ("SASL_PLAINTEXT", "User:ann", 61)],
)  # fmt: skip
def test_there_are_no_delegation_tokens(tmp_path: Path, protocol: str, principal: str, code: int) -> None:
    async def body(node: Node) -> None:
        connection = connection_for(principal, security_protocol=protocol)
        connection.is_authenticated = True

        async def ask(name: str, version: int, **fields: Any) -> Any:
            answer = await call(node, name, version, fields, connection=connection)
            assert answer.error_code == code, (name, version)
            return answer

        nobody = {"owner_principal_type": None, "owner_principal_name": None}
        for version in (1, 2, 3):
            created = await ask("create_delegation_token", version, renewers=[], max_lifetime=1000, **nobody)
            assert f"{created.principal_type}:{created.principal_name}" == principal
            assert (await ask("describe_delegation_token", version, owners=None)).tokens == ()
        owner = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        created = await ask("create_delegation_token", 3, renewers=[], max_lifetime=1000, **owner)
        assert (created.principal_name, created.token_requester_principal_name) == ("bob", principal[5:])
        for version in (1, 2):
            await ask("renew_delegation_token", version, hmac=b"x", renew_period=1)
            await ask("expire_delegation_token", version, hmac=b"x", expiry_time_period=1)
        if code == 61:
            renewers = [{"principal_type": "Group", "principal_name": "x"}]
            fields = {"renewers": renewers, "max_lifetime": 1}
            assert (await call(node, "create_delegation_token", 2, fields, connection=connection)).error_code == 67

    run_node(tmp_path, body)


def test_they_need_the_right_to_alter_the_cluster(tmp_path: Path) -> None:
    class Refusing(Authorizer):
        def allows(self, context: object, operation: Operation, resource_type: ResourceType, name: str) -> bool:
            return (operation, resource_type) != (Operation.ALTER, ResourceType.CLUSTER)

    async def body(node: Node) -> None:
        node.authorizer = Refusing(tuple)
        assert (await call(node, "unregister_broker", 0, {"broker_id": 7})).error_code == 31
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        answer = await call(node, "alter_partition_reassignments", 1, {"timeout": 1, "topics": topics})
        (row,) = answer.responses
        assert (answer.error_code, [int(one.error_code) for one in row.partitions]) == (31, [31])
        dirs = [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]
        moved = await call(node, "alter_replica_log_dirs", 2, {"dirs": dirs})
        assert moved.results[0].partitions[0].error_code == 31
        update = {"timeout": 1, "feature_updates": [], "validate_only": False}
        assert (await call(node, "update_features", 2, update)).error_code == 31

    run_node(tmp_path, body)

