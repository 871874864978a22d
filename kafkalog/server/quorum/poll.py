"""Requests of a node to all others of its set: for the leader, and for their votes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.cluster_id import OtherCluster
from kafkalog.server.quorum.decisions import Ballot
from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.quorum.quorum import Quorum
    from kafkalog.server.wire.writer import Tree

_LOG: Final = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")
LastEpochs = Mapping[TopicPartition, int]
"""Partitions that a voter has more of, with the last epoch of each there."""
ASK_SECONDS: Final = 5.0
"""Time limit for an answer from a node of the set."""


class Peers(Protocol):
    """Connections to the other nodes of the set."""

    async def ask(self, node_id: int, api_key: int, request: Tree) -> Any:
        """Return the response as a named tuple with kio's names. KafkalogError, OSError if there is none."""

    def is_private(self, node_id: int) -> bool:
        """Return True if requests to the node use TLS or the loopback interface."""

    async def close(self) -> None:
        """Close the connections; no more requests follow."""


class NoPeers:
    """Peers of a node without connections to them."""

    async def ask(self, node_id: int, api_key: int, request: Tree) -> Any:
        """Raise ConnectionRefusedError."""
        raise ConnectionRefusedError(f"no connection to node {node_id}")

    def is_private(self, node_id: int) -> bool:
        """Return False."""
        return False

    async def close(self) -> None:
        """Do nothing."""


class Poll:
    """Queries peers on behalf of this node. The event loop owns it."""

    def __init__(self, node: Node, quorum: Quorum) -> None:
        self._node = node
        self._quorum = quorum

    async def leaders(self) -> dict[int, tuple[int, int]]:
        """Return the (term, leader) that each other node reports; only nodes that answer."""
        answers = await self._ask_all(messages.DESCRIBE_QUORUM, lambda _: messages.describe_request())
        seen = {other: _read(messages.read_described, answer) for other, answer in answers.items()}
        return {other: found for other, found in seen.items() if found is not None}

    async def leaders_with(self, known: tuple[int, int]) -> dict[int, tuple[int, int]]:
        """Return the reports of `leaders`, after asking a leader that did not answer a second time.

        `known` is the (term, leader) that this node knows. Without the leader's report it would not be asked to hand
        over, and a leader that only answers late would lose records with acks=1.
        """
        found = await self.leaders()
        leader = max((one for one in (known, *found.values()) if one[1] != NO_NODE), default=known)[1]
        if leader in self._quorum.others(self._node.node_id) and leader not in found:
            try:
                report = _read(messages.read_described, await self.describe(leader))
            except (KafkalogError, OSError, TimeoutError) as error:
                _LOG.warning("node %d led and does not answer: %s", leader, error or type(error).__name__)
            else:
                found |= {} if report is None else {leader: report}
        return found

    async def is_agreed_by(self, mine: tuple[int, int], needed: int) -> bool:
        """Return True if at least `needed` nodes, including this one, report the (term, leader) in `mine`.

        It returns as soon as enough nodes agree, without waiting for late answers.
        """
        agreed = 1
        left = {
            asyncio.ensure_future(self.describe(other))
            for other in self._quorum.others(self._node.node_id)
        }
        try:
            while left and agreed < needed:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    with suppress(KafkalogError, OSError, TimeoutError):
                        agreed += _read(messages.read_described, one.result()) == mine
        finally:
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return agreed >= needed

    async def votes(self, ballot: Ballot, *, is_pre_vote: bool) -> tuple[set[int], dict[int, LastEpochs]]:
        """Return the nodes that vote for this one, and the partitions that each other node lets it copy."""
        cluster = self._quorum.cluster
        cluster_id = cluster.known_id if is_pre_vote else cluster.proposed_id
        answers = await self._ask_all(
            messages.VOTE, lambda other: messages.vote_request(ballot, other, cluster_id, is_pre_vote=is_pre_vote)
        )
        for one, answer in answers.items():
            if answer.error_code == OtherCluster.code:
                _LOG.warning("node %d has data of another cluster than %s and never votes", one, cluster_id or "none")
        seen = {one: _read(messages.read_vote, answer) for one, answer in answers.items()}
        votes = {self._node.node_id, *(one for one, vote in seen.items() if vote is not None and vote[0])}
        ahead = {one: _read(messages.read_ahead, answers[one]) for one in answers if one not in votes}
        return votes, {one: found for one, found in ahead.items() if found}

    async def notify(self, other: int, state: QuorumState) -> None:
        """Notify another node that this one leads. If it does not answer, it learns of the leader later."""
        try:
            await self.ask(
                other, messages.BEGIN_QUORUM_EPOCH, messages.begin_request(state, other, self._node.cluster_id)
            )
        except (KafkalogError, OSError, TimeoutError) as error:
            _LOG.info("node %d was not notified that this node leads: %s", other, error)

    async def describe(self, other: int, seconds: float = ASK_SECONDS) -> Any:
        """Ask one node who leads. Errors as in `ask`."""
        return await self.ask(other, messages.DESCRIBE_QUORUM, messages.describe_request(), seconds)

    async def ask(self, other: int, key: int, request: Tree, seconds: float = ASK_SECONDS) -> Any:
        """Return the answer of one node. KafkalogError, OSError, TimeoutError."""
        async with asyncio.timeout(seconds):  # `wait_for` of 3.11 may swallow the cancellation of this task
            return await self._quorum.peers.ask(other, key, request)

    async def _ask_all(self, key: int, request: Callable[[int], Tree]) -> dict[int, Any]:
        """Return the answers by node, from the nodes that answer in time."""
        others = self._quorum.others(self._node.node_id)
        asked = (self.ask(other, key, request(other)) for other in others)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = {}
        for other, answer in zip(others, answers, strict=True):
            if isinstance(answer, Exception):
                _LOG.info("node %d did not answer: %s", other, answer or type(answer).__name__)
            elif not isinstance(answer, BaseException):
                found[other] = answer
        return found


def _read(read: Callable[[A], T], answer: A) -> T | None:
    try:
        return read(answer)
    except (ValueError, AttributeError) as error:
        _LOG.info("invalid answer: %s", error)
        return None
