"""A worker as a process: it opens its directories, says what they have, and serves clients once it may.

The main process is at the other end of the only socket that it has from it. When that is closed the worker ends at
once, as in a crash: the server has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog._version import version
from kafkalog.errors import DirectoryLocked, IllegalArgument, KafkalogError
from kafkalog.server.node.store import Identity, Store, open_store
from kafkalog.server.node.temporary_dirs import NoWritesToLinks
from kafkalog.server.node.topics import METADATA_TOPIC
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.running import FrozenLogs, loop_factory, raise_descriptor_limit
from kafkalog.server.security.file import SECURITY_FILE
from kafkalog.server.serving import Server
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.settings.dynamic import SETTINGS_FILE
from kafkalog.server.settings.features import FEATURES_FILE
from kafkalog.server.status.collected import disks_of, metrics_of, partitions_of
from kafkalog.server.txns.markers import Marker, write_markers
from kafkalog.server.txns.producer_ids import first_producer_id
from kafkalog.server.workers.link import Link, Message
from kafkalog.server.workers.owner import Owner, WorkerTopics, new_partitions
from kafkalog.server.workers.share_calls import CALLS_OF_THE_MAIN_PROCESS
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
LOCKED_SECONDS: Final = 10.0
"""Time that a former worker, whose main process was killed, has to end."""
_OF_THE_NODE: Final = (SECURITY_FILE, SETTINGS_FILE, FEATURES_FILE, f"{METADATA_TOPIC}-0")
_NOTHING: Final = Message({})


class Child:
    """The worker's process; used only in the loop's thread."""

    def __init__(self, log_metrics: Callable[[], str]) -> None:
        self.link = Link(self._answer, self._lost)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log_metrics = log_metrics
        self._configuration: Mapping[str, Any] = {}
        self._config = ServerConfig()
        self._is_read_only = False
        self._store: Store | None = None
        self._owner: Owner | None = None
        self._server: Server | None = None
        self._begun: asyncio.Future[None] | None = None
        self._opening: asyncio.Future[None] | None = None
        self._stopping: asyncio.Future[None] | None = None

    def _lost(self) -> None:
        if not self.ended.done():
            os._exit(1)

    async def _answer(self, name: str, message: Message) -> Message:
        calls = {
            "configure": self._configure, "begin": self._begin, "state": self._state, "create": self._create,
            "delete": self._delete, "alter": self._alter, "mark": self._mark, "status": self._status,
            "metrics": self._metrics, "stop": self._stop, "ping": self._ping,
        }  # fmt: skip
        if name not in calls and name not in CALLS_OF_THE_MAIN_PROCESS:
            raise IllegalArgument(f"unknown call {name!r}")
        if self._begun is not None and name not in ("state", "ping"):
            await self._begun  # its topics are being loaded
        if name in calls:
            return await calls[name](message.values)
        return await CALLS_OF_THE_MAIN_PROCESS[name](self._running_node(), message)

    # The start

    async def _configure(self, given: Mapping[str, Any]) -> Message:
        self._configuration = given
        number = given["number"]
        logging.basicConfig(
            level=given["level"], format=f"%(asctime)s %(levelname)s worker {number}: %(message)s", force=True
        )
        self._config = ServerConfig(given["settings"])
        self._is_read_only = given["is_read_only"]
        self._owner = Owner(self.link, number)
        self._opening = asyncio.ensure_future(self._open())
        return _NOTHING

    async def _open(self) -> None:
        directories = self._configuration["directories"]
        found = next((path for one in directories for name in _OF_THE_NODE
                      if os.path.lexists(path := os.path.join(one, name))), None)  # fmt: skip
        problem, hint, has = "", None, dict[str, Any]()
        theirs = self._configuration["version"]
        if theirs != version:
            problem = f"the worker would run kafkalog {version}, and the main process runs {theirs}"
            hint = "kafkalog was installed again while the server runs: start the server again"
        elif found is not None:
            problem, hint = f"{found} belongs to the whole server", "give its directory first"
        else:
            try:
                self._store = await _in_thread(self._open_store, directories)
                has = await _in_thread(contents, self._store)
            except Exception as error:  # the main process waits for an answer, whatever it is
                if not isinstance(error, KafkalogError | OSError):
                    _LOG.exception("the directories cannot be opened")
                problem = str(error) or repr(error)  # with its hint
        await self.link.call("opened", {"problem": problem, "hint": hint, **has})

    def _open_store(self, directories: Sequence[str]) -> Store:
        import time

        until = time.monotonic() + LOCKED_SECONDS
        while True:
            try:
                return open_store(
                    directories, self._config, identity=Identity(0, ""), is_read_only=self._is_read_only,
                    fs=NoWritesToLinks() if self._is_read_only else OS,
                )  # fmt: skip
            except DirectoryLocked:
                if self._stopping is not None or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    async def _begin(self, state: Mapping[str, Any]) -> Message:
        store, self._store = self._store, None
        assert store is not None and self._owner is not None, "it was not opened, or has begun"
        self._owner.state = state
        store = store._replace(identity=Identity(state["node_id"], state["cluster_id"]))
        self._begun = asyncio.get_running_loop().create_future()
        try:
            server = Server(
                self._config, store, log_metrics=self._log_metrics, owner=self._owner, is_read_only=self._is_read_only
            )
            await server.start()
            self._server = server
        finally:
            self._begun.set_result(None)
        self._frozen = FrozenLogs(lambda: len(server.node.store.current_logs))
        self._frozen.freeze()
        return Message({"ports": server.ports, "addresses": server.node.endpoints})

    async def _state(self, state: Mapping[str, Any]) -> Message:
        assert self._owner is not None
        self._owner.state = state
        if self._server is not None:
            self._owner.apply_state()
        return _NOTHING

    # Partitions

    @property
    def _manager(self) -> Any:
        if self._server is not None:
            return self._server.node.store
        if self._store is None:
            raise NotController("the worker is stopping")
        return self._store.manager

    @property
    def _topics(self) -> WorkerTopics | None:
        if self._server is None:
            return None
        topics = self._server.node.topics
        assert isinstance(topics, WorkerTopics)
        return topics

    async def _create(self, values: Mapping[str, Any]) -> Message:
        rows = new_partitions(values["topics"])
        failures = await _in_thread(partial(self._manager.create_partitions, rows, epoch=values["epoch"]))
        if self._topics is not None:
            for one in rows:
                if one.topic not in failures:
                    self._topics.take(one.topic_id, one.topic, one.end)
            self._frozen.follow()
        return Message({"failures": {name: str(error) for name, error in failures.items()}})

    async def _delete(self, values: Mapping[str, Any]) -> Message:
        names, topics, manager = set(values["topics"]), self._topics, self._manager
        failures: dict[str, KafkalogError] = {}
        if topics is not None:
            shown = {name for name in names if topics.get(name) is not None}
            failures |= await topics.drop(sorted(shown))
            names = {key.topic for key in (*manager.logs, *manager.problems)} & (names - shown)
        if names:  # also remains of a topic whose creation failed
            failures |= await _in_thread(manager.delete_topics, names)
        return Message({"failures": {name: str(error) for name, error in failures.items()}})

    async def _alter(self, values: Mapping[str, Any]) -> Message:
        if self._server is None and self._store is None:
            return _NOTHING  # it is opening its logs: the main process then compares the settings; or it is stopping
        name, settings, manager = values["topic"], values["settings"], self._manager
        own = manager.topics.settings_of(name)
        changes = {**dict.fromkeys(own), **settings}
        if self._topics is not None:
            await self._topics.alter(name, changes)
        else:
            await _in_thread(manager.alter_topic, name, changes)
        return _NOTHING

    async def _mark(self, values: Mapping[str, Any]) -> Message:
        if self._server is None:
            return Message({"failed": values["partitions"]})
        keys = [TopicPartition(*one) for one in values["partitions"]]
        return Message({"failed": sorted(write_markers(self._server.node, keys, Marker(*values["marker"])))})

    # The state

    async def _status(self, _: object) -> Message:
        node = self._running_node()
        disks = await node.run(disks_of, node.store.directories)
        return Message({"partitions": partitions_of(node), "disks": disks})

    async def _metrics(self, _: object) -> Message:
        text = await metrics_of(self._running_node())
        return Message({"number": self._configuration["number"], "process": os.getpid()}, text.encode())

    def _running_node(self) -> Node:
        if self._server is None:
            raise NotController("the worker does not serve clients")
        return self._server.node

    # The end

    async def _ping(self, _: object) -> Message:
        """Show that the loop runs, also while the worker stops."""
        return _NOTHING

    async def _stop(self, _: object) -> Message:
        """Stop, once: SIGTERM and the main process may both ask for it. Each waits for the end."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._end())
        await shielded(self._stopping)
        return _NOTHING

    async def _end(self) -> None:
        try:
            if self._opening is not None:
                await asyncio.wait([self._opening])
            if self._begun is not None:
                await self._begun
            server, self._server = self._server, None
            if server is not None:
                await server.stop()
            elif self._store is not None:
                await _in_thread(self._store.close)
        finally:
            if not self.ended.done():
                self.ended.set_result(None)


def contents(store: Store) -> dict[str, Any]:
    """Return what a worker says of its directories: partitions with their epochs, topics, the next producer id.

    `is_offline`: a directory cannot be read, and may have more.
    """
    manager = store.manager
    manager.mark_deleted([one.name for one in manager.topics.entries() if one.is_deleted], False)  # the main decides
    keys = {key: log.leader_epochs for key, log in manager.logs.items()}
    partitions = [(*key, epochs[-1][0] if epochs else 0) for key, epochs in keys.items()]
    partitions += [(*key, 0) for key in manager.problems]
    topics: dict[str, list[Any]] = {
        one.name: [one.name, one.topic_id, one.partitions, dict(one.settings)] for one in manager.topics.entries()
    }
    paths = {name: manager.path_of(name) for name, *_ in partitions}
    for name, index, _ in partitions:
        if name not in topics and (topic_id := read_partition_metadata(manager.fs, paths[name])) is not None:
            topics[name] = [name, topic_id, index + 1, {}]
        elif name in topics:
            topics[name][2] = max(topics[name][2], index + 1)
    directories = [one.path for one in manager.online]
    first = first_producer_id(directories, tuple(manager.logs.values()), manager.fs)
    return {"partitions": partitions, "topics": list(topics.values()), "paths": paths, "producer_id": first,
            "is_offline": any(True for _ in manager.offline)}  # fmt: skip


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in a thread of the loop: the main process waits for it, and not for a thread of the pool."""
    return await asyncio.to_thread(function, *args)


async def _run(sock: socket.socket, log_metrics: Callable[[], str]) -> None:
    child = Child(log_metrics)
    await child.link.open(sock)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(child._stop(None)))
    await child.ended
    await asyncio.sleep(0)  # the answer to `stop` is written


def main(descriptor: int, log_metrics: Callable[[], str]) -> None:
    """Run as a worker, with the socket to the main process at this descriptor."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the main process gets them too, and stops its workers
        signal.signal(number, signal.SIG_IGN)
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(socket.socket(fileno=descriptor), log_metrics))
