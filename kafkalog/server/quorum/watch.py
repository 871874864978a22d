"""Polling for the leader of a set.

A follower asks the leader, or all others while it knows no leader or gets no answer. A leader asks all others. So a
leader that was cut off steps down as soon as it reaches a node with newer information.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.file import NO_NODE

if TYPE_CHECKING:
    from kafkalog.server.quorum.quorum import Quorum

_LOG: Final = logging.getLogger(__name__)
FOLLOWER_SECONDS: Final = 0.1
LEADER_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 2.0


async def watch(quorum: Quorum, node_id: int) -> None:
    """Poll forever and apply each answer at once."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADER_SECONDS if quorum.leads else FOLLOWER_SECONDS):
                await quorum.news.wait()
        quorum.news.clear()
        leader = quorum.leader
        others = quorum.others(node_id)
        if leader in others and await _ask(quorum, leader, node_id):
            continue
        await asyncio.gather(*(_ask(quorum, other, node_id) for other in others if other != leader))


async def _ask(quorum: Quorum, other: int, node_id: int) -> bool:
    """Ask one node. Return True if it answered."""
    try:
        answer = await quorum.poll.describe(other, ANSWER_SECONDS)
        term, leader, changes = messages.read_changes(answer)
        state = await quorum.learn_leader(term, leader)
    except (KafkalogError, OSError, TimeoutError, ValueError, AttributeError) as error:
        _LOG.debug("node %d did not report the leader: %s", other, error)
        return False
    is_of_leader = other == state.leader != NO_NODE and not quorum.leads
    quorum.nodes.learn(getattr(answer, "nodes", ()), quorum.others(node_id) if is_of_leader else (other,))
    if is_of_leader:
        quorum.take_leaders_changes(changes)
    return True
