"""The client's side of the protocol against our own server: several requests, versions, TLS, logins, deadlines."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerRefused, PeerTimedOut, PeerUnreachable
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings, peer_settings
from kafkalog.server.security.users import add_user
from kafkalog.server.wire.versions import APIS
from tests.builder import R, batch
from tests.server.client.peers import HOST, LIST_OFFSETS, METADATA, error_of, liar, open_connection, server_on
from tests.server.looping import in_loop
from tests.server.net.certificates import authority, certificate
from tests.server.net.networks import both_loops, run_in

ALL_TOPICS = {
    "topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}  # fmt: skip


def end_request(topic: str) -> dict[str, object]:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {"replica_id": -1, "isolation_level": 0, "timeout": 1000, "topics": [{"name": topic, "partitions": [asked]}]}


async def fetch_topic_names(connection: PeerConnection) -> set[str]:
    answer = await connection.request(METADATA, ALL_TOPICS)
    return {topic.name for topic in answer.topics}


@pytest.mark.parametrize("loop", both_loops())
def test_requests_are_answered_in_their_order(tmp_path: Path, loop: Any) -> None:
    """Twenty of two kinds are under way at once; each gets its own answer, and large ones come whole."""
    run_in(loop, _many_requests(tmp_path))


async def _many_requests(tmp_path: Path) -> None:
    async with server_on(tmp_path) as server:
        for index in range(40):
            await server.node.topics.create(f"{'t' * 200}-{index}", 1)
        async with open_connection(server.ports["PLAINTEXT"]) as connection:
            assert connection.versions[METADATA] == (APIS[METADATA].oldest, APIS[METADATA].newest)
            asked = [
                connection.request(*(METADATA, ALL_TOPICS) if number % 2 else (LIST_OFFSETS, end_request("t")))
                for number in range(20)
            ]
            answers = await asyncio.gather(*asked)
            for number, answer in enumerate(answers):
                if number % 2:
                    assert len(answer.topics) == 40
                else:
                    assert [one.error_code for one in answer.topics[0].partitions] == [3]


@in_loop
async def test_an_older_version_can_be_asked_for(tmp_path: Path) -> None:
    async with server_on(tmp_path) as server, open_connection(server.ports["PLAINTEXT"]) as connection:
        await server.node.topics.create("t", 1)
        for version in range(APIS[METADATA].newest + 1):
            tree = ALL_TOPICS if version else {"topics": ()}  # what all topics are in the oldest one
            answer = await connection.request(METADATA, tree, version=version)
            assert [topic.name for topic in answer.topics] == ["t"]


@in_loop
async def test_records_are_views_of_the_frame(tmp_path: Path) -> None:
    async with server_on(tmp_path) as server, open_connection(server.ports["PLAINTEXT"]) as connection:
        await server.node.topics.create("t", 1)
        written = batch([R(b"x" * 100_000)])
        partition = server.node.replicas.partition("t", 0)
        partition.append(bytearray(written), 1)
        asked = {
            "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }  # fmt: skip
        answer = await connection.request(1, {
            "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": (), "rack_id": "",
            "topics": [{"topic": "t", "partitions": [asked]}],
        }, version=12)  # fmt: skip
        [got] = answer.responses[0].partitions
        assert isinstance(got.records, memoryview)
        assert bytes(got.records)[61:] == written[61:]


@in_loop
async def test_who_is_cancelled_leaves_the_connection_to_others(tmp_path: Path) -> None:
    async with server_on(tmp_path) as server, open_connection(server.ports["PLAINTEXT"]) as connection:
        await server.node.topics.create("t", 1)
        first = asyncio.ensure_future(connection.request(METADATA, ALL_TOPICS))
        second = asyncio.ensure_future(connection.request(METADATA, ALL_TOPICS))
        await asyncio.sleep(0)
        first.cancel()
        assert len((await second).topics) == 1
        assert first.cancelled() and connection.is_open


@in_loop
async def test_no_answer_in_time_ends_the_connection() -> None:
    async with liar(lambda request: b"") as port, open_connection(port, request_ms=60) as connection:
        errors = await asyncio.gather(*(error_of(connection.request(METADATA, ALL_TOPICS)) for _ in range(2)))
        assert all(isinstance(error, PeerTimedOut | PeerUnreachable) for error in errors)
        assert isinstance(errors[0], PeerTimedOut) and isinstance(errors[0], TimeoutError)
        assert str(errors[0]).startswith(f"{HOST}:{port}: no response to metadata within 60 ms")
        assert not connection.is_open
        assert isinstance(await error_of(connection.request(METADATA, ALL_TOPICS)), PeerTimedOut)


@in_loop
async def test_no_answer_to_callers_that_left_ends_the_connection() -> None:
    """As of a machine that lost its power: nodes of a replica set ask each other with a shorter time limit."""
    async def briefly(connection: PeerConnection) -> None:
        async with asyncio.timeout(0.01):
            await connection.request(METADATA, ALL_TOPICS)

    async with liar(lambda request: b"") as port, open_connection(port, request_ms=60) as connection:
        assert type(await error_of(briefly(connection))) is TimeoutError and connection.is_open
        async with asyncio.timeout(60):
            while connection.is_open:
                error = await error_of(briefly(connection))
        assert isinstance(error, PeerTimedOut)
        assert str(error) == f"{HOST}:{port}: no response to an earlier metadata in time"


@in_loop
async def test_a_peer_that_goes_away_is_named() -> None:
    async with liar(lambda request: None) as port, open_connection(port) as connection:
        error = await error_of(connection.request(METADATA, ALL_TOPICS))
        assert isinstance(error, PeerUnreachable) and isinstance(error, ConnectionError)
        assert (error.peer, error.retriable) == (f"{HOST}:{port}", True)
        assert str(error) == f"{HOST}:{port}: it closed the connection"
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
        error = await error_of(connect(HOST, port))
    assert isinstance(error, PeerUnreachable) and f"{HOST}:{port}: no connection" in str(error)


@in_loop
async def test_a_peer_that_says_nothing_is_left() -> None:
    async with liar(lambda request: b"", is_honest_first=False) as port:
        error = await error_of(connect(HOST, port, PeerSettings(connect_ms=60)))
        assert isinstance(error, PeerTimedOut) and "no connection within 60 ms" in str(error)


@in_loop
async def test_a_call_that_the_peer_does_not_serve(tmp_path: Path) -> None:
    async with server_on(tmp_path) as server, open_connection(server.ports["PLAINTEXT"]) as connection:
        connection.versions = {LIST_OFFSETS: (99, 100)}
        for key in (METADATA, LIST_OFFSETS):
            error = await error_of(connection.request(key, ALL_TOPICS))
            assert isinstance(error, PeerRefused) and APIS[key].name in str(error)
        assert connection.is_open


# Who is who


def jaas_config(user: str, password: str) -> str:
    return f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{password}";'


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@in_loop
async def test_a_login(tmp_path: Path, mechanism: str) -> None:
    add_user(tmp_path, "a=b,c", "secret")
    async with server_on(tmp_path, listeners=f"SASL_PLAINTEXT://{HOST}:0") as server:
        port = server.ports["SASL_PLAINTEXT"]
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        right = peer_settings({**given, "sasl.jaas.config": jaas_config("a=b,c", "secret")})
        assert "secret" not in repr(right)
        async with open_connection(port, right) as connection:
            assert await fetch_topic_names(connection) == set()
        wrong = peer_settings({**given, "sasl.jaas.config": jaas_config("a=b,c", "no")})
        error = await error_of(connect(HOST, port, wrong))
        assert isinstance(error, PeerRefused) and "Authentication failed" in str(error)
        assert "secret" not in str(error) and not error.retriable
        async with open_connection(port) as connection:  # before the login, only the versions are answered
            assert isinstance(await error_of(connection.request(METADATA, ALL_TOPICS)), PeerUnreachable)


@in_loop
async def test_a_mechanism_that_the_peer_does_not_take(tmp_path: Path) -> None:
    more = {"sasl_enabled_mechanisms": "SCRAM-SHA-512"}
    async with server_on(tmp_path, listeners=f"SASL_PLAINTEXT://{HOST}:0", **more) as server:
        error = await error_of(connect(HOST, server.ports["SASL_PLAINTEXT"], PeerSettings(mechanism="PLAIN")))
        assert isinstance(error, PeerRefused) and "it offers SCRAM-SHA-512" in str(error)


@pytest.mark.parametrize("loop", both_loops())
def test_tls_both_ways(tmp_path: Path, loop: Any) -> None:
    run_in(loop, _tls_both_ways(tmp_path))


async def _tls_both_ways(tmp_path: Path) -> None:
    authority(tmp_path)
    certificate(tmp_path, "server", "/CN=localhost")
    certificate(tmp_path, "node", "/CN=node", password="pass")
    more = {
        "listeners": f"SSL://{HOST}:0", "ssl_keystore_location": str(tmp_path / "server.pem"),
        "ssl_truststore_location": str(tmp_path / "ca.pem"), "ssl_client_auth": "required",
    }  # fmt: skip
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    own = {"ssl.keystore.location": str(tmp_path / "node.pem"), "ssl.key.password": "pass"}
    async with server_on(tmp_path / "data", **more) as server:
        port = server.ports["SSL"]
        for host in (HOST, "localhost"):
            async with open_connection(port, peer_settings({**given, **own}), host) as connection:
                assert await fetch_topic_names(connection) == set()
        error = await error_of(connect(HOST, port, peer_settings({"security.protocol": "SSL"})))
        assert isinstance(error, PeerRefused) and "CERTIFICATE_VERIFY_FAILED" in str(error)
        error = await error_of(connect(HOST, port, peer_settings(given)))  # TLS 1.3: refused after its handshake
        assert isinstance(error, PeerUnreachable | PeerRefused)
