"""The proxy forwards bytes in order, and cuts exactly the requested links."""

from __future__ import annotations

import asyncio
import gc
import socket
import socketserver
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.server.replicated.proxy import CLIENT, HEALTHY, HOST, Condition, Proxy

WAIT_S = 60


class Echo(socketserver.ThreadingTCPServer):
    """Answers each request frame with itself."""

    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), EchoOne)
        self.port = self.server_address[1]
        self.seen = 0


class EchoOne(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionError):
            while size := self.rfile.read(4):
                data = self.rfile.read(int.from_bytes(size, "big"))
                self.server.seen += 1  # type: ignore[attr-defined]
                self.wfile.write(size + data)

    def finish(self) -> None:
        with suppress(ConnectionError):
            super().finish()


class Client:
    def __init__(self, port: int, name: bytes) -> None:
        self.socket = socket.create_connection((HOST, port), WAIT_S)
        self.stream = self.socket.makefile("rb")
        body = b"\0\x12\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name
        self.first = len(body).to_bytes(4, "big") + body

    def ask(self, more: bytes = b"") -> bytes:
        self.send(more)
        return self.answer()

    def send(self, more: bytes = b"") -> None:
        self.socket.sendall(len(self.first[4:] + more).to_bytes(4, "big") + self.first[4:] + more)

    def answer(self) -> bytes:
        size = int.from_bytes(self.stream.read(4), "big")
        if not size:
            raise ConnectionResetError
        return self.stream.read(size)[len(self.first) - 4 :]

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


@pytest.fixture
def echoes() -> Iterator[tuple[Echo, Echo]]:
    both = (Echo(), Echo())
    threads = [threading.Thread(target=one.serve_forever, args=(0.01,)) for one in both]
    for thread in threads:
        thread.start()
    yield both
    for one in both:
        one.shutdown()
        one.server_close()
    for thread in threads:
        thread.join()


@pytest.fixture
def proxy(echoes: tuple[Echo, Echo]) -> Iterator[Proxy]:
    with Proxy({1: echoes[0].port, 2: echoes[1].port}) as made:
        yield made


def test_all_passes_in_order_slow_or_not(proxy: Proxy) -> None:
    client = Client(proxy.ports[1], b"kafkalog-replica-2")
    data = bytes(range(256)) * 3000
    assert client.ask(data) == data
    proxy.set(2, 1, Condition(delay_s=0.001, jitter_s=0.01, bytes_per_s=50_000_000))
    assert [client.ask(b"%d" % number) for number in range(5)] == [b"%d" % number for number in range(5)]
    assert client.ask(data) == data
    assert proxy.passed.keys() == {(2, 1)} and proxy.passed[2, 1] > 2 * len(data)
    client.close()


def test_a_reset_ends_the_link_and_no_other(proxy: Proxy) -> None:
    cut, other, back = (
        Client(proxy.ports[1], b"kafkalog-replica-2"), Client(proxy.ports[1], b"anybody"),
        Client(proxy.ports[2], b"kafkalog-replica-1"),
    )  # fmt: skip
    assert {one.ask(b"a") for one in (cut, other, back)} == {b"a"}
    proxy.set(2, 1, Condition("reset"))
    with pytest.raises(ConnectionError):
        cut.ask(b"b")
    again = Client(proxy.ports[1], b"kafkalog-replica-2")
    with pytest.raises(ConnectionError):
        again.ask(b"c")
    assert {one.ask(b"d") for one in (other, back)} == {b"d"}
    proxy.heal()
    healed = Client(proxy.ports[1], b"kafkalog-replica-2")
    assert healed.ask(b"e") == b"e"
    for one in (cut, other, back, again, healed):
        one.close()


def test_a_hole_holds_what_is_asked_until_it_is_healed(proxy: Proxy, echoes: tuple[Echo, Echo]) -> None:
    held, other = Client(proxy.ports[1], b"x"), Client(proxy.ports[2], b"x")
    assert held.ask() == b"" and echoes[0].seen == 1
    proxy.set(CLIENT, 1, Condition("hole"))
    held.send(b"later")
    new = Client(proxy.ports[1], b"x")
    new.send(b"new")
    assert [other.ask() for _ in range(5)] == [b""] * 5
    assert echoes[0].seen == 1
    proxy.set(CLIENT, 1, HEALTHY)
    assert held.answer() == b"later" and new.answer() == b"new"
    for one in (held, other, new):
        one.close()


def test_a_mute_node_is_asked_and_its_answers_are_held(proxy: Proxy, echoes: tuple[Echo, Echo]) -> None:
    client, other = Client(proxy.ports[1], b"x"), Client(proxy.ports[1], b"kafkalog-replica-2")
    assert client.ask() == b""
    proxy.set(CLIENT, 1, Condition("mute"))
    client.send(b"asked")
    while echoes[0].seen < 2:  # it comes
        assert other.ask() == b""
    client.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(WAIT_S)
    proxy.heal()
    assert client.socket.recv(4) == (len(client.first) - 4 + 5).to_bytes(4, "big")
    client.close()
    other.close()


def open_transports() -> int:
    """Return the number of asyncio's transports with an open socket."""
    there = [one for one in gc.get_objects() if isinstance(one, asyncio.Transport)]
    return sum(one.get_extra_info("socket").fileno() >= 0 for one in there)


def test_a_proxy_that_ends_leaves_no_connection_open(echoes: tuple[Echo, Echo]) -> None:
    before = open_transports()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(5):
            with Proxy({1: echoes[0].port, 2: echoes[1].port}) as proxy:
                clients = [Client(proxy.ports[number % 2 + 1], b"kafkalog-replica-2") for number in range(20)]
                for client in clients[:10]:  # the others are in all stages of beginning
                    client.ask()
                for client in clients:
                    client.send(b"x")
            assert open_transports() == before
            for client in clients:
                client.close()
        gc.collect()
    assert not [str(one.message) for one in warned if issubclass(one.category, ResourceWarning)]


def test_a_connection_that_was_accepted_a_moment_before_the_end_is_closed(echoes: tuple[Echo, Echo]) -> None:
    is_waiting = threading.Event()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with Proxy({1: echoes[0].port}) as proxy:
            proxy._loop.call_soon_threadsafe(is_waiting.wait)
            client = Client(proxy.ports[1], b"x")
            ended = asyncio.run_coroutine_threadsafe(proxy._close(), proxy._loop)
            is_waiting.set()  # its next turn takes the connection, and begins to end
            ended.result(WAIT_S)
        client.close()
        gc.collect()
    assert not [str(one.message) for one in warned if issubclass(one.category, ResourceWarning)]
