"""A node follows leaders of its own cluster alone, and a new one is of the leader's cluster."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafkalog.server.node.store import Identity, keep_identity
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.replica.copies import until
from tests.server.replicated.servers import servers_of
from tests.server.replicated.test_following_leader import T0, until_same, write

ANOTHER = "b3RoZXIgY2x1c3RlciBpZA"


@in_loop
async def test_a_new_node_is_of_the_leaders_cluster(tmp_path: Path) -> None:
    async with servers_of(tmp_path, 1, 2) as servers:
        await servers[1].node.quorum.promote()
        await servers[1].node.topics.create("t", 1)
        await until(lambda: servers[2].node.topics.get("t") is not None)
        assert await write(servers[1], T0, b"one") == 0
        third = (await servers.start(3)).node
        await until_same(servers, 1, T0)
        assert len({one.node.cluster_id for one in servers.values()}) == 1 and third.cluster_id
        await servers.stop(3)
        assert (await servers.start(3)).node.cluster_id == servers[1].node.cluster_id


@in_loop
async def test_data_of_another_cluster_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with servers_of(tmp_path, 1, 2) as servers:
        directory = servers.directory(3)
        directory.mkdir()
        keep_identity(str(directory), Identity(3, ANOTHER))
        third = (await servers.start(3)).node
        for name in ("t", "own"):
            await third.topics.create(name, 1)
        await servers[1].node.quorum.promote()
        await servers[1].node.topics.create("t", 1)
        await until(lambda: servers[2].node.topics.get("t") is not None)
        with caplog.at_level(logging.ERROR, "kafkalog.server.node.following"):
            await until(lambda: "this node cannot follow the leader" in caplog.text)
        assert await write(servers[1], T0, b"one") == 0
        text = caplog.text
        assert ANOTHER in text and servers[1].node.cluster_id in text and str(directory) in text
        assert "empty directory" in text
        assert third.topics.get("own") is not None and third.store.get(TopicPartition("t", 0)).log_end_offset == 0
        assert not third.quorum.leads and third.cluster_id == ANOTHER
