"""The cost of hostile clients for others: requests that never end, batches that are rejected once decompressed.

The server is a process of its own, and so are the clients that send half a request each. Times are of the wall: it is
waiting that is measured, the longest of many calls.
"""

from __future__ import annotations

import resource
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import cramjam

from asv_benchmarks.measure import KAFKALOG, Row, wall_seconds
from asv_benchmarks.servers import memory_mb, serving
from tests.builder import R, batch, frame
from tests.server.nodes import request_bytes

BOMBS, BOMB_MB = 40, 240
STRANGERS, STRANGERS_CLAIM = 1500, 524_288
LARGE_CLIENTS, LARGE_CLAIM = 200, 95_000_000
MANY_CLIENTS, MANY_CLAIM = 1500, 1_048_576
WATCHED_S = 8.0
TIMEOUT_S = 30.0
AGAIN_S = 3.0
"""A client that the server gave up begins again after so long."""
USER, PASSWORD = "watcher", "watched"
SETTINGS = {"num.partitions": "1", "message.max.bytes": "4194304", "offsets.topic.num.partitions": "1"}


def rows(directory: Path) -> list[Row]:
    """Memory after refused batches; calls beside strangers, and beside clients of a listener without logins."""
    return [
        *_bombs(directory / "bombs"),
        *_strangers(directory / "strangers"),
        *_large(directory / "large"),
        *_many(directory / "many", asks_first=False),
        *_many(directory / "known", asks_first=True),
    ]


def _bombs(work: Path) -> list[Row]:
    junk = batch([R(bytes(10), timestamp=5_000)])[61:] + bytes(BOMB_MB << 20)
    packed = bytes(cramjam.zstd.compress(junk))
    bomb = frame(packed, count=1, last_delta=0, attributes=4, base_timestamp=5_000, max_timestamp=5_000)
    with _server(work, "PLAINTEXT") as (process_id, address), closing(_Client(address)) as client:
        client.make_topic()
        before = memory_mb(process_id)
        for _ in range(BOMBS):
            client.produce(bomb)
        return [Row(f"memory that {BOMBS} refused batches leave", memory_mb(process_id) - before, 200, "MB", True)]


def _strangers(work: Path) -> list[Row]:
    def log_in() -> None:
        with closing(_Client(address)) as another:
            another.log_in()

    with _server(work, "SASL_PLAINTEXT") as (process_id, address), closing(_Client(address)) as client:
        client.log_in()
        client.call("metadata", 1, {"topics": ()})
        before = memory_mb(process_id)
        with _halves(address, STRANGERS, STRANGERS_CLAIM) as attack:
            calls, logins = _watched(attack, lambda: client.call("metadata", 1, {"topics": ()}), log_in)
            grown = memory_mb(process_id) - before
    beside = f"beside {STRANGERS:,} strangers with half a request"
    return [
        Row(f"a call {beside}", max(calls), 0.5, "s", True),
        Row(f"a login {beside}", max(logins), 1, "s", True),
        Row(f"memory of {STRANGERS:,} strangers with half a request", grown, 200, "MB", True),
    ]


def _large(work: Path) -> list[Row]:
    small, large = batch([R(b"small")]), batch([R(bytes(1_000_000))])
    with _server(work, "PLAINTEXT") as (process_id, address), closing(_Client(address)) as client:
        client.make_topic()
        client.produce(small)
        before = memory_mb(process_id)
        with _halves(address, LARGE_CLIENTS, LARGE_CLAIM) as attack:
            smalls, larges = _watched(attack, lambda: client.produce(small), lambda: client.produce(large))
            grown = memory_mb(process_id) - before
    beside = f"beside {LARGE_CLIENTS} clients with half of 95 MB"
    return [
        Row(f"a produce {beside}", max(smalls), 0.5, "s", True),
        Row(f"a produce of 1 MB {beside}", max(larges), 0.5, "s", True),
        Row(f"memory of {LARGE_CLIENTS} clients with half of 95 MB", grown, 300, "MB", True),
    ]


def _many(work: Path, *, asks_first: bool) -> list[Row]:
    """Requests as large as those of the others, from the same address: on a connection that has sent such, and on new
    ones. With `asks_first` a new one looks like the others, so it waits for its turn behind the earlier
    before: five times what there is room for, half a second each."""
    large = batch([R(bytes(1_000_000))])

    def on_a_new_connection() -> None:
        with closing(_Client(address)) as another:
            another.call("api_versions", 0, {})
            another.produce(large)

    with _server(work, "PLAINTEXT") as (process_id, address), closing(_Client(address)) as client:
        client.make_topic()
        client.produce(large)
        before = memory_mb(process_id)
        with _halves(address, MANY_CLIENTS, MANY_CLAIM, asks_first=asks_first) as attack:
            old, new = _watched(attack, lambda: client.produce(large), on_a_new_connection)
            grown = memory_mb(process_id) - before
    beside = f"beside {MANY_CLIENTS:,} clients with half of 1 MB" + (" that asked before" if asks_first else "")
    return [
        Row(f"a produce of 1 MB {beside}", max(old), 1.5, "s", True),
        Row(f"a new client's produce of 1 MB {beside}", max(new), 6 if asks_first else 1.5, "s", True),
        Row(f"memory of {beside.removeprefix('beside ')}", grown, 300, "MB", True),
    ]


def _watched(attack: subprocess.Popen[str], *calls: Any) -> list[list[float]]:
    """Return the seconds of repeated calls while others send. A failed call counts as TIMEOUT_S, and ends it."""
    took: list[list[float]] = [[] for _ in calls]
    until = time.monotonic() + WATCHED_S
    while time.monotonic() < until:
        for call, seconds in zip(calls, took, strict=True):
            try:
                seconds.append(wall_seconds(call))
            except OSError:  # no answer in time, or the server has closed the connection
                seconds.append(TIMEOUT_S)
                return took
        time.sleep(0.02)
    if attack.poll() is not None:
        raise RuntimeError("the clients that send half a request ended")
    return took


class _Client:
    """One connection, with one call at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.create_connection(address, timeout=TIMEOUT_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._sock.close()

    def call(self, name: str, version: int, tree: Mapping[str, Any]) -> bytes:
        request = request_bytes(name, version, tree)
        self._sock.sendall(len(request).to_bytes(4, "big") + request)
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the server has closed the connection")
            data += more
        return data

    def log_in(self) -> None:
        self.call("sasl_handshake", 1, {"mechanism": "PLAIN"})
        self.call("sasl_authenticate", 1, {"auth_bytes": f"\0{USER}\0{PASSWORD}".encode()})

    def make_topic(self) -> None:
        self.call("metadata", 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})

    def produce(self, records: bytes) -> None:
        topic = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
        tree = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": [topic]}
        self.call("produce", 9, tree)


@contextmanager
def _server(work: Path, protocol: str) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield a server's process id and address; it has a user."""
    work.mkdir()
    data, password = work / "data", work / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    added = ["serve", "-d", str(data), "--add-user", USER, "--password-file", str(password)]
    subprocess.run([*KAFKALOG, *added], check=True, capture_output=True)
    with serving(data, f"{protocol}://127.0.0.1:0", SETTINGS) as running:
        yield running.process_id, running.address


@contextmanager
def _halves(
    address: tuple[str, int], count: int, claim: int, *, asks_first: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run a process with `count` connections that each send half of a request of `claim` bytes.

    A connection that the server ends is reopened a moment later. With `asks_first` each has one answer before.
    """
    given = map(str, (*address, count, claim, int(asks_first)))
    command = [sys.executable, "-m", "asv_benchmarks.strangers", *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # all are connected
        yield process
    finally:
        process.terminate()
        process.wait()


class _Halves:
    """Hold connections that each send half of a request, and then nothing; reopen those that end."""

    def __init__(self, address: tuple[str, int], claim: int, asks_first: bool) -> None:
        self._address = address
        self._claim = claim
        self._asks_first = asks_first
        self._selector = selectors.DefaultSelector()
        self._left: dict[socket.socket, int] = {}
        self._again: deque[float] = deque()

    def connect(self) -> None:
        sock = socket.create_connection(self._address)
        if self._asks_first:
            request = request_bytes("api_versions", 0, {})
            sock.sendall(len(request).to_bytes(4, "big") + request)
            sock.recv(1 << 16)
        sock.setblocking(False)
        sock.send(self._claim.to_bytes(4, "big"))
        self._left[sock] = self._claim // 2
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def run(self) -> None:
        """Send and reconnect until the process is ended."""
        chunk = bytes(1 << 18)
        while True:
            for key, events in self._selector.select(AGAIN_S / 10):
                self._go_on(key.fileobj, events, chunk)
            while self._again and self._again[0] < time.monotonic():
                self._again.popleft()
                self.connect()

    def _go_on(self, sock: Any, events: int, chunk: bytes) -> None:
        try:
            if not events & selectors.EVENT_READ:
                self._left[sock] -= sock.send(chunk[: self._left[sock]])
                if not self._left[sock]:
                    self._selector.modify(sock, selectors.EVENT_READ)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(sock)
        sock.close()
        del self._left[sock]
        self._again.append(time.monotonic() + AGAIN_S)


def _main(arguments: Sequence[str]) -> None:
    host, port, count, claim, asks_first = arguments
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    halves = _Halves((host, int(port)), int(claim), asks_first == "1")
    for _ in range(int(count)):
        halves.connect()
    print("connected", flush=True)
    halves.run()


if __name__ == "__main__":
    _main(sys.argv[1:])
