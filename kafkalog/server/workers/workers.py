"""The workers of a server, as its main process has them: started, asked, and started again when they end.

A worker is a process with its own data directories and listener. Clients see it as a node that leads the
partitions in these directories. Everything else is answered by the main process: metadata, groups, transactions,
topics, settings, users.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog._version import version
from kafkalog.errors import IllegalState, KafkalogError, StorageError
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.server.node.leading import CONTROLLERS
from kafkalog.server.workers.answers import Answers, state_of
from kafkalog.server.workers.layout import MAIN, OF_MAIN, directories_of, settings_of
from kafkalog.server.workers.link import LinkLost, Message
from kafkalog.server.workers.share_calls import WorkerShares
from kafkalog.server.workers.spread_store import SpreadStore
from kafkalog.server.workers.worker_process import WorkerProcess
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.settings.config import ServerConfig
    from kafkalog.server.txns.markers import Marker
    from kafkalog.server.workers.forked import ForkedWorker

_LOG: Final = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 0.1
MOST_AGAIN_SECONDS: Final = 5.0
PUSH_SECONDS: Final = 10.0
"""Time limit of a call that does not wait for a disk."""
STOP_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A worker that ran for that long is started again at once; one that ends sooner, after a growing time."""


class Workers:
    """The workers 1 and above; the main process is worker 0. Used only in the loop's thread, but for `owners`.

    `owners` has the worker and the leader epoch of each partition that lies with a worker. It is replaced, never
    changed, so that threads may read it.
    """

    def __init__(
        self, config: ServerConfig, directories: Sequence[str], count: int,
        ports: Mapping[int, Mapping[str, int]] | None = None, forked: MutableMapping[int, ForkedWorker] | None = None,
        *, is_read_only: bool = False,
    ) -> None:  # fmt: skip
        self.config = config
        self.count = count
        self.owners: Mapping[TopicPartition, tuple[int, int]] = {}
        self.offline: set[int] = set()
        """Workers with an offline directory, which may have partitions that are not known."""
        self.remains: Mapping[int, Mapping[str, str]] = {}
        """For each worker the topics, with their ids, whose creation failed there; parts of them may exist. Replaced,
        never changed, as `owners`."""
        self.topics: dict[str, NewPartitions] = {}
        self.paths: dict[str, str] = {}
        self.least_producer_id = 0
        self._directories = directories
        self._processes: dict[int, WorkerProcess] = {}
        self._is_read_only = is_read_only
        self._forked = {} if forked is None else forked
        self.ports: dict[int, Mapping[str, int]] = dict(ports or {})
        """The port of each listener of each worker, which it also has after its next start."""
        self._advertised: dict[int, dict[str, tuple[str, int]]] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._node: Node | None = None
        self._pushed: Mapping[str, Any] = {}
        self._pushes = 0
        self.shares = WorkerShares(self)

    @property
    def node(self) -> Node:
        """The main process's node."""
        assert self._node is not None, "not started"
        return self._node

    @property
    def numbers(self) -> range:
        """The numbers of the workers beside the main process."""
        return range(MAIN + 1, self.count)

    def store_of(self, node: Node) -> SpreadStore:
        """Return the partitions of all workers as one store, for the node's topics."""
        return SpreadStore(node.store, self, asyncio.get_running_loop())

    # Start and end

    def start(self) -> None:
        """Start the processes, which open their logs meanwhile. OSError."""
        for number in self.numbers:
            self._start(number)

    async def open(self, node: Node) -> None:
        """Wait until each worker has opened its logs. IllegalState, StorageError."""
        self._node = node
        for number in self.numbers:
            self._take(number, await self._processes[number].opened())
        await node.run(self.store_of(node).list_topics)
        for number in self.numbers:
            await self._send_settings(number, (await self._processes[number].opened())["topics"])
        node.before_answers = dict.fromkeys(CONTROLLERS, self._state_pushed)

    def _start(self, number: int) -> None:
        process = self._processes[number] = WorkerProcess(number, Answers(lambda: self.node, number).answer)
        process.start({
            "number": number,
            "version": version,
            "directories": directories_of(self._directories, number, self.count),
            "settings": settings_of(self.config, number, self.ports.get(number)),
            "is_read_only": self._is_read_only,
            "level": logging.getLogger().getEffectiveLevel(),
        }, self._forked.pop(number, None))  # fmt: skip

    def _take(self, number: int, found: Mapping[str, Any]) -> None:
        """Take over which partitions a worker has. IllegalState if they do not fit those of the others."""
        if found["problem"]:
            raise IllegalState(found["problem"], hint=found["hint"])
        store = self.node.store
        owners = {key: owner for key, owner in self.owners.items() if owner[0] != number}
        for name, index, epoch in found["partitions"]:
            key = TopicPartition(name, index)
            if name in OF_MAIN:
                raise IllegalState(
                    f"{key} lies in a directory of worker {number}, and the main process writes that topic",
                    hint="serve with one worker, move it to the first directory (AlterReplicaLogDirs), and start again",
                )
            if key in owners or key in store.logs:
                raise IllegalState(f"{key} lies in the directories of two workers", hint="move one of them away")
            owners[key] = (number, epoch)
        for name, topic_id, total, settings in found["topics"]:
            known = store.topics.get(name)
            if known is not None and known.topic_id != topic_id:
                raise IllegalState(
                    f"topic {name} has another id in the directories of worker {number}",
                    hint="serve once with one worker: it sets the older one aside",
                )
            own = settings if known is None else known.settings
            self.topics[name] = NewPartitions(name, topic_id, (), own, total)
        self.paths |= found["paths"]
        self.owners = {**self.owners, **owners}  # with those that it should have
        self.offline = self.offline - {number} | ({number} if found["is_offline"] else set())
        self.least_producer_id = max(self.least_producer_id, found["producer_id"])

    async def begin(self) -> None:
        """Let the workers serve clients, and start those again that end from now on."""
        await asyncio.gather(*map(self._begin, self.numbers))
        self._keepers = [asyncio.get_running_loop().create_task(self._keep(number)) for number in self.numbers]

    async def _begin(self, number: int) -> None:
        process = self._processes[number]
        identity = {"node_id": self.node.node_id + number, "cluster_id": self.node.cluster_id}
        answer = await process.link.call("begin", {**state_of(self.node), **identity})
        self.ports[number] = answer.values["ports"]
        self._advertised[number] = {name: (host, port) for name, (host, port) in answer.values["addresses"].items()}
        process.is_ready = True

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        wait, since = AGAIN_SECONDS, loop.time()
        while True:
            await asyncio.shield(self._processes[number].ended)
            _LOG.error("worker %d ended; it is started again", number)
            if loop.time() - since > STEADY_SECONDS:
                wait = AGAIN_SECONDS
            try:
                await self._processes[number].end()
                await asyncio.sleep(wait)
                wait = min(2 * wait, MOST_AGAIN_SECONDS)
                await self._start_again(number)
            except Exception as error:  # try again after any error: nothing else starts it
                is_known = isinstance(error, KafkalogError | OSError)
                _LOG.error("worker %d cannot start: %s", number, error, exc_info=None if is_known else error)
                self._processes[number].kill()
            since = loop.time()

    async def _start_again(self, number: int) -> None:
        before = {key: owner for key, owner in self.owners.items() if owner[0] == number}
        self._start(number)
        found = await self._processes[number].opened()
        if not found["problem"]:
            found = await self._without_remains(number, found)
        self._take(number, found)
        if number not in self.offline:
            has = {TopicPartition(name, index) for name, index, _ in found["partitions"]}
            await self._create_again(number, before.keys() - has)
        await self._send_settings(number, found["topics"])
        await self._begin(number)

    async def _without_remains(self, number: int, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Delete what a worker has of topics whose creation failed there, and return what it has then."""
        failed, topics = self.remains.get(number, {}), self.node.store.topics
        ids = {name: topic_id for name, topic_id, *_ in found["topics"] if failed.get(name) == topic_id}
        gone = sorted(name for name, topic_id in ids.items()
                      if (known := topics.get(name)) is None or known.topic_id != topic_id)  # fmt: skip
        if gone:
            answer = await self.call(number, "delete", {"topics": gone})
            for name, text in answer.values["failures"].items():
                raise StorageError(f"topic {name}: {text}")
        self.remains = {one: names for one, names in self.remains.items() if one != number}
        kept = {kind: [one for one in found[kind] if one[0] not in gone] for kind in ("partitions", "topics")}
        return {**found, **kept, "paths": {name: one for name, one in found["paths"].items() if name not in gone}}

    async def _send_settings(self, number: int, topics: Iterable[Sequence[Any]]) -> None:
        """Change a worker's settings of topics to those of the main process, if a change has not reached it."""
        for name, _, _, settings in topics:
            entry = self.node.store.topics.get(name)
            if entry is not None and not entry.is_deleted and dict(entry.settings) != settings:
                await self.call(number, "alter", {"topic": name, "settings": dict(entry.settings)})

    async def _create_again(self, number: int, missing: Iterable[TopicPartition]) -> None:
        """Create the partitions that a worker was about to have when it ended."""
        topics: dict[str, list[int]] = {}
        for key in missing:
            topics.setdefault(key.topic, []).append(key.partition)
        rows = []
        for name, indexes in sorted(topics.items()):
            entry = self.node.store.topics.get(name)
            if entry is not None:
                _LOG.warning("worker %d lacks %d partitions of topic %s; creating them", number, len(indexes), name)
                rows.append({"topic": name, "id": entry.topic_id, "numbers": sorted(indexes),
                             "total": entry.partitions, "settings": dict(entry.settings)})  # fmt: skip
        if rows:
            answer = await self.call(number, "create", {"epoch": 0, "topics": rows})
            for name, text in answer.values["failures"].items():
                raise StorageError(f"topic {name}: {text}")

    async def stop(self) -> None:
        """Stop all workers in order: requests in progress are answered, logs are flushed and closed."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers = []
        self.shares.stop()
        await asyncio.gather(*(self._stop(one) for one in self._processes.values()))

    async def _stop(self, process: WorkerProcess) -> None:
        process.is_ready = False
        with suppress(KafkalogError, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.stop()
        await process.end()

    # Partitions

    def worker_of(self, key: TopicPartition) -> int:
        """Return the worker that has a partition, the main process for those of none."""
        return self.owners.get(key, (MAIN, 0))[0]

    def node_of(self, key: TopicPartition) -> int:
        """Return the node id of the process that has a partition."""
        return self.node.node_id + self.worker_of(key)

    def leader_of(self, key: TopicPartition) -> tuple[int, int, bool] | None:
        """Return the node id of the worker that has a partition, its epoch, and True if the worker serves clients."""
        owner = self.owners.get(key)
        if owner is None:
            return None
        return self.node_of(key), owner[1], self._processes[owner[0]].is_ready

    def counts(self, of_main: int) -> dict[int, int]:
        """Return the number of partitions of each worker that can get more, given that of the main process."""
        found = Counter(worker for worker, _ in self.owners.values())
        return {MAIN: of_main, **{number: found[number] for number in self.numbers if self.takes_changes(number)}}

    def takes_changes(self, number: int) -> bool:
        """Return True for a worker that runs; not for one that starts again and may have remains."""
        process = self._processes[number]
        return process.is_ready or (not self._keepers and process.link.is_open)

    def having(self, topics: Collection[str]) -> list[int]:
        """Return the workers with partitions of these topics."""
        return sorted({worker for key, (worker, _) in self.owners.items() if key.topic in topics})

    def kill(self, worker: int) -> None:
        """End a worker that does not answer, so that no change is made after it was given up."""
        _LOG.error("worker %d does not answer and is killed", worker)
        self._processes[worker].kill()

    def add(self, worker: int, keys: Iterable[TopicPartition], epoch: int) -> None:
        """Record new partitions of a worker."""
        self.owners = {**self.owners, **dict.fromkeys(keys, (worker, epoch))}

    def leave(self, worker: int, topics: Mapping[str, str]) -> None:
        """Record the topics, with their ids, whose creation failed in a worker."""
        self.remains = {**self.remains, worker: {**self.remains.get(worker, {}), **topics}}

    def forget(self, worker: int, topics: Collection[str]) -> None:
        """Record that a worker no longer has a partition of these topics."""
        names = frozenset(topics)
        self.owners = {
            key: owner for key, owner in self.owners.items() if owner[0] != worker or key.topic not in names
        }

    # Calls

    async def call(
        self, worker: int, name: str, values: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> Message:
        """Make a call to a worker. LinkLost while it does not run; its error."""
        return await self._processes[worker].link.call(name, values, body)

    async def ask(self, worker: int, name: str, values: Mapping[str, Any] | None, seconds: float) -> Message | None:
        """Return the answer of a worker; None, which is logged if it runs, for an error or none in so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self.call(worker, name, values)
        except LinkLost:  # its end is logged
            return None
        except (KafkalogError, TimeoutError) as error:
            text = str(error) or f"no answer within {seconds:.0f} s"
            _LOG.warning("worker %d does not do what it is asked (%s): %s", worker, name, text)
            return None

    def addresses(self, listener: str) -> list[tuple[int, str, int]]:
        """Return the node id, host and port of each worker that serves clients of a listener."""
        return [
            (self.node.node_id + number, *self._advertised[number][listener])
            for number in self.numbers
            if self._processes[number].is_ready and listener in self._advertised.get(number, {})
        ]

    async def _state_pushed(self, request: object) -> None:
        # a task, since a request may run outside of one, where `asyncio.timeout` does not work
        await asyncio.get_running_loop().create_task(self._push_state())

    async def _push_state(self) -> None:
        """Send users, ACLs, quotas, features and settings to all workers if they have changed; wait for the answers."""
        values = state_of(self.node)
        if values == self._pushed:
            return
        self._pushed, self._pushes = {}, self._pushes + 1  # what they have is unknown until they answer
        this = self._pushes
        for number in self.numbers:
            try:
                async with asyncio.timeout(PUSH_SECONDS):
                    await self.call(number, "state", values)
            except LinkLost:  # it gets all of it when it starts again
                pass
            except TimeoutError:
                _LOG.warning("worker %d does not answer; until it does it has the users and settings of before", number)
        if this == self._pushes:
            self._pushed = values

    async def mark(self, partitions: Iterable[TopicPartition], marker: Marker) -> frozenset[TopicPartition]:
        """Write a marker in partitions of workers and return those where this failed, to be retried."""
        shares: dict[int, list[TopicPartition]] = {}
        for key in partitions:
            shares.setdefault(self.worker_of(key), []).append(key)
        failed = await asyncio.gather(*(self._mark(worker, keys, marker) for worker, keys in shares.items()))
        return frozenset().union(*failed)

    async def _mark(self, worker: int, keys: list[TopicPartition], marker: Marker) -> Collection[TopicPartition]:
        values = {"partitions": keys, "marker": marker}  # written late, it comes before that of the next try
        answer = await self.ask(worker, "mark", values, PUSH_SECONDS)
        if answer is None:
            return keys
        return [TopicPartition(*one) for one in answer.values["failed"]]

    async def collected(self, name: str) -> list[Message]:
        """Return the answers of all workers that run to a question about their state."""
        found = [await self.ask(number, name, None, PUSH_SECONDS) for number in self.numbers]
        return [one for one in found if one is not None]
