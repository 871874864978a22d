"""Peers for tests of the client: our own server, and ones that say what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.serving import Server, serving
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.wire.versions import APIS, api_versions_body
from tests.server.net.networks import add_length
from tests.server.nodes import SMALL

METADATA = 3
LIST_OFFSETS = 2
HOST = "127.0.0.1"


@asynccontextmanager
async def server_on(path: Path, **settings: Any) -> AsyncIterator[Server]:
    """Our server on a directory; settings have underscores for dots, and dots where a name has underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = ServerConfig({"listeners": f"PLAINTEXT://{HOST}:0", **SMALL, **given})
    async with serving([str(path)], config) as server:
        yield server


@asynccontextmanager
async def open_connection(
    port: int, settings: PeerSettings | None = None, host: str = HOST, *, request_ms: int | None = None
) -> AsyncIterator[PeerConnection]:
    """A connection; `request_ms` holds from then on, since a busy machine needs longer to connect."""
    connection = await connect(host, port, settings)
    if request_ms is not None:
        connection._settings = replace(connection._settings, request_ms=request_ms)
    try:
        yield connection
    finally:
        await connection.close()


Answer = Callable[[bytes], bytes | None]
"""A request -> what the peer sends, length and all; None: it closes the connection."""


def number_of(request: bytes) -> bytes:
    """The correlation id of a request."""
    return request[4:8]


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(serve: Serve) -> AsyncIterator[int]:
    """Return the port of a peer that serves each connection so; none is left open, which a later test would report."""
    is_open: set[asyncio.StreamWriter] = set()

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_open.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            is_open.discard(writer)

    server = await asyncio.start_server(serve_and_close, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        while is_open:
            for writer in is_open:
                writer.transport.abort()
            await asyncio.sleep(0)


@asynccontextmanager
async def liar(answer: Answer, *, is_honest_first: bool = True) -> AsyncIterator[int]:
    """Return the port of a peer that reports its real versions, then sends what `answer` returns."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_honest = is_honest_first
        while True:
            request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            said: bytes | None
            if is_honest:
                said, is_honest = add_length(number_of(request) + api_versions_body(3, APIS)), False
            else:
                said = answer(request)
            if said is None:
                return
            writer.write(said)
            await writer.drain()

    async with peer(serve) as port:
        yield port


async def error_of(awaitable: Awaitable[Any]) -> BaseException:
    """Return the exception that an awaitable raises."""
    try:
        await awaitable
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
