"""`replica.fetch.*` and `replica.socket.*` control a follower's fetches, and DescribeConfigs shows them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kafkalog.errors import ConfigError
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.node.following import limits_of
from kafkalog.server.node.node import Node
from kafkalog.server.quorum.links import settings_of
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.results import AppendParams
from kafkalog.server.settings.config import ServerConfig
from tests.builder import R, batch
from tests.server.client.peers import open_connection, server_on
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.replica.copies import until
from tests.server.replicated.servers import servers_of
from tests.server.replicated.test_following_leader import T0

FETCH, BROKER = 1, 4
GIVEN = {
    "replica.fetch.max.bytes": 2, "replica.fetch.response.max.bytes": 3, "replica.fetch.min.bytes": 4,
    "replica.fetch.wait.max.ms": 5, "replica.fetch.backoff.ms": 6, "replica.socket.timeout.ms": 7,
    "replica.socket.receive.buffer.bytes": 8192, "replica.lag.time.max.ms": 9, "num.replica.fetchers": 2,
    "leader.replication.throttled.rate": 10, "follower.replication.throttled.rate": 11,
    "replica.high.watermark.checkpoint.interval.ms": 12,
}  # fmt: skip


def test_limits_are_those_of_the_settings() -> None:
    assert limits_of(ServerConfig(GIVEN)) == FetchLimits(
        max_wait_ms=5, min_bytes=4, max_bytes=3, partition_max_bytes=2, backoff_ms=6, timeout_ms=7
    )
    assert limits_of(ServerConfig()) == FetchLimits()
    assert limits_of(ServerConfig({"replica.fetch.backoff.ms": 0})).backoff_ms == 1  # it does not turn all the time
    peers = settings_of(ServerConfig({**GIVEN, "node.id": 1, "replica.fetch.response.max.bytes": 1 << 30}))
    assert peers.receive_buffer_bytes == 8192 and peers.max_answer_bytes > 1 << 30


@pytest.mark.parametrize(
    "given",
    [
        {"replica.fetch.wait.max.ms": 31_000},
        {"replica.fetch.wait.max.ms": 400, "replica.lag.time.max.ms": 300},
        {"replica.fetch.max.bytes": -1},
        {"replica.fetch.response.max.bytes": -1},
        {"replica.fetch.backoff.ms": -1},
        {"replica.socket.receive.buffer.bytes": -2},
        {"num.replica.fetchers": 0},
    ],
)
def test_what_makes_followers_late_or_is_out_of_range_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ServerConfig(given)


def count_fetches(node: Node) -> int:
    """Return the number of answered fetches."""
    return node.requests.calls[FETCH].times_ms.count if FETCH in node.requests.calls else 0


@in_loop
async def test_a_follower_gets_no_more_at_once_than_it_asks_for(tmp_path: Path) -> None:
    settings = {"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1}
    async with servers_of(tmp_path, 1, 2, settings=settings) as servers:
        node = servers[1].node
        await node.quorum.promote()
        await node.topics.create("t", 1)
        await servers.stop(2)
        for number in range(20):
            found = await node.replicas.append({T0: bytearray(batch([R(b"%d" % number)]))}, AppendParams(1, 1000))
            assert not found[T0].error_code
        before = count_fetches(node)
        third = (await servers.start(3)).node
        await until(lambda: (log := third.store.get(T0)) is not None and log.log_end_offset == 20)
        assert count_fetches(node) - before >= 20  # one batch each time, which comes whole


@in_loop
async def test_the_buffer_of_a_connection_to_the_leader(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        expected = other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    async with server_on(tmp_path) as server:
        (port,) = server.ports.values()
        for size in (-1, 8192):
            async with open_connection(port, PeerSettings(receive_buffer_bytes=size)) as connection:
                assert connection._transport is not None
                found = connection._transport.get_extra_info("socket")
                is_set = found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == expected
                assert is_set is (size > 0)


@in_loop
async def test_they_are_shown_with_what_they_are_for(tmp_path: Path) -> None:
    async with node_for(tmp_path, **{name.replace(".", "_"): value for name, value in GIVEN.items()}) as node:
        resource = {"resource_type": BROKER, "resource_name": str(node.node_id), "configuration_keys": [*GIVEN]}
        tree = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        (row,) = (await call(node, "describe_configs", 4, tree)).results
        assert {one.name: one.value for one in row.configs} == {name: str(value) for name, value in GIVEN.items()}
        assert all(one.documentation for one in row.configs)
        changeable = {one.name for one in row.configs if not one.read_only}
        rates = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
        assert rates <= changeable <= {*rates, "num.replica.fetchers"}
