"""A replica set is one cluster to its clients: administrators' calls at any node are the leader's, with the client's
own rights; all nodes name the same addresses; assignments are those of the set; deletes leave no warning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.leading import CONTROLLERS
from kafkalog.server.node.node import Node
from kafkalog.server.replica import replica_fetcher
from kafkalog.server.requests.context import Connection
from kafkalog.server.security.acls import Operation
from tests.server.apis.test_setting_calls import SET, TOPIC, alter
from tests.server.apis.test_topic_calls import allow
from tests.server.client.peers import HOST
from tests.server.looping import in_loop
from tests.server.nodes import KEYS, call, connection_for, request_bytes
from tests.server.replica.copies import until
from tests.server.replicated.servers import Servers, servers_of
from tests.server.replicated.test_following_leader import set_of_three

ACL = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
ACL_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
SCRAM = {"name": "b", "mechanism": 1, "iterations": 4096, "salt": b"s" * 24, "salted_password": b"p" * 32}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "a"}],
    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
}  # fmt: skip
FEATURE = {"feature": "share.version", "max_version_level": 1, "upgrade_type": 2}
CONFIG = {"resource_type": TOPIC, "resource_name": "t", "configs": [{"name": "flush.ms", "value": "7"}]}


def new_topic(name: str, *assignments: list[int]) -> dict[str, Any]:
    rows = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignments)]
    count = (-1, -1) if rows else (1, 3)
    return {"name": name, "num_partitions": count[0], "replication_factor": count[1], "assignments": rows,
            "configs": []}  # fmt: skip


def creation(*topics: Mapping[str, Any]) -> dict[str, Any]:
    return {"topics": topics, "timeout": 60_000, "validate_only": False}


async def led_by_first(servers: Servers) -> dict[int, Node]:
    """The nodes, as soon as all know that the first leads."""
    await servers[1].node.quorum.promote()
    nodes = {number: server.node for number, server in servers.items()}
    await until(lambda: all(one.quorum.leader == 1 for one in nodes.values()) and not nodes[1].leaders_calls)
    return nodes


def codes(answer: Any) -> list[tuple[int, str | None]]:
    (rows,) = [value for value in answer if isinstance(value, tuple)]
    return [(int(one.error_code), one.error_message) for one in rows]


@in_loop
async def test_every_call_of_administrators_is_answered_by_every_node(tmp_path: Path) -> None:
    async with set_of_three(tmp_path, **{"authorizer.class.name": "x", "super.users": "User:ANONYMOUS"}) as servers:
        nodes = await led_by_first(servers)
        second, third = nodes[2], nodes[3]
        calls: list[tuple[str, int, dict[str, Any]]] = [
            ("create_topics", 7, creation(new_topic("t"))),
            ("create_partitions", 3, {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 60_000,
                                      "validate_only": False}),
            ("alter_configs", 2, {"resources": [CONFIG], "validate_only": False}),
            ("alter_client_quotas", 1, {"entries": [QUOTA], "validate_only": False}),
            ("create_acls", 3, {"creations": [ACL]}),
            ("delete_acls", 3, {"filters": [ACL_FILTER]}),
            ("alter_user_scram_credentials", 0, {"deletions": [], "upsertions": [SCRAM]}),
            ("update_features", 1, {"feature_updates": [FEATURE], "timeout": 60_000, "validate_only": False}),
        ]  # fmt: skip
        for name, version, tree in calls:
            assert {code for code, _ in codes(await call(second, name, version, tree))} == {0}, name
        assert await alter(third, TOPIC, "t", ("retention.ms", SET, "9000")) == (0, None)
        first = nodes[1]
        assert first.topics.own_settings("t") == {"flush.ms": "7", "retention.ms": "9000"}
        state = first.credentials.file.state
        assert list(state.users) == ["b"] and not state.acls and len(state.quotas) == 1
        await until(lambda: [one.topics.own_settings("t") for one in nodes.values()].count(
            first.topics.own_settings("t")) == 3)  # fmt: skip
        await until(lambda: {one.features.level("share.version") for one in nodes.values()} == {1})
        gone = {"topics": [{"name": "t", "topic_id": None}], "timeout": 60_000}
        assert codes(await call(third, "delete_topics", 6, gone)) == [(0, None)]
        assert first.topics.get("t") is None
        covered = {name for name, _, _ in calls} | {"incremental_alter_configs", "delete_topics"}
        assert covered == set(CONTROLLERS)


@in_loop
async def test_the_leader_checks_what_the_client_may_do(tmp_path: Path) -> None:
    async with set_of_three(tmp_path, **{"authorizer.class.name": "x", "super.users": "User:ANONYMOUS"}) as servers:
        nodes = await led_by_first(servers)
        first, second = nodes[1], nodes[2]
        ann = connection_for("User:ann")
        refused = await call(second, "create_topics", 7, creation(new_topic("t")), connection=ann)
        assert [one.error_code for one in refused.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        at_home = allow("t", Operation.CREATE)._replace(principal="User:ann", host="127.0.0.7")
        await first.credentials.file.change(first.run, lambda state: state._replace(acls=(at_home,)))
        for host, code in (("127.0.0.8", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("127.0.0.7", 0)):
            ann = Connection(1, "PLAINTEXT", peer=(host, 5))
            ann.principal = "User:ann"
            made = await call(second, "create_topics", 7, creation(new_topic("t")), connection=ann)
            assert [one.error_code for one in made.topics] == [code]
        frame = bytes(request_bytes("create_topics", 7, creation(new_topic("u"))))
        envelope = {"request_data": frame, "request_principal": b"User:ANONYMOUS", "client_host_address": b"127.0.0.1"}
        answer = await call(first, "envelope", 0, envelope, connection=ann)  # a client is no node of the set
        assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        assert (await call(second, "envelope", 0, envelope)).error_code == ErrorCode.NOT_CONTROLLER
        for wrong in (b"", frame[:5], bytes(request_bytes("metadata", 1, {"topics": None})), frame[:-9]):
            answer = await call(first, "envelope", 0, {**envelope, "request_data": wrong})
            assert (answer.error_code, answer.response_data) == (ErrorCode.INVALID_REQUEST, None)
        assert first.topics.get("u") is None


@in_loop
async def test_the_node_that_forwarded_a_call_holds_the_client_back_as_long_as_the_leader_says(tmp_path: Path) -> None:
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "ann"}],
        "ops": [{"key": "controller_mutation_rate", "value": 0.01, "remove": False}],
    }
    async with set_of_three(tmp_path) as servers:
        second = (await led_by_first(servers))[2]
        done = await call(second, "alter_client_quotas", 1, {"entries": [quota], "validate_only": False})
        assert codes(done) == [(0, None)]
        assert second.requests.calls[KEYS["alter_client_quotas"]].times_ms.count == 1
        ann = connection_for("User:ann")
        topic = {**new_topic("t"), "num_partitions": 3}
        made = await call(second, "create_topics", 7, creation(topic), connection=ann)
        assert [one.error_code for one in made.topics] == [0] and made.throttle_time
        assert ann.mute_until_ms > second.monotonic_ms()


@in_loop
async def test_a_forwarded_call_is_charged_to_the_client_and_not_to_the_node(tmp_path: Path) -> None:
    """Else one client's calls would hold back those of all clients of that node."""
    quota = {
        "entity": [{"entity_type": "user", "entity_name": None}],
        "ops": [{"key": "request_percentage", "value": 1e-9, "remove": False}],
    }
    async with set_of_three(tmp_path) as servers:
        first = (await led_by_first(servers))[1]
        done = await call(first, "alter_client_quotas", 1, {"entries": [quota], "validate_only": False})
        assert codes(done) == [(0, None)]
        frame = bytes(request_bytes("create_topics", 7, creation(new_topic("t"))))
        envelope = {"request_data": frame, "request_principal": b"User:ann", "client_host_address": b"127.0.0.1"}
        link = connection_for("User:node")
        answer = await call(first, "envelope", 0, envelope, connection=link)
        assert answer.error_code == 0
        assert any(answer.response_data[5:9])  # the client's throttle time
        assert link.mute_until_ms == 0


@in_loop
async def test_no_quota_holds_back_a_follower(tmp_path: Path) -> None:
    quota = {
        "entity": [{"entity_type": "user", "entity_name": None}],
        "ops": [{"key": "request_percentage", "value": 1e-9, "remove": False}],
    }
    fetch = {
        "max_wait": 0, "min_bytes": 0, "max_bytes": 100, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
        "topics": [], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    async with set_of_three(tmp_path, **{"authorizer.class.name": "x", "super.users": "User:ANONYMOUS"}) as servers:
        first = (await led_by_first(servers))[1]
        done = await call(first, "alter_client_quotas", 1, {"entries": [quota], "validate_only": False})
        assert codes(done) == [(0, None)]
        for replica_id, principal, is_muted in (
            (2, "User:ANONYMOUS", False), (2, "User:ann", True), (-1, "User:ANONYMOUS", True),
        ):  # fmt: skip
            link = connection_for(principal)
            await call(first, "fetch", 12, {**fetch, "replica_id": replica_id}, connection=link)
            assert bool(link.mute_until_ms) == is_muted, (replica_id, principal)


@in_loop
async def test_without_a_leader_and_for_keys_that_must_not_travel_clients_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with set_of_three(tmp_path) as servers:
        node = servers[2].node
        made = await call(node, "create_topics", 7, creation(new_topic("t")))
        assert [one.error_code for one in made.topics] == [ErrorCode.NOT_CONTROLLER]
        await led_by_first(servers)
        monkeypatch.setattr(type(node.quorum.forwards), "is_private", lambda *_: False)  # as between machines
        upsertion = {"deletions": [], "upsertions": [SCRAM]}
        assert codes(await call(node, "alter_user_scram_credentials", 0, upsertion))[0][0] == ErrorCode.NOT_CONTROLLER
        open_ = Connection(1, "PLAINTEXT", peer=("192.0.2.1", 5))  # whose keys were open to all on their way here
        found = await call(node, "alter_user_scram_credentials", 0, upsertion, connection=open_)
        assert codes(found) == [(0, None)]
        await servers.stop(1)
        await until(lambda: node.quorum.leader == 1)
        made = await call(node, "create_topics", 7, creation(new_topic("t")))
        assert [one.error_code for one in made.topics] == [ErrorCode.NOT_CONTROLLER]


@in_loop
async def test_an_assignment_that_is_the_sets_own_is_taken_and_any_other_refused_with_the_reason(
    tmp_path: Path
) -> None:
    given = "The manual partition assignment includes"
    async with set_of_three(tmp_path) as servers:
        node = (await led_by_first(servers))[1]
        for assignment, words in (
            ([1, 2], f"{given} 2 of the 3 nodes of the replica set, which keeps a copy of every partition on each of "
             "them: 1, 2, 3."),
            ([1, 2, 4], f"{given} broker 4, but no such broker is registered."),
            ([1, 2, 2], f"{given} the broker 2 more than once."),
            ([], f"{given} an empty replica list."),
        ):  # fmt: skip
            made = await call(node, "create_topics", 7, creation(new_topic("t", assignment)))
            (row,) = made.topics
            assert (row.error_code, row.error_message) == (39, words)
        made = await call(node, "create_topics", 7, creation(new_topic("t", [1, 2, 3], [3, 1, 2])))
        assert [(one.error_code, one.num_partitions, one.replication_factor) for one in made.topics] == [(0, 2, 3)]
        for assignment, code in (([2, 3, 1], 0), ([1], 39)):
            count = node.topics.get("t").partitions + 1
            more = {"name": "t", "count": count, "assignments": [{"broker_ids": assignment}]}
            tree = {"topics": [more], "timeout": 60_000, "validate_only": False}
            assert codes(await call(node, "create_partitions", 3, tree))[0][0] == code


@in_loop
async def test_a_deleted_topic_makes_no_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "_FAILURES_OF_A_DELETE", 10**6)  # a busy machine needs more than two seconds
    async with set_of_three(tmp_path) as servers:
        nodes = await led_by_first(servers)
        with caplog.at_level(logging.INFO):
            for round_ in range(3):
                names = [f"t{round_}-{number}" for number in range(4)]
                await call(nodes[1], "create_topics", 7, creation(*map(new_topic, names)))
                await until(lambda names=names: all(one.topics.get(name) for one in nodes.values() for name in names))
                gone = {"topics": [{"name": name, "topic_id": None} for name in names], "timeout": 60_000}
                await call(nodes[1], "delete_topics", 6, gone)
                await until(lambda names=names: not any(
                    one.topics.get(name) for one in nodes.values() for name in names))  # fmt: skip
        loud = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert not loud


@in_loop
async def test_addresses_and_racks_are_the_same_whoever_is_asked(tmp_path: Path) -> None:
    listener = "OUT"
    async with servers_of(tmp_path, 2, 3, settings={"broker.rack": "away"}) as servers:
        for number in (2, 3):
            servers[number].node.endpoints[listener] = (f"node{number}.example", 900 + number)
        servers.settings["broker.rack"] = "home"
        servers.settings["advertised.listeners"] = f"PLAINTEXT://localhost:{servers.ports[1]}"
        first = (await servers.start(1)).node
        first.endpoints[listener] = ("::1", 901)
        nodes = await led_by_first(servers)
        tree = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False,
                "include_cluster_authorized_operations": False}  # fmt: skip

        async def advertised(node: Node, listener: str) -> tuple[set[tuple[Any, ...]], ...]:
            """The addresses in both answers that have them."""
            connection = Connection(1, listener)
            metadata = (await call(node, "metadata", 12, tree, connection=connection)).brokers
            cluster = {"include_cluster_authorized_operations": False, "endpoint_type": 1,
                       "include_fenced_brokers": False}  # fmt: skip
            brokers = (await call(node, "describe_cluster", 2, cluster, connection=connection)).brokers
            found = {(one.broker_id, one.host, one.port, one.rack) for one in brokers}
            return found, {(one.node_id, one.host, one.port, one.rack) for one in metadata}

        expected = {
            "PLAINTEXT": {(1, "localhost", servers.ports[1], "home"), (2, HOST, servers.ports[2], "away"),
                          (3, HOST, servers.ports[3], "away")},
            listener: {(1, "::1", 901, "home"), (2, "node2.example", 902, "away"), (3, "node3.example", 903, "away")},
        }  # fmt: skip
        for name, addresses in expected.items():
            for node in nodes.values():
                async with asyncio.timeout(60):
                    while await advertised(node, name) != (addresses, addresses):
                        await asyncio.sleep(0.01)
