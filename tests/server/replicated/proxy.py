"""A proxy between the nodes of a replica set and their clients, that cuts, delays and narrows single links.

Each node has one port here, which `kafkalog.replicas` and `advertised.listeners` name. A connection is known by the
client id of the first request: `kafkalog-replica-N` is node N, any other is a client (0). A link is what one of
them asks of a node, with the answers.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

HOST: Final = "127.0.0.1"
CLIENT: Final = 0
_NODE: Final = re.compile(rb"kafkalog-replica-(\d+)")
_PIECE: Final = 1 << 16
QUIET_TURNS: Final = 5
"""Of the loop, without anything to end, after which nothing more can come."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close resets the connection


class Condition(NamedTuple):
    """The state of a link. `cut` is "reset" (connections end, new ones too), "hole" (nothing passes, nothing ends) or
    "mute" (requests pass, answers do not); a heal delivers held bytes. Delays count for each piece."""

    cut: str = ""
    delay_s: float = 0
    jitter_s: float = 0
    bytes_per_s: float = 0


HEALTHY: Final = Condition()


class _End(asyncio.StreamReaderProtocol):
    """One end of a connection; its transport is in `transports` from its beginning until its socket is closed."""

    def __init__(self, transports: set[asyncio.BaseTransport], taken: Callable[..., None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(loop=loop)
        super().__init__(self.reader, taken, loop)
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.add(transport)
        self._own = transport
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transports.discard(self._own)
        super().connection_lost(error)


class _Link:
    """One directed link; it belongs to the loop."""

    def __init__(self) -> None:
        self.condition = HEALTHY
        self.changed = asyncio.Event()
        self.connections: set[tuple[asyncio.BaseTransport, ...]] = set()

    def set(self, condition: Condition) -> None:
        self.condition = condition
        self.changed.set()
        self.changed = asyncio.Event()
        if condition.cut == "reset":
            for ends in tuple(self.connections):
                _reset(*ends)

    async def passable(self, is_answer: bool) -> None:
        while self.condition.cut == "hole" or (self.condition.cut == "mute" and is_answer):
            await self.changed.wait()


class Proxy:
    """Ports before those of nodes, in a separate thread, in a `with` block. `ports` has the ports here by node."""

    def __init__(self, targets: Mapping[int, int], seed: object = 0) -> None:
        self.targets = dict(targets)
        self.ports: dict[int, int] = {}
        self.passed: dict[tuple[int, int], int] = {}
        """Bytes that were asked over each link."""
        self._seed = seed
        self._links: dict[tuple[int, int], _Link] = {}
        self._made = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._transports: set[asyncio.BaseTransport] = set()
        self._sockets = {node: socket.create_server((HOST, 0)) for node in targets}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._on_loop(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._on_loop(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, source: int, target: int, condition: Condition) -> None:
        """Let a link be so from now on."""

        async def change() -> None:
            self._link(source, target).set(condition)

        self._on_loop(change)

    def heal(self) -> None:
        """Let all links be whole."""

        async def change() -> None:
            for link in self._links.values():
                link.set(HEALTHY)

        self._on_loop(change)

    def _on_loop(self, work: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)

    def _link(self, source: int, target: int) -> _Link:
        return self._links.setdefault((source, target), _Link())

    async def _open(self) -> None:
        for node, listening in self._sockets.items():
            taken = partial(self._taken, node)
            ends = partial(_End, self._transports, taken)
            self._servers.append(await self._loop.create_server(ends, sock=listening))
            self.ports[node] = listening.getsockname()[1]

    async def _close(self) -> None:
        """Return once no task and no socket is left: one that was just taken is seen some turns of the loop later."""
        for listening in [one for server in self._servers for one in server.sockets]:
            self._loop.remove_reader(listening.fileno())
        quiet_turns = 0
        while quiet_turns < QUIET_TURNS:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left & self._tasks:  # those of asyncio end alone: a cancelled accept would leave a socket
                task.cancel()
            _reset(*self._transports)
            quiet_turns = 0 if left or self._transports else quiet_turns + 1
            await asyncio.sleep(0)
        for server in self._servers:  # last: a closed one refuses what it has just accepted, and leaves that open
            server.close()

    def _taken(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connection(node, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: _reset(writer.transport))  # also of one that ends before it begins

    async def _connection(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, source = await _first_request(reader)
            link = self._link(source, node)
            await link.passable(False)
            if link.condition.cut != "reset":
                await self._through(link, (source, node), first, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # who asked, or who is asked, is gone

    async def _through(
        self, link: _Link, way: tuple[int, int], first: bytes, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        there = _End(self._transports)
        transport, _ = await self._loop.create_connection(lambda: there, HOST, self.targets[way[1]])
        to_writer = asyncio.StreamWriter(transport, there, there.reader, self._loop)
        ends = (transport, writer.transport)
        link.connections.add(ends)
        self._made += 1
        chance = random.Random(f"{self._seed} {way} {self._made}")
        pumps = (
            asyncio.create_task(self._pump(link, way, first, reader, to_writer, chance)),
            asyncio.create_task(self._pump(link, None, b"", there.reader, writer, chance)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:  # first what needs no turn of the loop: this may be cancelled again
            link.connections.discard(ends)
            _reset(transport)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, link: _Link, asked: tuple[int, int] | None, data: bytes, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter, chance: random.Random,
    ) -> None:  # fmt: skip
        data = data or await reader.read(_PIECE)
        while data:
            await link.passable(asked is None)
            condition = link.condition
            wait_s = condition.delay_s + condition.jitter_s * chance.random()
            if condition.bytes_per_s:
                wait_s += len(data) / condition.bytes_per_s
            if wait_s:
                await asyncio.sleep(wait_s)
                await link.passable(asked is None)
            writer.write(data)
            await writer.drain()
            if asked is not None:
                self.passed[asked] = self.passed.get(asked, 0) + len(data)
            data = await reader.read(_PIECE)


async def _first_request(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The first request's beginning as it came, and who sent it."""
    head = await reader.readexactly(14)  # size, api key, version, correlation id, length of the client id
    size = max(0, int.from_bytes(head[12:14], "big", signed=True))
    client_id = await reader.readexactly(size)
    found = _NODE.fullmatch(client_id)
    return head + client_id, int(found[1]) if found else CLIENT


def _reset(*transports: asyncio.BaseTransport) -> None:
    for transport in transports:
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        transport.abort()  # type: ignore[attr-defined]
