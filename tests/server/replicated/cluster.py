"""A replica set of three `kafkalog serve` processes behind a proxy, and what lies in their directories afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kafkalog.cli.promote_cmd import _promote
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.quorum.messages import DESCRIBE_QUORUM, describe_request, read_described
from tests.command_server import Forked
from tests.commands import ROOT, begun, environment, server
from tests.plain_reader import read_batch
from tests.ports import free_ports
from tests.server.replicated.checker import Copy, Key
from tests.server.replicated.proxy import HOST, Proxy
from tests.server.replicated.slow_node import PARENT, VARIABLE

NODES: Final = (1, 2, 3)
METADATA: Final = 3
STOP_S: Final = 60
ASK_S: Final = 30
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
ABORT: Final = b"\0\0\0\0"
"""The key of a marker that aborts."""
IMPORTED: Final = ("kafkalog.cli.serve_cmd", "kafkalog.server.serving", "kafkalog.server.net.listener", "uvloop")
"""Most of what the command of a node imports; nodes are killed, and report none of it."""
SETTINGS: Final = {
    "min.insync.replicas": 2, "replica.lag.time.max.ms": 2000, "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2, "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000, "log.cleaner.dedupe.buffer.size": 4194304, "log.segment.bytes": 1048576,
}  # fmt: skip


class Cluster:
    """Three nodes, by number. Nodes and clients reach them through the proxy alone; `promote` and `leads` do not."""

    def __init__(self, directory: Path, seed: object, settings: Mapping[str, object] = SETTINGS) -> None:
        self.directory = directory
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.proxy = Proxy(self.ports, seed)
        self.kills = 0
        self._settings = settings
        self._processes: dict[int, Forked | subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()

    def __enter__(self) -> Cluster:
        self.proxy.__enter__()
        try:
            for node in NODES:
                self.start(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in tuple(self._processes):
            self.kill(node)
        self.proxy.__exit__()

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses for clients."""
        return self.bootstrap_of(None)

    def bootstrap_of(self, nodes: Collection[int] | None) -> str:
        """Return these nodes (None: all) as clients see them."""
        return ",".join(self.advertised_address(node) for node in NODES if nodes is None or node in nodes)

    def address(self, node: int) -> tuple[str, int]:
        """Return the address that a node listens on."""
        return HOST, self.ports[node]

    def advertised_address(self, node: int) -> str:
        """Return HOST:PORT of a node as the other nodes and clients see it."""
        return f"{HOST}:{self.proxy.ports[node]}"

    def inside(self, node: int) -> list[str]:
        """Return the first words of a node's command."""
        return []

    def log_of(self, node: int) -> Path:
        """The file with what a node said."""
        return self.directory / f"node-{node}.log"

    def data_of(self, node: int) -> Path:
        """Its data directory."""
        return self.directory / f"data-{node}"

    # What happens to nodes

    def start(self, node: int) -> None:
        """Start it, or do nothing where it runs."""
        if node in self._processes:
            return
        settings = {
            **self._settings, "node.id": node,
            "kafkalog.replicas": ",".join(f"{one}@{self.advertised_address(one)}" for one in NODES),
            "advertised.listeners": f"PLAINTEXT://{self.advertised_address(node)}",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        host, port = self.address(node)
        program = ["tests.server.replicated.slow_node", "serve", "-v", "-d", str(self.data_of(node)),
                   "--listen", f"{host}:{port}", *words]  # fmt: skip
        environ = environment(**{VARIABLE: str(self._slow(node))})
        inside = self.inside(node)
        with self.log_of(node).open("ab") as out:
            ending = {PARENT: str(server().pid)}
            forked = None if inside else begun(program, out, ROOT, {**environ, **ending}, IMPORTED)
            self._processes[node] = forked or subprocess.Popen(
                [*inside, sys.executable, "-m", *program], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT,
                env={**environ, PARENT: str(os.getpid())},
            )  # fmt: skip

    def kill(self, node: int) -> None:
        """`kill -9`."""
        process = self._processes.pop(node, None)
        self._paused.discard(node)
        if process is not None:
            process.kill()
            process.wait()
            self.kills += 1

    def stop(self, node: int) -> int:
        """Ends it as an operator does; its status."""
        process = self._processes.pop(node)
        process.terminate()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            return process.wait()

    def pause(self, node: int) -> None:
        """Let it stand still."""
        if node in self._processes:
            self._processes[node].send_signal(signal.SIGSTOP)
            self._paused.add(node)

    def slow(self, node: int, seconds: float) -> None:
        """Let each call of its disk take so long."""
        self._slow(node).write_text(str(seconds), encoding="ascii")

    def _slow(self, node: int) -> Path:
        return self.directory / f"slow-{node}"

    def heal(self) -> None:
        """All nodes run, no disk is slow, no link is cut."""
        for node in NODES:
            if node in self._paused:
                self._paused.discard(node)
                self._processes[node].send_signal(signal.SIGCONT)
            self._slow(node).unlink(missing_ok=True)
            self.start(node)
        self.proxy.heal()

    def dead(self) -> list[int]:
        """Return the nodes that ended on their own."""
        return [node for node, process in self._processes.items() if process.poll() is not None]

    def is_running(self, node: int) -> bool:
        """Return True if the node was started, and not stopped by the test."""
        return node in self._processes

    # Who leads

    def promote(self, node: int, *, is_forced: bool = False) -> str:
        """"" where it leads, else why it does not."""
        try:
            asyncio.run(asyncio.wait_for(_promote(*self.address(node), peer_settings({}), is_forced), 60))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def states(self) -> dict[int, tuple[int, int]]:
        """(term, leader) as each node that answers knows them."""
        return asyncio.run(self._states())

    def in_sync(self, topics: Iterable[str]) -> int:
        """Return the lowest count of in-sync replicas in any partition of the topics; 0 while no node reports it.
        Only the leader is asked: followers do not know."""
        leader = self.leader()
        partitions = self._partitions(leader, topics) if leader else []
        return min((len(one.isr_nodes) for one in partitions), default=0)

    def _partitions(self, node: int, topics: Iterable[str]) -> list[Any]:
        try:
            return asyncio.run(asyncio.wait_for(self._metadata(node, topics), ASK_S))
        except Exception:
            return []

    async def _metadata(self, node: int, topics: Iterable[str]) -> list[Any]:
        connection = await connect(*self.address(node), peer_settings({}))
        try:
            answer = await connection.request(METADATA, {
                "topics": [{"topic_id": None, "name": name} for name in topics], "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False, "include_cluster_authorized_operations": False,
            })  # fmt: skip
        finally:
            await connection.close()
        return [one for topic in answer.topics for one in topic.partitions]

    async def _states(self) -> dict[int, tuple[int, int]]:
        async def one(node: int) -> tuple[int, tuple[int, int]] | None:
            with suppress(Exception):
                async with asyncio.timeout(ASK_S):
                    connection = await connect(*self.address(node), peer_settings({}))
                    try:
                        return node, read_described(await connection.request(DESCRIBE_QUORUM, describe_request()))
                    finally:
                        await connection.close()
            return None

        asked = [one(node) for node in NODES if node in self._processes and node not in self._paused]
        return dict(found for found in await asyncio.gather(*asked) if found is not None)

    def leader(self) -> int:
        """The node that says of itself that it leads in the highest term; 0 for none."""
        mine = [(term, node) for node, (term, leader) in self.states().items() if leader == node]
        return max(mine, default=(0, 0))[1]


# Afterwards

def copies_of(directories: Mapping[int, Path], topics: Mapping[str, int]) -> dict[Key, dict[int, Copy]]:
    """Return the content of stopped nodes' data directories, read by the tests' own reader."""
    return {
        (topic, index): {node: _copy(path, topic, index) for node, path in directories.items()}
        for topic, count in topics.items()
        for index in range(count)
    }


def _copy(directory: Path, topic: str, index: int) -> Copy:
    batches = [one for path in sorted((directory / f"{topic}-{index}").glob("*.log")) for one in _batches(path)]
    records = [
        (record.offset, (record.value or b"").split(b" ", 1)[0].decode())
        for data in committed(data for _, data in batches)
        for record in read_batch(data)[0]
    ]
    start = _checkpoint(directory / "log-start-offset-checkpoint", topic, index)
    mark = _checkpoint(directory / "replication-offset-checkpoint", topic, index)
    return Copy(start, mark, tuple(records), tuple(batches))


def committed(batches: Iterable[bytes]) -> list[bytes]:
    """Those with records, in their order, without transactions that were aborted or are open."""
    found: list[bytes] = []
    of_open: dict[bytes, list[bytes]] = {}
    gone: set[int] = set()
    for data in batches:
        attributes, producer = int.from_bytes(data[21:23], "big"), data[43:51]
        if attributes & CONTROL:
            is_abort = read_batch(data)[0][0].key == ABORT
            ended = of_open.pop(producer, [])
            gone.update(map(id, ended) if is_abort else ())
        else:
            found.append(data)
            if attributes & TRANSACTIONAL:
                of_open.setdefault(producer, []).append(data)
    gone.update(id(data) for left in of_open.values() for data in left)
    return [data for data in found if id(data) not in gone]


def _batches(path: Path) -> Iterator[tuple[int, bytes]]:
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if size == 12:
            return
        yield int.from_bytes(data[at : at + 8], "big"), data[at : at + size]
        at += size


def _checkpoint(path: Path, topic: str, index: int) -> int:
    if not path.exists():
        return 0
    rows = [line.rsplit(" ", 2) for line in path.read_text(encoding="utf-8").splitlines()[2:]]
    return next((int(row[2]) for row in rows if row[:2] == [topic, str(index)]), 0)


def complaints(path: Path) -> list[str]:
    """Tracebacks in what a node said."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if os.path.exists(path) else []
    return [
        " | ".join(lines[max(0, at - 1) : at + 1] + [line for line in lines[at + 1 : at + 40] if line[:1].strip()][:1])
        for at, line in enumerate(lines)
        if line.startswith("Traceback")
    ]
