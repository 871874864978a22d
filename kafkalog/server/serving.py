"""A node with its sockets: open, start, serve, stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from kafkalog.errors import ConfigError
from kafkalog.manager.log_manager import LoadProgress
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.net.endpoints import Endpoint, advertised_of, listeners_of, parse_endpoint
from kafkalog.server.net.listener import Network, check_ports
from kafkalog.server.node.node import Node, NodeOptions
from kafkalog.server.node.store import Store, open_store
from kafkalog.server.node.temporary_dirs import NoWritesToLinks, stand_ins
from kafkalog.server.packages import check_packages
from kafkalog.server.settings.config import ServerConfig
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.server.status.http import HttpListener
    from kafkalog.server.workers.forked import ForkedWorker
    from kafkalog.server.workers.workers import Workers

DRAIN_SECONDS: Final = 0.05
STOP_SECONDS: Final = 5.0
"""Time for requests in progress to finish when the server stops."""


class ServerOptions(NodeOptions, total=False):
    """Options of a `Server`."""

    is_read_only: bool


class ServingOptions(ServerOptions, total=False):
    """Options of `serving`."""

    progress: Callable[[LoadProgress], object] | None
    worker_ports: Mapping[int, Mapping[str, int]] | None
    forked: MutableMapping[int, ForkedWorker] | None


class Server:
    """A node and its network in the running loop. `ports` has the port of each listener after the start."""

    def __init__(self, config: ServerConfig, store: Store, **more: Unpack[ServerOptions]) -> None:
        self.config = config
        self.node = Node(config, store, **more)
        self.network = Network(
            config, partial(dispatch, self.node), self.node.metrics.network, self.node.pool, self.node.monotonic_ms
        )
        self.network.takes_connection = self.node.quotas.takes_connection
        self.network.on_close = lambda connection_id: self.node.disconnected(connection_id)
        self.node.on_config_change.append(self.network.apply_config)
        self.ports: dict[str, int] = {}
        self.http: HttpListener | None = None
        self._endpoints = listeners_of(config)

    @property
    def addresses(self) -> dict[str, str]:
        """Advertised address of each listener: HOST:PORT, an IPv6 address in brackets."""
        advertised = self.node.endpoints.items()
        return {name: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for name, (host, port) in advertised}

    async def start(self) -> None:
        """Bind the listeners, start the parts and accept connections. Undo everything on an error."""
        try:
            for endpoint in self._endpoints:
                listener = self.network.listen(endpoint)
                self.ports[endpoint.name] = listener.port
                advertised = advertised_of(self.config, endpoint.name)
                if advertised is None:
                    host, port = socket.gethostname() if endpoint.is_everywhere else endpoint.host, listener.port
                else:
                    host, port = advertised.host, advertised.port or listener.port
                self.node.endpoints[endpoint.name] = (host, port)
            await self._start_http()
            if self.node.workers is not None:
                await self.node.workers.open(self.node)
            await self.node.start()
            if self.node.owner is not None:
                self.node.owner.attach(self.node)
            if self.node.workers is not None:
                await self.node.workers.begin()
        except BaseException:
            await self.stop()
            raise
        self.network.accept()
        self.node.is_ready = True

    async def _start_http(self) -> None:
        """Start the HTTP listener, so that health checks see a live but not ready server while parts start."""
        if self.config["kafkalog.http.listener"]:
            from kafkalog.server.status.http import listener_of

            self.http = listener_of(self.node)
            assert self.http is not None
            await self.http.start()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop accepting, answer requests in progress within `seconds`, stop the parts and close the store."""
        self.node.is_ready = False
        self.network.stop_accepting()
        if self.node.workers is not None:
            await self.node.workers.stop()  # this node still answers what they pass on
        await self.network.drain(DRAIN_SECONDS)  # responses about to be sent; parts wake waiting requests later
        if self.node.owner is not None:
            self.node.owner.stop()
        try:
            await self.node.stop_parts()
        finally:
            await self.network.finish(seconds)
            if self.http is not None:
                await self.http.stop()
            await self.node.close()


@asynccontextmanager
async def serving(
    directories: Sequence[str],
    config: ServerConfig | None = None,
    *,
    progress: Callable[[LoadProgress], object] | None = None,
    is_read_only: bool = False,
    fs: FileSystem = OS,
    worker_ports: Mapping[int, Mapping[str, int]] | None = None,
    forked: MutableMapping[int, ForkedWorker] | None = None,
    **more: Unpack[NodeOptions],
) -> AsyncIterator[Server]:
    """Run a server on these data directories until the block ends.

    With `is_read_only` nothing is written to them, and calls that change something are rejected. MissingPackage and
    errors of unavailable ports are raised before a directory is created. `worker_ports` has the ports that workers had
    before; without it they are next to those of this process. `forked` has the processes of workers that run already;
    those that are used are taken out.
    """
    check_packages()
    settings = ServerConfig() if config is None else config
    http = settings["kafkalog.http.listener"]
    others = worker_endpoints(settings, worker_ports or {})
    check_ports([*listeners_of(settings), *others, *([parse_endpoint(http)] if http else [])])
    if is_read_only:
        if settings["kafkalog.replicas"]:
            what = "a read-only node in a replica set would forget the records and votes that it acknowledges"
            raise ConfigError(what, hint="omit kafkalog.replicas: the node then serves its data alone")
        settings = settings.with_(dict.fromkeys(("auto.create.topics.enable", "log.cleaner.enable"), False))
    files = NoWritesToLinks() if is_read_only else fs
    clock = more.get("clock", SYSTEM_CLOCK)
    with stand_ins(directories) if is_read_only else nullcontext(directories) as paths:
        own, workers = workers_of(settings, paths, worker_ports, forked, is_read_only=is_read_only)
        try:
            if workers is not None:
                more["workers"] = workers
                workers.start()
            store = await asyncio.to_thread(
                open_store, own, settings, fs=files, clock=clock, progress=progress, is_read_only=is_read_only
            )
            async with _running(settings, store, is_read_only=is_read_only, **more) as server:
                yield server
        finally:
            if workers is not None:
                await workers.stop()  # those that the server's own end has not reached


def worker_endpoints(config: ServerConfig, ports: Mapping[int, Mapping[str, int]]) -> Iterator[Endpoint]:
    """Yield the listeners of all workers beside the main process. ConfigError."""
    for number in range(1, config["kafkalog.workers"]):
        from kafkalog.server.workers.layout import settings_of

        yield from listeners_of(ServerConfig(settings_of(config, number, ports.get(number))))


def workers_of(
    config: ServerConfig, directories: Sequence[str], ports: Mapping[int, Mapping[str, int]] | None,
    forked: MutableMapping[int, ForkedWorker] | None, *, is_read_only: bool,
) -> tuple[Sequence[str], Workers | None]:  # fmt: skip
    """Return the directories of this process, and the workers that have the others. ConfigError."""
    if config["kafkalog.workers"] == 1:
        return directories, None
    from kafkalog.server.workers.layout import MAIN, check_workers, directories_of
    from kafkalog.server.workers.workers import Workers

    count = check_workers(config, directories)
    return directories_of(directories, MAIN, count), Workers(
        config, directories, count, ports, forked, is_read_only=is_read_only
    )


@asynccontextmanager
async def _running(settings: ServerConfig, store: Store, **more: Unpack[ServerOptions]) -> AsyncIterator[Server]:
    try:
        server = Server(settings, store, **more)
    except BaseException:
        store.close()
        raise
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
