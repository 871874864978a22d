"""A server's directory copied, or replaced by a copy, while its process and its connections stay.

The node closes its logs, the files are copied, and another node opens them behind the same sockets. Requests that
arrive meanwhile wait for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalState
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.node.node import Node
from kafkalog.server.node.store import open_store
from kafkalog.server.quorum.file import NO_NODE, QuorumFile
from kafkalog.server.quorum.replica_set import SETTING as REPLICAS

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Result
    from kafkalog.server.requests.context import Connection
    from kafkalog.server.serving import Server
    from kafkalog.testing.inside.clock import MovableTimers, MovedClock
    from kafkalog.testing.inside.disk import TestDisk
    from kafkalog.testing.inside.rules import NodeRules

_FINISH_S: Final = 5.0
_POLL_S: Final = 0.001
_SMALL_BYTES: Final = 1 << 16
_KEPT: Final = frozenset({".lock", "kafkalog.quorum.json"})
"""Files that stay as they are: the lock of this process, and the term, which never goes back."""


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

    async def close(self) -> None:
        """Close the logs once the requests in progress are answered; later requests wait for `open`."""
        if self._server.http is not None:
            raise IllegalState("a server with kafkalog.http.listener has no snapshots", hint="leave the setting out")
        if self._opened is not None:
            raise IllegalState("the logs are closed already")
        self._opened = asyncio.get_running_loop().create_future()
        self._rules.rebind(self._wait)
        node, network = self._server.node, self._server.network
        node.is_ready = False
        try:
            await node.stop_parts()
            deadline = network.loop.time() + _FINISH_S
            while network.counts.working > self._waiting + self._rules.holding and network.loop.time() < deadline:
                await asyncio.sleep(_POLL_S)
        finally:
            await node.close()

    async def copy(self, source: str, target: str, *, is_mine: bool) -> None:
        """Make the closed directory a copy of `source`, or with `is_mine` False a copy of it at `target`."""
        await asyncio.to_thread(make_equal, source, target, _KEPT if is_mine else frozenset({".lock"}))

    async def open(self) -> None:
        """Open the logs, and let the requests go on that waited."""
        if self._opened is None:  # they were not closed
            return
        server = self._server
        old, network = server.node, server.network
        if server.config[REPLICAS]:
            forget_leader(self._directory)
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


def forget_leader(directory: str) -> None:
    """Let a node open its logs without a leader: one that led before would claim so until it has the votes again."""
    file = QuorumFile(directory)
    state = file.read()
    if state is not None:
        file.write(state._replace(leader=NO_NODE))


def make_equal(source: str, target: str, kept: frozenset[str]) -> None:
    """Make the directory `target` a copy of `source`; files of the same size and time are taken for equal.

    A copy has the time of its original. The files named in `kept` stay as they are in the target.
    """
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        wanted = {one.name: one for one in entries if one.name not in kept}
    with os.scandir(target) as entries:
        found = {one.name: one for one in entries if one.name not in kept}
    for name, entry in found.items():
        is_directory = entry.is_dir(follow_symlinks=False)
        if name not in wanted or wanted[name].is_dir() != is_directory:
            shutil.rmtree(entry.path) if is_directory else os.unlink(entry.path)
    for name, entry in wanted.items():
        path = os.path.join(target, name)
        if entry.is_dir():
            make_equal(entry.path, path, frozenset())
        elif name not in found or _stamp(entry.stat()) != _stamp(found[name].stat()):
            stat = entry.stat()
            if name not in found or found[name].stat().st_size != stat.st_size or not _has_equal_bytes(entry, path):
                if name in found:
                    os.unlink(path)  # file systems write out at once a file that is truncated and written again
                shutil.copyfile(entry.path, path)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _has_equal_bytes(entry: os.DirEntry[str], path: str) -> bool:
    """Return True if a small file of equal size has the same bytes, as an index that was only opened and closed."""
    if entry.stat().st_size > _SMALL_BYTES:
        return False
    with open(entry.path, "rb", buffering=0) as one, open(path, "rb", buffering=0) as other:
        return one.read(_SMALL_BYTES) == other.read(_SMALL_BYTES)


def _stamp(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_size, stat.st_mtime_ns
