"""One cluster id for all nodes of a set.

A node that was in no cluster yet has none. The first leader makes it; who votes for a candidate has the candidate's
from then on, so that a majority knows it before anybody leads, and all others take the leader's when they first reach
it. A directory of another cluster is refused: it would give up its topics for those of the leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.server.client.errors import PeerRefused
from kafkalog.server.store import Identity, keep_identity
from kafkalog.storage.partition_metadata import new_topic_id

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_LOG: Final = logging.getLogger(__name__)
_HINT: Final = (
    "a copy of the set's topics begins in an empty directory: start this node in one; or take the node out of"
    " kafkalog.replicas, and its topics stay as they are"
)


class OtherCluster(PeerRefused):
    """Two nodes that name each other in `kafkalog.replicas` have data of different clusters."""

    code = 104


class ClusterId:
    """What a node of a set knows of its cluster's id, which is `node.cluster_id`, "" for none. It belongs to the
    loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._made = ""
        self._turn = asyncio.Lock()

    @property
    def offered(self) -> str:
        """The id that this node leads with: its own, or a new one where it has none."""
        if not self._node.cluster_id and not self._made:
            self._made = new_topic_id()
        return self._node.cluster_id or self._made

    async def lead(self) -> None:
        """Return when what was offered is kept. StorageError."""
        await self._keep(self.offered)

    def check(self, theirs: str | None, who: str) -> None:
        """Return where this node may have to do with one of that cluster; OtherCluster."""
        if theirs and self._node.cluster_id not in ("", theirs):
            raise self._refused(theirs, who)

    def check_candidate(self, theirs: str | None) -> None:
        """Return where this node may vote for one of that cluster, None or "" for one that was in none; OtherCluster.

        A node without an id and with topics has another origin than the candidate, as far as anybody knows.
        """
        mine = self._node.cluster_id
        if (theirs or "") != mine and (mine or self._topics()):
            raise self._refused(theirs or "", "a candidate")

    async def take(self, theirs: str | None, who: str, topics: Mapping[str, Any] | None = None) -> None:
        """Have this id on disk, where this node has none. OtherCluster, StorageError.

        `topics` are those of the other node, by name: one that is here must be there, with its id.
        """
        self.check(theirs, who)
        if not theirs or self._node.cluster_id:
            return
        own = self._topics()
        if any(name not in (topics or {}) or (topics or {})[name].id != topic_id for name, topic_id in own.items()):
            raise self._refused(theirs, who)
        await self._keep(theirs)

    def _topics(self) -> dict[str, Any]:
        topics = self._node.topics
        return {name: topics.get(name).id for name in topics.names()}

    async def _keep(self, cluster_id: str) -> None:
        async with self._turn:
            node = self._node
            if node.cluster_id:
                return
            directory = self._directory()
            await node.run(keep_identity, directory, Identity(node.node_id, cluster_id), node.store.fs)
            node.cluster_id = cluster_id
            _LOG.info("this node is of cluster %s", cluster_id)

    def _directory(self) -> str:
        return str(next(one.path for one in self._node.store.online))

    def _refused(self, theirs: str, who: str) -> OtherCluster:
        mine = self._node.cluster_id
        here = f"has data of cluster {mine}" if mine else "has topics, and is of no cluster yet"
        there = f"is of cluster {theirs}" if theirs else "is of no cluster yet"
        return OtherCluster(f"{who} {there}, and this directory {here}", path=self._directory(), hint=_HINT)
