"""Commands of a test to a server process, one at a time: the methods of `Commands`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, KafkalogError, TopicExists
from kafkalog.server.groups.offsets import Place
from kafkalog.server.quorum.poll import Peers
from kafkalog.server.settings.client_metrics import check_subscription
from kafkalog.server.settings.kinds import CLIENT_METRICS
from kafkalog.testing.inside.recorder import Recorder
from kafkalog.testing.inside.rules import NodeRules, rule_of
from kafkalog.testing.inside.snapshots import Reopening
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.registry.listener import Registry
    from kafkalog.server.serving import Server
    from kafkalog.testing.inside.clock import MovableTimers, MovedClock
    from kafkalog.testing.inside.counts import RuleCounts
    from kafkalog.testing.inside.disk import TestDisk

_TIMED_JOBS: Final = ("kafka-log-retention", "PeriodicProducerExpirationCheck", "kafka-delete-logs")
"""Jobs of the store that a moved clock makes due at once."""


class Commands:
    """The calls of a test to one server. Used only in the loop's thread."""

    def __init__(
        self,
        server: Server,
        directory: str,
        counts: RuleCounts,
        clock: MovedClock,
        timers: MovableTimers,
        disk: TestDisk,
        registry: Registry | None = None,
    ) -> None:
        self._server = server
        self._registry = registry
        self._timers = timers
        self._disk = disk
        self._directory = directory
        self._rules = NodeRules(server, counts, timers)
        self._reopening = Reopening(server, self._rules, clock, timers, disk, directory)

    async def run(self, name: str, given: dict[str, Any]) -> Any:
        """Run the command of this name and return its result. Raises KafkalogError, OSError."""
        method = getattr(self, f"do_{name}", None)
        if method is None:
            raise IllegalArgument(f"there is no command {name!r}")
        return await method(**given)

    async def do_add_rule(self, **rule: Any) -> None:
        """Apply a rule."""
        self._rules.add(rule_of(rule))

    async def do_remove_rule(self, number: int) -> None:
        """End a rule."""
        self._rules.remove(number)

    async def do_record(self, number: int, path: str, peers: bool) -> None:
        """Start a recorder."""
        self._rules.recorders[number] = Recorder(path, self._server.node.node_id, peers=peers)
        self._rules.update()

    async def do_end_record(self, number: int) -> None:
        """End a recorder."""
        recorder = self._rules.recorders.pop(number, None)
        if recorder is not None:
            recorder.close()
        self._rules.update()

    async def do_full_disk(self, is_full: bool) -> None:
        """Start or stop failing calls that need space."""
        self._disk.is_full = is_full

    async def do_refuse(self, is_refusing: bool) -> None:
        """Refuse new connections, or accept them again."""
        for listener in self._server.network.listeners.values():
            if is_refusing:
                listener.refuse()
            else:
                listener.end_refusal()

    async def do_drop_connections(self) -> None:
        """Close all connections of clients and other nodes."""
        for channel in list(self._server.network.channels.values()):
            channel.cancel()

    async def do_drop_links(self, ports: Sequence[int]) -> None:
        """End this node's own connections to the nodes with these ports."""
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    _end_link(int(name), ports)

    async def do_advance(self, ms: int) -> None:
        """Move the clock ahead and run all timers and jobs that are due by then."""
        await self._timers.advance(ms)
        node = self._server.node
        for name in _TIMED_JOBS:
            for job in node.store.jobs:
                if job.name == name:
                    await node.run(job.run)

    async def do_snapshot(self, path: str) -> bool:
        """Copy the directory to a file at this path; return True if this node leads."""
        await self._reopening.snapshot(path)
        return self._server.node.quorum.leads

    async def do_close_logs(self) -> None:
        """Close the logs for a restore; requests wait until they are open again."""
        if self._registry is not None:
            await self._registry.pause()
        await self._reopening.close()

    async def do_open_logs(self, term: int, leader: int) -> None:
        """Open the logs again, in the term in which this node or another one leads."""
        await self._reopening.open(term, leader)
        if self._registry is not None:
            self._registry.resume()

    async def do_restore(self, path: str, term: int, leader: int) -> None:
        """Close the logs, restore the directory from the file at this path, and open them."""
        try:
            await self.do_close_logs()
            await self._reopening.restore(path)
        finally:
            await self.do_open_logs(term, leader)

    async def do_state(self) -> dict[str, Any]:
        """Return the leader known to this node, and for each partition the number of other nodes with all records."""
        node = self._server.node
        in_sync = 1 << 30
        if node.quorum.leads:
            for key in tuple(node.store.logs):
                with suppress(KafkalogError):
                    in_sync = min(in_sync, len(node.replicas.find(key).role.isr))
        return {
            "leads": node.quorum.leads, "leader": node.quorum.leader, "term": node.quorum.state.term,
            "topics": {topic.name: topic.partitions for topic in node.topics.each()}, "in_sync": in_sync,
        }  # fmt: skip

    async def do_promote(self, timeout_ms: int, silent: Sequence[int]) -> None:
        """Make this node the leader, without waiting for answers of the nodes that are `silent`."""
        quorum = self._server.node.quorum
        if quorum.leads:
            return
        peers = quorum.peers
        quorum.peers = _Answering(peers, frozenset(silent))
        try:
            await asyncio.wait_for(quorum.promote(), timeout_ms / 1000)
        finally:
            quorum.peers = peers

    async def do_create_topics(self, topics: dict[str, int], settings: dict[str, object]) -> None:
        """Create the topics that are missing."""
        known = self._server.node.topics
        for name, partitions in topics.items():
            if known.get(name) is None:
                with suppress(TopicExists):  # a client creates it as well
                    await known.create(name, partitions, settings)
        await self._known_to_others()

    async def do_delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics; missing ones are ignored."""
        known = self._server.node.topics
        await known.delete_all([name for name in topics if known.get(name) is not None])
        await self._known_to_others()

    async def _known_to_others(self) -> None:
        """Wait, as the answer to an administrator does: every later leader then has the changed topics."""
        wait = self._server.node.before_answers.get("create_topics")
        if wait is not None:
            await wait(None)

    async def do_subscribe(self, subscription: str, settings: dict[str, str]) -> None:
        """Set or replace a subscription to metrics of clients."""
        dynamic = self._server.node.dynamic
        check_subscription(subscription, settings)
        gone = dict.fromkeys(dynamic.kept(CLIENT_METRICS, subscription))
        await dynamic.change_kept(CLIENT_METRICS, subscription, {**gone, **settings})

    async def do_subscription(self, subscription: str) -> dict[str, str]:
        """Return the settings of a subscription to metrics of clients, as this node knows them."""
        return dict(self._server.node.dynamic.kept(CLIENT_METRICS, subscription))

    async def do_ends(self, topic: str) -> dict[str, list[int]]:
        """Return the start, the high watermark and the last stable offset of each partition of a topic."""
        node = self._server.node
        found = node.topics.get(topic)
        rows = {}
        for index in range(0 if found is None else found.partitions):
            state = node.replicas.find(TopicPartition(topic, index)).log.state
            rows[str(index)] = [state.log_start_offset, state.high_watermark, state.last_stable_offset]
        return rows

    async def do_committed(self, group: str) -> list[tuple[str, int, int]]:
        """Return the committed offsets of a group: topic, partition, offset."""
        node = self._server.node
        await node.groups.loaded()
        code = await node.groups.table.ready(group, is_written=False)
        if code:
            return []
        found: dict[Place, Any] = node.groups.offsets.all_of(group)
        return [(place[0], place[1], one.offset) for place, one in found.items()]


class _Answering(NamedTuple):
    """Connections to the other nodes, except those known not to answer."""

    peers: Peers
    silent: frozenset[int]

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, object]) -> Any:
        """Return the response of a node. Raise ConnectionRefusedError for a silent one."""
        if node_id in self.silent:
            raise ConnectionRefusedError(f"node {node_id} is paused or cut off")
        return await self.peers.ask(node_id, api_key, request)

    def is_private(self, node_id: int) -> bool:
        """Return True if requests to the node use TLS or the loopback interface."""
        return self.peers.is_private(node_id)

    async def close(self) -> None:
        """Close the connections."""
        await self.peers.close()


def _end_link(descriptor: int, ports: Sequence[int]) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername()[1] in ports:
            sock.shutdown(socket.SHUT_RDWR)
