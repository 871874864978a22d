"""Three nodes of one set in this process, with their sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kafkalog.server.serving import Server, serving
from kafkalog.server.settings.config import ServerConfig
from tests.ports import free_ports
from tests.server.client.peers import HOST
from tests.server.nodes import SMALL


class Servers(dict[int, Server]):
    """Those that run, by number; each has its directory and its port for ever."""

    def __init__(self, path: Path, listener: str, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.ports = dict(enumerate(free_ports(3), 1))
        self._listener = listener
        self.settings = dict(settings)
        self._running: dict[int, AsyncExitStack] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def directory(self, number: int) -> Path:
        return self.path / str(number)

    async def start(self, number: int) -> Server:
        members = ",".join(f"{one}@{HOST}:{port}" for one, port in self.ports.items())
        config = ServerConfig({
            **SMALL, "listeners": f"{self._listener}://{HOST}:{self.ports[number]}", "kafkalog.replicas": members,
            "node.id": number, "min.insync.replicas": 2,
            "log.retention.ms": -1,  # the tests' records are old, and the first check comes after 30 s
            **self.settings,
        })  # fmt: skip
        stack = self._running[number] = AsyncExitStack()
        self[number] = await stack.enter_async_context(serving([str(self.directory(number))], config))
        return self[number]

    async def stop(self, number: int) -> None:
        self.pop(number, None)
        await self._running.pop(number).aclose()


@asynccontextmanager
async def servers_of(
    path: Path, *numbers: int, listener: str = "PLAINTEXT", settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Servers]:
    """Run these nodes of a set of three, without a leader yet."""
    servers = Servers(path, listener, settings or {})
    try:
        for number in numbers:
            await servers.start(number)
        yield servers
    finally:
        for number in tuple(servers._running):
            await servers.stop(number)
