"""What a node asks its leader for, because a client asked it: topics that are made when they are first used.

A client may ask one node of a set again and again, and that node need not be the one that leads. Who is asked may have
another leader by now, and asks that one: of a later term always, so that nobody is asked in a circle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.client.cluster import METADATA, metadata_request
from kafkalog.server.quorum.file import NOBODY
from kafkalog.server.quorum.watch import ANSWER_SECONDS

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_LOG: Final = logging.getLogger(__name__)


async def make_on_use(node: Node, names: Sequence[str]) -> None:
    """Let the leader make topics that are not there, as its own settings say. Where it cannot be asked nothing is made,
    and the client, which is told that there is no such topic, asks again."""
    quorum = node.quorum
    leader = quorum.leader
    if not names or quorum.replica_set is None or leader in (NOBODY, node.node_id):
        return
    # a task: a request's own steps may be taken outside of one, where there is no timeout
    await asyncio.get_running_loop().create_task(_ask(node, leader, names))


async def _ask(node: Node, leader: int, names: Sequence[str]) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await node.quorum.peers.ask(leader, METADATA, metadata_request(names, may_create=True))
    except (KafkalogError, OSError, TimeoutError) as error:
        _LOG.debug("node %d was not asked to make %s: %s", leader, ", ".join(names), error)
