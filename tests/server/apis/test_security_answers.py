"""Answers about ACLs, quotas and users whose rows contradict each other, as a broker gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kafkalog.server.node.node import Node
from tests.server.apis.test_security_calls import ACLS, acl_creation
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for

TWICE: Final = 92
GONE: Final = 91
FEW: Final = 93


def upsertion(mechanism: int, iterations: int = 4096) -> dict[str, Any]:
    return {"name": "u", "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
            "salted_password": b"p" * 32}  # fmt: skip


async def alter_user(node: Node, deletions: list[int], *upsertions: dict[str, Any]) -> int:
    rows = [{"name": "u", "mechanism": mechanism} for mechanism in deletions]
    tree = {"deletions": rows, "upsertions": upsertions}
    (result,) = (await call(node, "alter_user_scram_credentials", 0, tree)).results
    return int(result.error_code)


@in_loop
async def test_one_valid_change_of_each_user_in_a_call(tmp_path: Path) -> None:
    """The mechanisms do not matter; an error comes before what follows it."""
    async with node_for(tmp_path) as node:
        assert await alter_user(node, [1, 1]) == GONE
        assert await alter_user(node, [1], upsertion(1)) == GONE
        assert await alter_user(node, [], upsertion(1, 1), upsertion(1)) == FEW
        assert await alter_user(node, [], upsertion(1), upsertion(2, 1)) == TWICE
        assert await alter_user(node, [], upsertion(1), upsertion(2)) == TWICE
        assert node.credentials.file.state.users == {}
        assert await alter_user(node, [], upsertion(1)) == 0
        for deletions, upsertions in (([1, 2], ()), ([1], (upsertion(2),)), ([1, 0], ())):
            assert await alter_user(node, deletions, *upsertions) == TWICE
        assert [list(keys) for keys in node.credentials.file.state.users.values()] == [["SCRAM-SHA-256"]]


@in_loop
async def test_a_described_user_has_an_empty_message(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await alter_user(node, [], upsertion(1))
        answer = await call(node, "describe_user_scram_credentials", 0, {"users": None})
        assert (answer.error_message, [row.error_message for row in answer.results]) == ("", [""])


async def set_limits(node: Node, *entries: tuple[str, str | None, str, float, bool]) -> list[tuple[int, str | None]]:
    rows = [
        {"entity": [{"entity_type": kind, "entity_name": name}],
         "ops": [{"key": key, "value": value, "remove": remove}]}
        for kind, name, key, value, remove in entries
    ]  # fmt: skip
    answer = await call(node, "alter_client_quotas", 1, {"entries": rows, "validate_only": False})
    return [(int(row.error_code), row.entity[0].entity_name) for row in answer.entries]


@in_loop
async def test_parts_of_an_entity_are_answered_in_the_brokers_order(tmp_path: Path) -> None:
    parts = [{"entity_type": kind, "entity_name": "a"} for kind in ("user", "client-id")]
    async with node_for(tmp_path) as node:
        row = {"entity": parts, "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}
        answer = await call(node, "alter_client_quotas", 1, {"entries": [row], "validate_only": True})
        assert [one.entity_type for one in answer.entries[0].entity] == ["client-id", "user"]


@in_loop
async def test_the_first_limits_of_an_entity_that_comes_twice_are_set(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        first, second = ("user", "a", "producer_byte_rate", 5.0, False), ("user", "a", "consumer_byte_rate", 6.0, False)
        other = ("user", "b", "consumer_byte_rate", 7.0, False)
        assert await set_limits(node, first, other, second) == [(42, "a"), (0, "b")]
        assert node.credentials.file.state.quotas == {
            (("user", "a"),): {"producer_byte_rate": 5.0}, (("user", "b"),): {"consumer_byte_rate": 7.0},
        }  # fmt: skip
        assert await set_limits(node, ("user", "c", "none", 5.0, False), ("user", "c", *first[2:])) == [(42, "c")]
        assert (("user", "c"),) not in node.credentials.file.state.quotas


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "remove", "code"),
    [
        ("user", "u", "no.such", 1.0, True, 0), ("user", "u", "no.such", 1.0, False, 42),
        ("ip", None, "producer_byte_rate", 1.0, True, 0), ("user", "u", "producer_byte_rate", 1e300, False, 42),
        ("user", "u", "request_percentage", 1e300, False, 0), ("ip", "1.2.3.4", "connection_creation_rate", 2.0**31,
        False, 42), ("ip", "300.1.1.1", "connection_creation_rate", 5.0, False, 42),
        ("ip", "no ip", "connection_creation_rate", 5.0, True, 42), ("ip", "::1", "connection_creation_rate", 5, False,
        0), ("ip", "::x", "connection_creation_rate", 5.0, False, 42),
        ("ip", "localhost", "connection_creation_rate", 5.0, False, 0),
        ("ip", "1.2.3", "connection_creation_rate", 5.0, False, 0),
    ],
)  # fmt: skip
@in_loop
async def test_limits_and_addresses(
    tmp_path: Path, kind: str, name: str | None, key: str, value: float, remove: bool, code: int
) -> None:
    async with node_for(tmp_path) as node:
        assert await set_limits(node, (kind, name, key, value, remove)) == [(code, name)]


@in_loop
async def test_an_acl_is_of_a_host(tmp_path: Path) -> None:
    async with node_for(tmp_path, **ACLS) as node:
        (row,) = (await call(node, "create_acls", 3, {"creations": [acl_creation(host="")]})).results
        assert (row.error_code, row.error_message) == (42, "Host pattern cannot be null or empty")


@in_loop
async def test_refused_answers_repeat_what_was_asked_for(tmp_path: Path) -> None:
    async with node_for(tmp_path, authorizer_class_name="StandardAuthorizer") as node:
        topics: list[Any] = [{"name": "t", "partition_indexes": [0, 3]}]
        answer = await call(node, "list_partition_reassignments", 0, {"timeout": 1000, "topics": topics})
        (row,) = answer.topics
        assert (answer.error_code, row.name, [one[:2] for one in row.partitions]) == (31, "t", [(0, ()), (3, ())])
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        tree = {"timeout": 1000, "allow_replication_factor_change": False, "topics": topics}
        answer = await call(node, "alter_partition_reassignments", 1, tree)
        (row,) = answer.responses
        assert (answer.error_code, answer.allow_replication_factor_change) == (31, True)
        assert [(one.partition_index, int(one.error_code)) for one in row.partitions] == [(0, 31)]
        tree = {"users": [{"name": "a"}, {"name": "b"}]}
        answer = await call(node, "describe_user_scram_credentials", 0, tree)
        assert (answer.error_code, answer.error_message) == (31, None)
        assert [(row.user, int(row.error_code), row.error_message) for row in answer.results] == [("", 31, None)] * 2
        answer = await call(node, "describe_client_quotas", 1, {"components": [], "strict": False})
        assert (answer.error_code, answer.error_message) == (31, None)
