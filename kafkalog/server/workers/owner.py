"""A worker's part of its node: its topics, and the way to the main process."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.config.keys import value_text
from kafkalog.errors import KafkalogError
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.stored_topics import StoredTopics
from kafkalog.server.node.topic import Topic, uuid_of
from kafkalog.server.node.topics import Topics
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.requests.context import CLOSE, Close, RequestContext
from kafkalog.server.security.state import parse_state
from kafkalog.server.settings.features import parse_features
from kafkalog.server.wire.versions import ALONE
from kafkalog.server.workers.answers import is_pushed
from kafkalog.server.workers.link import Link, LinkLost
from kafkalog.server.workers.share_states import WorkerStates, key_values
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.known_topics import KnownTopics
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.pool import Run
    from kafkalog.server.settings.config import ServerConfig
    from kafkalog.server.share.state import ShareKey
    from kafkalog.server.wire.pieces import Pieces
    from kafkalog.server.workers.spread_store import SpreadStore

_LOG: Final = logging.getLogger(__name__)
OWN_CALLS: Final = frozenset({
    "alter_replica_log_dirs", "api_versions", "delete_records", "describe_log_dirs", "describe_producers", "fetch",
    "list_offsets", "offset_for_leader_epoch", "produce", "sasl_authenticate", "sasl_handshake", "share_acknowledge",
    "share_fetch", "write_txn_markers",
})  # fmt: skip
"""Calls that a worker answers; it passes all others on."""


class _StoredHere(StoredTopics):
    def _create_missing(self, topic: Topic) -> None:
        """Create nothing: other partitions lie with other workers."""


class WorkerTopics(Topics):
    """The topics of which this worker has partitions. The main process decides; its calls change them."""

    def __init__(
        self, store: LogManager | SpreadStore, run: Run, numbers: ServerConfig, known: KnownTopics | None = None
    ) -> None:
        super().__init__(store, run, numbers, known)
        self._stored = _StoredHere(store, known)

    def take(self, topic_id: str, name: str, total: int) -> None:
        """Show a topic that has new partitions here."""
        self._change(self.get(name), Topic(name, uuid_of(topic_id), total, False))

    async def drop(self, names: Sequence[str]) -> dict[str, KafkalogError]:
        """Delete the partitions of topics and return the errors by name; unknown topics have none."""
        return await self.delete_all([name for name in names if self.get(name) is not None])


class Owner:
    """The link of a worker to its main process, for the parts of its node. `number` is that of the worker."""

    def __init__(self, link: Link, number: int) -> None:
        self.number = number
        self.topics_class = WorkerTopics
        self.state: Mapping[str, Any] = {}
        """State that the main process sent last; `apply_state` puts it into effect."""
        self._link = link
        self._node: Node | None = None

    def attach(self, node: Node) -> None:
        """Pass on all calls of this node's clients that only the main process answers."""
        self._node = node
        self.apply_state()
        others = [api.name for api in ALONE.values() if api.name not in OWN_CALLS]
        node.forwards = dict.fromkeys(others, self.relay)
        node.leaders_calls = dict.fromkeys(others, NotController)

    def apply_state(self) -> None:
        """Use the main process's users, ACLs, quotas, features and settings. They are in memory only."""
        node, state = self._node, self.state
        assert node is not None
        node.credentials.file.state = parse_state(json.dumps(state["security"]).encode())
        node.features.current = parse_features(state["features"])
        node.dynamic.use_groups(state["groups"])
        settings, given = state["settings"], node.config.given()
        own = {name: value_text(given[name]) for name in given if is_pushed(node, name)}
        changes = {name: settings.get(name) for name in (*own, *settings) if own.get(name) != settings.get(name)}
        if changes:
            node.alter_config(changes)

    async def relay(self, context: RequestContext, frame: bytearray) -> Pieces | Close | None:
        """Return the main process's response to a client's request; None if it does not answer."""
        node, client = self._node, context.connection
        assert node is not None
        values = {
            "id": client.id, "listener": client.listener, "protocol": client.security_protocol,
            "host": client.peer_host, "port": client.peer_port, "principal": client.principal,
            "software": [client.software_name, client.software_version],
        }  # fmt: skip
        try:
            answer = await self._link.call("relay", values, bytes(frame))
        except LinkLost:
            return None
        if answer.values["closes"]:
            return CLOSE
        if answer.values["mute_ms"]:
            client.mute_until_ms = node.monotonic_ms() + answer.values["mute_ms"]
        return [answer.body]

    def stop(self) -> None:
        """Let clients whose requests wait in the main process ask another time. Changes of states are still stored."""
        self._link.abandon("relay")

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition],
        *, produce_version: int,
    ) -> Mapping[TopicPartition, int]:  # fmt: skip
        """Return what the transaction coordinator answers (FLOW-9); an error to retry while it cannot be asked."""
        values = {
            "transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": producer_epoch,
            "partitions": list(partitions), "version": produce_version,
        }  # fmt: skip
        try:
            answer = await self._link.call("verify", values)
        except KafkalogError as error:
            _LOG.warning("cannot verify a transaction: %s", error)
            return dict.fromkeys(partitions, int(ErrorCode.NOT_ENOUGH_REPLICAS))
        return dict(zip(partitions, answer.values["codes"], strict=True))

    def share_states(self, node: Node) -> WorkerStates:
        """Return the states of the node's share partitions, of which the main process has the log."""
        return WorkerStates(node, self._link)

    async def place_of_letters(self, key: ShareKey) -> tuple[TopicPartition, int]:
        """Ask the main process as `dead_letters.place_of_letters`."""
        answer = await self._link.call("share_letters", key_values(key))
        return TopicPartition(*answer.values["place"]), answer.values["max_bytes"]

    async def append_letters(self, place: TopicPartition, data: bytes) -> None:
        """Let the main process, or another worker, append dead letters. Errors of the append."""
        await self._link.call("share_append", {"place": place}, data)


def new_partitions(rows: Sequence[Mapping[str, Any]]) -> list[NewPartitions]:
    """Return the partitions to create of a call."""
    return [NewPartitions(one["topic"], one["id"], one["numbers"], one["settings"], one["total"]) for one in rows]
