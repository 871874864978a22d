"""A proxy between the nodes of a replica set and their clients, that cuts, delays and narrows single links.

Each node has one port here, which `kafkalog.replicas` and `advertised.listeners` name. Who connects is told by the
client id of the first request: `kafkalog-replica-N` is node N, everybody else is a client (0). A link is what one of
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
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close resets the connection


class Condition(NamedTuple):
    """How a link is. `cut` is "reset" (connections end, new ones too), "hole" (nothing passes, nothing ends) or "mute"
    (what is asked passes, answers do not); a heal lets pass what was held. Delays count for each piece."""

    cut: str = ""
    delay_s: float = 0
    jitter_s: float = 0
    bytes_per_s: float = 0


HEALTHY: Final = Condition()


class _Link:
    """One directed link; it belongs to the loop."""

    def __init__(self) -> None:
        self.condition = HEALTHY
        self.changed = asyncio.Event()
        self.connections: set[tuple[asyncio.StreamWriter, ...]] = set()

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
    """Ports before those of nodes, in a thread of its own, in a `with` block. `ports` has the ports here by node."""

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
        self._taken_writers: set[asyncio.StreamWriter] = set()
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
        self._loop.run_until_complete(self._end_all())
        self._loop.close()

    async def _end_all(self) -> None:
        for _ in range(3):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            _reset(*self._taken_writers)
            await asyncio.sleep(0.02)

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
            self._servers.append(await asyncio.start_server(partial(self._taken, node), sock=listening))
            self.ports[node] = listening.getsockname()[1]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for _ in range(3):  # one that was just taken has a task in the next turn, and a reset ends one there
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0.02)

    def _taken(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._taken_writers.add(writer)
        task = self._loop.create_task(self._connection(node, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._ended(writer))  # also of one that ends before it begins

    def _ended(self, writer: asyncio.StreamWriter) -> None:
        self._taken_writers.discard(writer)
        _reset(writer)

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
        to_reader, to_writer = await asyncio.open_connection(HOST, self.targets[way[1]])
        ends = (writer, to_writer)
        link.connections.add(ends)
        self._made += 1
        chance = random.Random(f"{self._seed} {way} {self._made}")
        pumps = (
            asyncio.create_task(self._pump(link, way, first, reader, to_writer, chance)),
            asyncio.create_task(self._pump(link, None, b"", to_reader, writer, chance)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:  # first what needs no turn of the loop: this may be cancelled again
            link.connections.discard(ends)
            _reset(to_writer)
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


def _reset(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()
