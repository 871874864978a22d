"""Snapshots: write a server's directory to a file, or restore it, while its process and its connections stay.

For a snapshot the logs stay open, and their files are as after a close while they are copied. For a restore the node
closes its logs, the files are replaced, and another node opens them behind the same sockets. Requests that arrive
meanwhile wait.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalState, StorageError
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.node.node import Node
from kafkalog.server.node.store import open_store
from kafkalog.server.quorum.file import QuorumFile, QuorumState
from kafkalog.server.quorum.replica_set import SETTING as REPLICAS
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.testing.inside.archive import restore_archive, write_archive

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Result
    from kafkalog.server.requests.context import Connection
    from kafkalog.server.serving import Server
    from kafkalog.testing.inside.clock import MovableTimers, MovedClock
    from kafkalog.testing.inside.disk import TestDisk
    from kafkalog.testing.inside.rules import NodeRules

_FINISH_S: Final = 5.0
_POLL_S: Final = 0.001
_TRIES: Final = 3
_KEPT: Final = frozenset({".lock", "kafkalog.quorum.json", PRODUCER_IDS_FILE})
"""Files that stay as they are: the lock of this process, and what never goes back, the term and the producer ids."""


class Reopening:
    """The closed state between `close` and `open`. Used only in the loop's thread."""

    def __init__(
        self, server: Server, rules: NodeRules, clock: MovedClock, timers: MovableTimers, disk: TestDisk, directory: str
    ) -> None:
        self._server = server
        self._rules = rules
        self._clock = clock
        self._timers = timers
        self._disk = disk
        self._directory = directory
        self._opened: asyncio.Future[None] | None = None
        self._waiting = 0

    async def snapshot(self, path: str) -> None:
        """Copy the directory to a new file at `path`, each log as at the same moment. OSError, StorageError."""
        opened, node = self._let_wait(), self._server.node
        parts = (
            node.following.metadata, node.topics, node.dynamic, node.features, node.credentials.file,
            node.quorum.metadata,
        )  # fmt: skip
        try:
            async with AsyncExitStack() as held:
                for part in parts:  # their files must not change, and belong together
                    await held.enter_async_context(part.held())
                await asyncio.to_thread(self._copy, path)
        finally:
            self._rules.rebind(partial(dispatch, node))
            self._opened = None
            opened.set_result(None)

    def _copy(self, path: str) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                with self._server.node.store.finished_files():
                    write_archive(self._directory, path, _KEPT, CLEAN_SHUTDOWN_FILE)
                return
            except (FileNotFoundError, StorageError):  # a job has deleted or replaced it meanwhile
                with suppress(FileNotFoundError):  # the archive is created after all files have been listed
                    os.unlink(path)
                if not tries_left:
                    raise

    def _let_wait(self) -> asyncio.Future[None]:
        """Let later requests wait for the returned future."""
        if self._server.http is not None:
            raise IllegalState("a server with kafkalog.http.listener has no snapshots", hint="leave the setting out")
        if self._opened is not None:
            raise IllegalState("the logs are closed already")
        self._opened = opened = asyncio.get_running_loop().create_future()
        self._rules.rebind(self._wait)
        return opened

    async def close(self) -> None:
        """Close the logs once the requests in progress are answered; later requests wait for `open`.

        Nothing is written, because `restore` follows.
        """
        self._let_wait()
        node, network = self._server.node, self._server.network
        node.is_ready = False
        try:
            await node.stop_parts()
            deadline = network.loop.time() + _FINISH_S
            while network.counts.working > self._waiting + self._rules.holding and network.loop.time() < deadline:
                await asyncio.sleep(_POLL_S)
        finally:
            await node.close(discards=True)

    async def restore(self, path: str) -> None:
        """Restore the closed directory from the file at `path`."""
        await asyncio.to_thread(restore_archive, path, self._directory, _KEPT)

    async def open(self, term: int, leader: int) -> None:
        """Open the logs, in the term in which `leader` leads, and let the requests go on that waited.

        The leader leads by then, so the others' requests to it wait until it does.
        """
        if self._opened is None:  # they were not closed
            return
        server = self._server
        old, network = server.node, server.network
        is_in_set, is_leader = bool(server.config[REPLICAS]), leader == old.node_id
        if is_in_set:
            state = QuorumState(term - 1) if is_leader else QuorumState(term, leader)
            QuorumFile(self._directory).write(state)
        store = await asyncio.to_thread(
            open_store, [self._directory], server.config, fs=self._disk, clock=self._clock
        )
        try:
            node = Node(
                server.config, store, clock=self._clock, later=self._timers.later, log_metrics=old.log_metrics,
                telemetry=None if old.telemetry is None else old.telemetry.receiver,
            )  # fmt: skip
        except BaseException:
            store.close()
            raise
        node.endpoints.update(old.endpoints)
        node.metrics.network = old.metrics.network
        network.use_pool(node.pool)
        network.takes_connection = node.quotas.takes_connection
        node.on_config_change.append(network.apply_config)
        server.node = node
        self._rules.rebind(partial(dispatch, node))
        await node.start()
        if is_in_set and is_leader:
            await node.quorum.lead_uncontested()
        node.is_ready = True
        opened, self._opened = self._opened, None
        opened.set_result(None)

    async def _wait(self, connection: Connection, frame: bytearray) -> Result:
        if self._opened is not None:
            self._waiting += 1
            try:
                await asyncio.shield(self._opened)
            finally:
                self._waiting -= 1
        return await dispatch(self._server.node, connection, frame)

