"""Three nodes with TLS and SCRAM between them: what clients may not do there, and what is not sent in clear."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import ConfigError, KafkalogError
from kafkalog.server.client.errors import PeerRefused
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings, peer_settings
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.decisions import Ballot
from kafkalog.server.quorum.links import settings_of
from kafkalog.server.quorum.metadata import FETCH_SNAPSHOT, NeedsTls, snapshot_request
from kafkalog.server.requests.context import Connection
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.scram import keys_of_password
from kafkalog.server.security.state import SecurityState
from kafkalog.server.settings.config import ServerConfig
from tests.server.client.peers import HOST
from tests.server.looping import in_loop
from tests.server.net.certificates import authority, certificate
from tests.server.nodes import call, connection_for, node_for
from tests.server.replica.copies import until
from tests.server.replicated.servers import servers_of
from tests.server.replicated.test_following_leader import T0, until_same, write

SCRAM = "SCRAM-SHA-256"
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
READ_ALL = Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:a", "*", Operation.ALL, Permission.ALLOW)
USERS = SecurityState((READ_ALL,), {}, {"a": {SCRAM: keys_of_password(SCRAM, "of a", 4096)}})


def secured_settings(folder: Path, password: str = "of the nodes") -> dict[str, Any]:
    return {
        "ssl.keystore.location": str(folder / "server.pem"), "ssl.truststore.location": str(folder / "ca.pem"),
        "security.inter.broker.protocol": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": SCRAM,
        "kafkalog.replicas.jaas.config": LOGIN.format("replica", password),
        "super.users": "User:replica", "authorizer.class.name": "any",
    }  # fmt: skip


def client_settings(folder: Path, user: str, password: str) -> PeerSettings:
    return peer_settings({
        "security.protocol": "SASL_SSL", "sasl.mechanism": SCRAM, "sasl.jaas.config": LOGIN.format(user, password),
        "ssl.truststore.location": str(folder / "ca.pem"),
    })  # fmt: skip


async def refusals(folder: Path, port: int, term: int, topic_id: Any) -> dict[int, int]:
    """Return the answers to a user with all rights on topics and none on the cluster, posing as node 2."""
    connection = await connect(HOST, port, client_settings(folder, "a", "of a"))
    row = {"partition": 0, "current_leader_epoch": term, "fetch_offset": 0, "last_fetched_epoch": -1,
           "log_start_offset": 0, "partition_max_bytes": 1 << 20}  # fmt: skip
    fetch = {
        "replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": -1}, "max_wait": 0, "min_bytes": 0,
        "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
        "topics": [{"topic": "t", "topic_id": topic_id, "partitions": [row]}], "forgotten_topics_data": [],
    }  # fmt: skip
    ballot = Ballot(term + 1, 2, {})
    try:
        found = {1: (await connection.request(1, fetch)).responses[0].partitions[0].error_code}
        for key, tree in (
            (FETCH_SNAPSHOT, snapshot_request(2, term, (-1, -1), 0)),
            (messages.VOTE, messages.vote_request(ballot, 1, "", is_pre_vote=False)),
            (messages.BEGIN_QUORUM_EPOCH, messages.begin_request(messages.QuorumState(term + 1, 2), 1, "")),
            (messages.END_QUORUM_EPOCH, messages.end_request(term, 1, 2, "")),
            (messages.DESCRIBE_QUORUM, messages.describe_request()),
        ):
            found[key] = (await connection.request(key, tree)).error_code
        return found
    finally:
        await connection.close()


@in_loop
async def test_nodes_log_in_to_each_other_and_nobody_else_acts_as_one(tmp_path: Path) -> None:
    authority(tmp_path)
    certificate(tmp_path, "server", "/CN=localhost")
    async with servers_of(tmp_path, 1, 2, 3, listener="SASL_SSL", settings=secured_settings(tmp_path)) as servers:
        first = servers[1].node
        await first.quorum.promote()
        made = await first.topics.create("t", 1)
        await first.credentials.file.change(first.run, lambda _: USERS)
        await until(lambda: all(one.node.topics.get("t") is not None for one in servers.values()))
        assert await write(servers[1], T0, b"one") == 0
        await until_same(servers, 1, T0)
        await until(lambda: all(one.node.credentials.file.state == USERS for one in servers.values()))

        term = first.quorum.state.term
        found = await refusals(tmp_path, servers.ports[1], term, made.id)
        assert found.pop(1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert set(found.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        assert first.quorum.leads and first.quorum.state.term == term
        with pytest.raises(PeerRefused):
            await connect(HOST, servers.ports[2], client_settings(tmp_path, "replica", "guessed"))

        await servers[2].node.quorum.promote()
        assert await write(servers[2], T0, b"two") == 0
        await until_same(servers, 2, T0)
        await (await connect(HOST, servers.ports[3], client_settings(tmp_path, "a", "of a"))).close()


@in_loop
async def test_a_node_with_another_password_is_none_of_the_set(tmp_path: Path) -> None:
    authority(tmp_path)
    certificate(tmp_path, "server", "/CN=localhost")
    async with servers_of(tmp_path, 1, 2, listener="SASL_SSL", settings=secured_settings(tmp_path)) as servers:
        servers.settings = secured_settings(tmp_path, "guessed")
        third = (await servers.start(3)).node
        await servers[1].node.quorum.promote()
        await servers[1].node.topics.create("t", 1)
        await until(lambda: servers[2].node.topics.get("t") is not None)
        assert await write(servers[1], T0, b"one") == 0
        assert not third.cluster_id and third.topics.get("t") is None


@in_loop
async def test_keys_of_users_are_given_over_tls_or_inside_one_machine(tmp_path: Path) -> None:
    async with node_for(tmp_path, node_id=1, kafkalog_replicas="1@localhost:9092") as node:
        await until(lambda: node.quorum.leads)

        async def code(protocol: str, host: str) -> int:
            connection = Connection(1, "PLAINTEXT", protocol, (host, 1))
            connection.is_authenticated = True
            answer = await call(node, "fetch_snapshot", 1, snapshot_request(2, 0, (-1, -1), 0), connection=connection)
            return int(answer.error_code)

        assert await code("PLAINTEXT", "192.0.2.1") == 0  # nothing to hide
        await node.credentials.file.change(node.run, lambda _: USERS)
        for protocol, host, expected in (
            ("PLAINTEXT", "192.0.2.1", NeedsTls.code), ("SASL_PLAINTEXT", "2001:db8::1", NeedsTls.code),
            ("SASL_PLAINTEXT", "?", NeedsTls.code), ("SSL", "192.0.2.1", 0), ("SASL_SSL", "2001:db8::1", 0),
            ("PLAINTEXT", "127.0.0.2", 0), ("PLAINTEXT", "::1", 0), ("PLAINTEXT", "::ffff:127.0.0.1", 0),
        ):  # fmt: skip
            assert await code(protocol, host) == expected, (protocol, host)
        assert not node.authorizer.is_enabled and connection_for().security_protocol == "PLAINTEXT"


@in_loop
async def test_topics_go_on_where_users_may_not_travel_and_a_hand_over_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Connection, "is_private", False)  # as between machines
    async with servers_of(tmp_path, 1, 2, 3) as servers:
        first = servers[1].node
        await first.quorum.promote()
        await first.credentials.file.change(first.run, lambda _: USERS)
        await first.topics.create("t", 1)
        with caplog.at_level(logging.ERROR):
            await until(lambda: all(one.node.topics.get("t") is not None for one in servers.values()))
        assert "security.inter.broker.protocol" in caplog.text
        assert await write(servers[1], T0, b"one") == 0
        assert not servers[2].node.credentials.file.state.users
        with pytest.raises(KafkalogError, match="over an unencrypted connection"):  # its clients could not log in there
            await servers[2].node.quorum.promote()


def test_how_nodes_reach_each_other_may_be_a_listeners_name(tmp_path: Path) -> None:
    authority(tmp_path)
    listeners = {"listeners": "PLAINTEXT://:9092,INSIDE://:9093", "listener.security.protocol.map": "INSIDE:SSL"}
    named = {**listeners, "node.id": 1, "inter.broker.listener.name": "INSIDE",
             "listener.name.inside.ssl.truststore.location": str(tmp_path / "ca.pem")}  # fmt: skip
    assert settings_of(ServerConfig(named)).tls is not None
    assert settings_of(ServerConfig({**listeners, "node.id": 1})).tls is None
    with pytest.raises(ConfigError, match="both set"):
        settings_of(ServerConfig({**named, "security.inter.broker.protocol": "SSL"}))
    with pytest.raises(ConfigError, match="no listener has this name"):
        settings_of(ServerConfig({**named, "inter.broker.listener.name": "OUTSIDE"}))
