"""One cluster id for all nodes of a set.

A node that was in no cluster yet has none. The first leader creates the id. A voter adopts the id of its candidate, so
that a majority knows it before anyone leads. The other nodes adopt the leader's id when they first reach it. A
directory of another cluster is rejected: it would lose its topics in favour of the leader's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.client.errors import PeerRefused
from kafkalog.server.node.store import Identity, keep_identity
from kafkalog.storage.partition_metadata import new_topic_id

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.server.client.cluster import PeerTopic
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
_HINT: Final = (
    "start this node in an empty directory, into which it copies the set's topics; or remove it from"
    " kafkalog.replicas, and it keeps its own topics"
)


class OtherCluster(PeerRefused):
    """Two nodes that name each other in `kafkalog.replicas` have data of different clusters."""

    code = 104


class ClusterId:
    """The cluster id that a node knows: `node.cluster_id`, "" for none. The event loop owns it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._new_id = ""
        self._turn = asyncio.Lock()

    @property
    def proposed_id(self) -> str:
        """Id under which this node leads: its own, or a new one if it has none."""
        if not self._node.cluster_id and not self._new_id:
            self._new_id = new_topic_id()
        return self._node.cluster_id or self._new_id

    @property
    def known_id(self) -> str:
        """Its own id, or the one that it proposed: voters whose answers were lost have that; "" for neither."""
        return self._node.cluster_id or self._new_id

    async def lead(self) -> None:
        """Store the proposed id. StorageError."""
        await self._keep(self.proposed_id)

    def check(self, theirs: str | None, sender: str) -> None:
        """Raise OtherCluster if `theirs` is the id of another cluster than this node's."""
        if theirs and self._node.cluster_id not in ("", theirs):
            raise self._refused(theirs, sender)

    def check_candidate(self, theirs: str | None) -> None:
        """Raise OtherCluster if this node may not vote for a candidate of that cluster, None or "" for none.

        A node with topics and without an id may have another origin than the candidate.
        """
        mine = self._node.cluster_id
        if (theirs or "") != mine and (mine or self.topic_ids()):
            raise self._refused(theirs or "", "a candidate")

    async def take(self, theirs: str | None, sender: str, topics: Mapping[str, PeerTopic] | None = None) -> None:
        """Store this id if the node has none. OtherCluster, StorageError.

        `topics` are those of the other node, by name: each topic here must exist there, with the same id.
        """
        self.check(theirs, sender)
        if not theirs or self._node.cluster_id:
            return
        own = self.topic_ids()
        if any(name not in (topics or {}) or (topics or {})[name].id != topic_id for name, topic_id in own.items()):
            raise self._refused(theirs, sender)
        await self._keep(theirs)

    def topic_ids(self) -> dict[str, UUID | None]:
        """Return the id of each topic of this node, by name."""
        return {topic.name: topic.id for topic in self._node.topics.each()}

    async def _keep(self, cluster_id: str) -> None:
        async with self._turn:
            node = self._node
            if node.cluster_id:
                return
            directory = self._directory()
            await node.run(keep_identity, directory, Identity(node.node_id, cluster_id), node.store.fs)
            node.cluster_id = cluster_id
            _LOG.info("this node belongs to cluster %s", cluster_id)

    def _directory(self) -> str:
        return str(next(one.path for one in self._node.store.online))

    def _refused(self, theirs: str, sender: str) -> OtherCluster:
        mine = self._node.cluster_id
        here = f"has data of cluster {mine}" if mine else "has topics and no cluster id"
        there = f"belongs to cluster {theirs}" if theirs else "has no cluster id"
        return OtherCluster(f"{sender} {there}, but this directory {here}", path=self._directory(), hint=_HINT)
