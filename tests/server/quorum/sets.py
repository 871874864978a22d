"""Replica sets of nodes in this process: their calls to each other go through bytes, and links can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kafkalog.server.node.node import Node
from kafkalog.server.node.store import NODE_FILE, Identity, keep_identity
from kafkalog.server.quorum.decisions import METADATA
from kafkalog.server.quorum.quorum import Quorum
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.wire.versions import APIS
from kafkalog.types import TopicPartition
from tests.server.nodes import call, node_for

T0 = TopicPartition("t", 0)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Return once it is so."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


class Set:
    """Nodes by number, those that run, and the links between them that are cut."""

    def __init__(self, path: Path, count: int, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.nodes: dict[int, Node] = {}
        self.cut: set[int] = set()
        self.cluster_id = CLUSTER_ID  # what the directories are of; "" for new ones
        self.asked: list[tuple[int, int, str]] = []
        self._settings = settings
        self._names = ",".join(f"{number}@host{number}:{9090 + number}" for number in range(1, count + 1))
        self._running: dict[int, AsyncExitStack] = {}

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def quorum(self, number: int) -> Quorum:
        found = self.nodes[number].quorum
        assert isinstance(found, Quorum)
        return found

    async def start(self, number: int) -> Node:
        """Start the node, on the directory that it has."""
        stack = self._running[number] = AsyncExitStack()
        directory = self.path / str(number)
        directory.mkdir(exist_ok=True)
        if self.cluster_id and not (directory / NODE_FILE).exists():
            keep_identity(str(directory), Identity(number, self.cluster_id))
        settings = {"node_id": number, "kafkalog_replicas": self._names, **self._settings}
        def prepare(node: Node) -> None:
            node.quorum.peers = Peers(self, number)
            node.endpoints["PLAINTEXT"] = (f"host{number}", 9090 + number)

        found = node_for(directory, prepare=prepare, **settings)
        self.nodes[number] = await stack.enter_async_context(found)
        quorum = self.quorum(number)  # a follower has no way to the leader here: what it would copy is done at once
        quorum.before_taking_over[:] = [lambda: self._catch_up(number)]
        quorum.copy_ahead = lambda voter, ahead: self._copy(number, voter, ahead)
        return self.nodes[number]

    async def _catch_up(self, number: int) -> None:
        leader = self.quorum(number).leader
        if leader in self.nodes:
            await self._copy(number, leader, {METADATA: 0})

    async def _copy(self, number: int, voter: int, ahead: Mapping[TopicPartition, int]) -> None:
        """Take the version of the metadata; tests make the topics themselves. Records have no way to be copied."""
        if METADATA in ahead:
            await self.quorum(number).metadata.finish(self.quorum(voter).metadata.versions)
        if ahead.keys() - {METADATA}:
            raise ConnectionRefusedError("nodes have no way to each other's logs here")

    async def stop(self, number: int) -> None:
        del self.nodes[number]
        await self._running.pop(number).aclose()

    async def promote(self, number: int, *, is_forced: bool = False) -> None:
        """Let a node lead, and wait until its coordinators run."""
        await self.quorum(number).promote(is_forced=is_forced)
        await wait_until(lambda: not self[number].leaders_calls)

    async def close(self) -> None:
        for number in tuple(self.nodes):
            await self.stop(number)


class Peers:
    """The way of one node to the others."""

    def __init__(self, nodes: Set, number: int) -> None:
        self._set = nodes
        self._number = number

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, Any]) -> Any:
        nodes = self._set
        if node_id not in nodes.nodes or {node_id, self._number} & nodes.cut:
            raise ConnectionRefusedError(f"node {node_id} is not there")
        api = APIS[api_key]
        nodes.asked.append((self._number, node_id, api.name))
        return await call(nodes[node_id], api.name, api.newest, request)

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def set_of(path: Path, count: int = 3, **settings: Any) -> AsyncIterator[Set]:
    """Yield so many started nodes of one set, without a leader yet."""
    nodes = Set(path, count, settings)
    try:
        for number in range(1, count + 1):
            await nodes.start(number)
        yield nodes
    finally:
        await nodes.close()


async def fetch(leader: Node, follower: int, offset: int, key: TopicPartition = T0, **more: Any) -> FetchResult:
    """A follower's fetch of one partition, which does not wait. It has begun the leader's epoch."""
    more.setdefault("last_fetched_epoch", leader.replicas.find(key).leader_epoch)
    params = FetchParams(0, 1, 1 << 20, "log_end", follower)
    results: list[FetchResult] = await leader.replicas.fetch(params, [FetchPartition(key, offset, 1 << 20, **more)])
    return results[0]
