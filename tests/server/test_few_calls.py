"""A produce and a fetch cross each layer once: how many Python functions one calls, from its bytes to its answer."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.net.connection import Channel
from tests.builder import R, batch
from tests.server.net.networks import network_for
from tests.server.nodes import node_for, request_bytes

MOST_OF_PRODUCE, MOST_OF_FETCH = 30, 48
RECORDS = 16


class Calls:
    """The names of the Python functions that were called, a coroutine once for each of its steps."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.names.append(f"{frame.f_code.co_filename.rpartition('/')[2]} {frame.f_code.co_qualname}")


class Client:
    """A connection whose requests are answered while somebody counts."""

    def __init__(self, sock: socket.socket, channel: Channel) -> None:
        self._sock = sock
        self._channel = channel

    def calls_of(self, frame: bytearray) -> list[str]:
        """Return the calls of one request, which has to be answered at once."""
        self._sock.sendall(len(frame).to_bytes(4, "big") + frame)
        come = b""
        while len(come) < len(frame) + 4:
            _wait_for(self._channel)
            come = self._channel._sock.recv(1 << 20, socket.MSG_PEEK)
        calls = Calls()
        sys.setprofile(calls)
        try:
            self._channel._on_readable()
        finally:
            sys.setprofile(None)
        _wait_for(self._sock)
        size = int.from_bytes(self._sock.recv(4, socket.MSG_WAITALL), "big")
        assert size and len(self._sock.recv(size, socket.MSG_WAITALL)) == size
        return calls.names


def _wait_for(readable: Any) -> None:
    poll = select.poll()
    poll.register(readable, select.POLLIN)
    assert poll.poll(10_000)


@pytest.fixture(autouse=True)
def _no_answer_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread would write one that took long to make, on a machine that is busy."""
    monkeypatch.setattr("kafkalog.server.apis.dispatch.LARGE_SECONDS", 1e9)


def count_calls(path: Path, body: Callable[[Client, Any], None]) -> None:
    async def main() -> None:
        async with node_for(path, listeners="PLAINTEXT://127.0.0.1:0") as node:
            await node.topics.create("t", 1)
            async with network_for(partial(dispatch, node)) as network:
                port = network.listeners["PLAINTEXT"].port
                sock = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
                while not network.channels:
                    await asyncio.sleep(0.001)
                [channel] = network.channels.values()
                with sock:
                    body(Client(sock, channel), node)

    asyncio.run(main())


def produce_frame() -> bytearray:
    data = batch([R(b"v" * 1000, b"key") for _ in range(RECORDS)])
    partition = {"index": 0, "records": data}
    topics = [{"name": "t", "partition_data": [partition]}]
    tree = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": topics}
    return request_bytes("produce", 11, tree)


def fetch_frame(topic_id: Any, session: tuple[int, int] = (0, -1)) -> bytearray:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    tree = {
        "max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": session[0],
        "session_epoch": session[1], "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }  # fmt: skip
    return request_bytes("fetch", 13, tree)


def test_a_produce_request(tmp_path: Path) -> None:
    def body(client: Client, node: Any) -> None:
        for _ in range(3):  # create one-time objects first
            client.calls_of(produce_frame())
        called = client.calls_of(produce_frame())
        assert len(called) <= MOST_OF_PRODUCE, "\n".join(called)

    count_calls(tmp_path, body)


def test_a_fetch_request(tmp_path: Path) -> None:
    def body(client: Client, node: Any) -> None:
        client.calls_of(produce_frame())
        frame = fetch_frame(node.topics.get("t").id)
        for _ in range(3):
            client.calls_of(frame)
        called = client.calls_of(frame)
        assert len(called) <= MOST_OF_FETCH, "\n".join(called)

    count_calls(tmp_path, body)
