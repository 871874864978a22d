"""A node without sockets, and calls to it that go through real bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.groups.values import KeptPosition
from kafkalog.server.node.node import Node
from kafkalog.server.node.store import open_store
from kafkalog.server.requests.context import Close, Connection
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import API_VERSIONS, APIS
from kafkalog.server.wire.writer import write_request
from kafkalog.storage.file_slice import FileSlice
from kafkalog.util.fileio import OS, FileSystem

KEYS = {api.name: key for key, api in APIS.items()}
SMALL = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}
"""Settings that make a node's start cheap; tests may give others."""


class Closed(Exception):
    """The connection was closed instead of an answer."""


@asynccontextmanager
async def node_for(
    path: Path,
    *others: Path,
    listener: str = "PLAINTEXT",
    kept_positions: Sequence[KeptPosition] = (),
    prepare: Callable[[Node], object] = lambda node: None,
    fs: FileSystem = OS,
    **settings: Any,
) -> AsyncIterator[Node]:
    """A started node on `path` and other directories; settings have underscores for dots. `prepare` is called with it
    before it starts."""
    config = ServerConfig({**SMALL, **{name.replace("_", "."): value for name, value in settings.items()}})
    opened = open_store([str(one) for one in (path, *others)], config, fs=fs)
    try:
        node = Node(config, opened, kept_positions=kept_positions)
    except BaseException:
        opened.close()  # or its jobs would run beside later tests
        raise
    node.endpoints[listener] = ("localhost", 9092)
    prepare(node)
    try:
        await node.start()
        node.is_ready = True
        yield node
    finally:
        await node.stop()


def connection_for(principal: str = "User:ANONYMOUS", *, security_protocol: str = "PLAINTEXT") -> Connection:
    """A client's connection."""
    connection = Connection(1, "PLAINTEXT", security_protocol)
    connection.principal = principal
    return connection


def request_bytes(
    name: str, version: int, tree: Mapping[str, Any], *, client_id: str | None = "test", correlation_id: int = 7
) -> bytearray:
    """A request as it comes, without its length."""
    key = KEYS[name]
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
    if client_id is None:
        head += b"\xff\xff"
    else:
        head += len(client_id.encode()).to_bytes(2, "big") + client_id.encode()
    if APIS[key].is_flexible(version):
        head += b"\0"
    return bytearray(head + write_request(key, version, tree))


def joined(pieces: list[Any]) -> bytes:
    """The bytes of an answer; ranges of files are read."""
    return b"".join(piece.read() if isinstance(piece, FileSlice) else bytes(piece) for piece in pieces)


async def call(
    node: Node,
    name: str,
    version: int,
    tree: Mapping[str, Any] | None = None,
    *,
    connection: Connection | None = None,
    client_id: str | None = "test",
) -> Any:
    """The response as a named tuple with kio's names; None where none is sent. Closed where the server closes."""
    frame = request_bytes(name, version, tree or {}, client_id=client_id)
    pieces = await dispatch(node, connection or connection_for(), frame)
    if isinstance(pieces, Close):
        raise Closed(f"{name} version {version}")
    if pieces is None:
        return None
    data = joined(pieces)
    assert int.from_bytes(data[:4], "big") == 7
    key = KEYS[name]
    position = 5 if APIS[key].is_flexible(version) and key != API_VERSIONS else 4
    return read_response(key, version, data, position)


def run_node(tmp_path: Path, body: Callable[[Node], Awaitable[None]], **settings: Any) -> None:
    """Run `body` on a node with a topic `t` of two partitions."""

    async def main() -> None:
        async with node_for(tmp_path, **settings) as node:
            await node.topics.create("t", 2)
            await body(node)

    asyncio.run(main())
