"""Requests that a node forwards to its leader for a client: creation of topics on first use.

A client may keep asking a node that does not lead. The node that receives the forwarded request may have another leader
by then and asks that one. The term of that leader is always later, so requests never go in circles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.client.cluster import METADATA, metadata_request
from kafkalog.server.quorum.file import NO_NODE
from kafkalog.server.quorum.watch import ANSWER_SECONDS

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


async def create_on_leader(node: Node, names: Sequence[str]) -> None:
    """Ask the leader to create missing topics, according to its own settings.

    If the leader is not available nothing is created, and the client, which gets an unknown-topic error, asks again.
    """
    quorum = node.quorum
    leader = quorum.leader
    if not names or quorum.replica_set is None or leader in (NO_NODE, node.node_id):
        return
    # a task, since a request may run outside of one, where `asyncio.timeout` does not work
    await asyncio.get_running_loop().create_task(_ask(node, leader, names))


async def _ask(node: Node, leader: int, names: Sequence[str]) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await node.quorum.peers.ask(leader, METADATA, metadata_request(names, may_create=True))
    except (KafkalogError, OSError, TimeoutError) as error:
        _LOG.debug("cannot ask node %d to create %s: %s", leader, ", ".join(names), error)
