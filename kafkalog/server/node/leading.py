"""Starts and stops the leader's work on a node of a replica set.

Roles of partitions change at once. New coordinators are created each time, and read what another leader wrote meanwhile
from the logs, as at a start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError, NotLeaderOrFollower
from kafkalog.server.node.parts import OF_THE_LEADER, make_part
from kafkalog.server.quorum.errors import NotController, NotCoordinator
from kafkalog.server.settings.kinds import is_of_one_node

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.requests.context import RequestContext
    from kafkalog.server.wire.pieces import Pieces

_LOG: Final = logging.getLogger(__name__)
_COORDINATORS: Final = (
    "add_offsets_to_txn", "add_partitions_to_txn", "consumer_group_describe", "consumer_group_heartbeat",
    "delete_groups", "describe_groups", "describe_transactions", "end_txn", "heartbeat",
    "join_group", "leave_group", "offset_commit", "offset_delete", "offset_fetch", "sync_group", "txn_offset_commit",
    "alter_share_group_offsets", "delete_share_group_offsets", "describe_share_group_offsets", "share_group_describe",
    "share_group_heartbeat",
)  # fmt: skip
_LEADERS: Final = ("share_acknowledge", "share_fetch")
CONTROLLERS: Final = (
    "alter_client_quotas", "alter_configs", "alter_user_scram_credentials", "create_acls", "create_partitions",
    "create_topics", "delete_acls", "delete_topics", "incremental_alter_configs",
    "update_features",
)  # fmt: skip
_SETTINGS: Final = ("alter_configs", "incremental_alter_configs")
REFUSED: Final[Mapping[str, type[KafkalogError]]] = {
    **dict.fromkeys(_COORDINATORS, NotCoordinator), **dict.fromkeys(CONTROLLERS, NotController),
    **dict.fromkeys(_LEADERS, NotLeaderOrFollower),
}  # fmt: skip
"""Calls that only the leader answers, and the error that sends clients elsewhere."""
USUAL_TIMEOUT_MS: Final = 30_000
"""Time a response waits for a majority if the request has no timeout, as brokers wait for their controller."""
RETRY_SECONDS: Final = 1.0
"""Wait before coordinators that could not start are started again; it doubles up to `MAX_RETRY_SECONDS`."""
MAX_RETRY_SECONDS: Final = 30.0
WHILE_HANDING_OVER: Final[Mapping[str, type[KafkalogError]]] = dict.fromkeys(CONTROLLERS, NotController)
"""Calls that a leader rejects during a handover to another node."""


class Leading:
    """Runs the coordinators of a node while it leads. Does nothing on a single node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._led_term: int | None = None  # term of the running coordinators
        self._wait_s = RETRY_SECONDS
        self._is_stopped = False
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start reacting to changes of the quorum."""
        if self._node.quorum.replica_set is not None:
            self._node.quorum.on_change(self._on_quorum_change)
            if len(self._node.quorum.replica_set) > 1:
                self._node.before_answers = dict.fromkeys(CONTROLLERS, self._replicated)
                self._node.forwards = dict.fromkeys(CONTROLLERS, self._forward)
                self._node.is_own = dict.fromkeys(_SETTINGS, is_of_one_node)
            self._node.quorum.handover.on_change = self._on_handover
            self._on_quorum_change()

    async def stop(self) -> None:
        """Stop the coordinators; later changes of the quorum are ignored."""
        self._is_stopped = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end()

    async def _replicated(self, request: object) -> None:
        """Wait until a majority has this node's changes, so that every later leader has them.

        Raises as `MetadataVersion.replicated`.
        """
        wait_ms = getattr(request, "timeout", None)
        await self._node.quorum.metadata.replicated(USUAL_TIMEOUT_MS if wait_ms is None else wait_ms)

    async def _forward(self, context: RequestContext, frame: bytearray) -> Pieces | None:
        """Return the leader's response to a client's request; None if there is none."""
        from kafkalog.server.requests.forwarding import forward  # not needed by a node that is alone

        return await forward(self._node, context, frame)

    def _on_quorum_change(self) -> None:
        node = self._node
        if self._is_stopped:
            return
        node.leaders_calls = REFUSED  # until the coordinators of this term run
        node.replicas.take_roles()
        self._wait_s = RETRY_SECONDS
        self._later(self._follow())

    def _later(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_handover(self) -> None:
        node = self._node
        if node.quorum.is_handing_over and not node.leaders_calls:
            node.leaders_calls = WHILE_HANDING_OVER
        elif not node.quorum.is_handing_over and node.leaders_calls is WHILE_HANDING_OVER:
            node.leaders_calls = {}

    async def _follow(self) -> None:
        async with self._lock:
            quorum = self._node.quorum
            term = quorum.state.term if quorum.leads else None
            if term != self._led_term:
                await self._end()
            if term is not None and term != self._led_term:
                self._led_term = term
                try:
                    await self._begin()
                except Exception:
                    _LOG.exception("this node leads, but its coordinators cannot start: again in %g s", self._wait_s)
                    await self._end()
                    self._later(self._follow_again(self._wait_s))
                    self._wait_s = min(2 * self._wait_s, MAX_RETRY_SECONDS)
                    return
            if quorum.leads and quorum.state.term == self._led_term:
                self._node.leaders_calls = {}

    async def _follow_again(self, wait_s: float) -> None:
        """Start the coordinators that could not start, unless a change of the quorum did so meanwhile."""
        await asyncio.sleep(wait_s)
        if self._led_term is None:
            await self._follow()

    async def _begin(self) -> None:
        for name in OF_THE_LEADER:
            part = make_part(self._node, name)
            self._node.parts[name] = part
            await part.start()

    async def _end(self) -> None:
        led_term, self._led_term = self._led_term, None
        for name in reversed(OF_THE_LEADER) if led_term is not None else ():
            try:
                await self._node.parts[name].stop()
            except Exception:
                _LOG.exception("cannot stop the %s", name)
            make_part(self._node, name)  # discard their state
