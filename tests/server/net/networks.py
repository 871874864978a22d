"""A network without a node: the answers are the test's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kafkalog.server.net.endpoints import listeners_of
from kafkalog.server.net.listener import Network
from kafkalog.server.node.pool import CallPool
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.status.metrics import NetworkCounts


def both_loops() -> list[Any]:
    """Return the event loop factories: asyncio's, and uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return [asyncio.new_event_loop]
    return [asyncio.new_event_loop, uvloop.new_event_loop]


def run_in(loop_factory: Any, main: Any) -> Any:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@asynccontextmanager
async def network_for(dispatch: Callable[..., Any], **settings: Any) -> AsyncIterator[Network]:
    """A network that answers with what `dispatch(connection, frame)` gives; settings have underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = ServerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", **given})
    pool = CallPool(config["num.io.threads"])
    network = Network(config, dispatch, NetworkCounts(), pool, monotonic_ms)
    for endpoint in listeners_of(config):
        network.listen(endpoint)
    network.accept()
    try:
        yield network
    finally:
        network.stop_accepting()
        await network.finish(60)
        await asyncio.to_thread(pool.close)


async def connect(network: Network, listener: str = "PLAINTEXT", **more: Any) -> tuple[Any, Any]:
    return await asyncio.open_connection("127.0.0.1", network.listeners[listener].port, **more)


def add_length(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(_answer_of(reader), 60)


async def _answer_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return True if the server closes the connection without an answer."""
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionResetError:
        return True


async def echo_frame(connection: Any, frame: bytearray) -> list[Any]:
    return [bytes(frame)]
