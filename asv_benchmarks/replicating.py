"""Three nodes of a replica set on this machine's loopback: how far its followers are behind while a producer writes,
and what a byte that is replicated takes of the leader's CPU beside one that a consumer fetches.

The lag of a record is the time from the answer to its produce with acks=1, when the leader has appended it, to a
consumer's sight of it, when the high watermark says that those in sync have it in their files. It is taken of small
records in a partition of their own, among those that the load is written to.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asv_benchmarks import servers
from asv_benchmarks.measure import KAFKALOG, Row, quantile
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.login import connect
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.following import Row as Asked
from kafkalog.server.replica.following_session import FollowerSession
from kafkalog.server.replica.leader_source import CONSUMER, LeaderSource
from kafkalog.types import TopicPartition

HOST = "127.0.0.1"
NODES = (1, 2, 3)
LEADER, LAST = 1, 3
TOPIC, PARTITIONS = "load", 8
PROBE = TopicPartition(TOPIC, PARTITIONS)
SETTINGS = {
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000", "log.cleaner.enable": "false",
}  # fmt: skip
BATCH_BYTES = 128 << 10
IN_FLIGHT = 4
PROBE_EVERY_S = 0.01
WAIT_S, LOOK_S = 300, 0.1
CPU_ROUNDS = 2
LEAST_CPU_S = 1e-6  # of a log so small that nothing can be said
LAG_P50_MS, LAG_P99_MS, CPU_RATIO = 20, 50, 1.3
PRODUCE, METADATA, CREATE_TOPICS = 0, 3, 19
PRODUCE_BY_NAME = 12


class Lags(NamedTuple):
    """The load in MB per second, and the probes' lags in ms."""

    mb_s: float
    lags_ms: Sequence[float]


def due_s(sent_bytes: int, mb_s: float) -> float:
    """Return the seconds after the start at which the next byte is due, at so many MB per second."""
    return sent_bytes / (mb_s * 1e6)


def seen(waiting: deque[tuple[int, float]], high_watermark: int, now_s: float) -> list[float]:
    """Remove the probes (offset, time of the append) below the high watermark; return their lags in ms."""
    found = []
    while waiting and waiting[0][0] < high_watermark:
        found.append(max(0.0, now_s - waiting.popleft()[1]) * 1e3)
    return found


def rows(directory: Path, seconds: float, mb_s: float) -> list[Row]:
    """Return the lag while `mb_s` are written, and the leader's CPU for each byte that was written."""
    with _running(directory) as nodes:
        nodes.promote()
        lags = asyncio.run(_load(nodes, seconds, mb_s))
        size = _bytes_of(directory / str(LEADER))
        replicated = min(_replicated(nodes, size) for _ in range(CPU_ROUNDS)) / size * 1e6
        consumed = min(asyncio.run(_consumed(nodes)) for _ in range(CPU_ROUNDS)) / size * 1e6
    p50, p99 = statistics.median(lags.lags_ms), quantile(lags.lags_ms, 99)
    return [
        Row("load of a replica set", lags.mb_s, mb_s * 0.99, "MB/s", False),
        Row("replication lag, p50", p50, LAG_P50_MS, "ms", True),
        Row("replication lag, p99", p99, LAG_P99_MS, "ms", True),
        Row("CPU of the leader to replicate", replicated * 1e6, consumed * CPU_RATIO * 1e6, "us/MB", True,
            {"consumer": consumed * 1e6}),
    ]  # fmt: skip


# Nodes


class Nodes:
    """The processes of the set, by number."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(NODES, _free_ports(len(NODES)), strict=True))
        self.directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """Start a node, on what it has in its directory; return when it takes clients."""
        members = ",".join(f"{one}@{HOST}:{port}" for one, port in self.ports.items())
        settings = {**SETTINGS, "node.id": str(number), "kafkalog.replicas": members}
        listen = f"{HOST}:{self.ports[number]}"
        self._processes[number], _ = servers.start(self.directory / str(number), listen, settings)

    def promote(self) -> None:
        """Let the first one lead."""
        subprocess.run([*KAFKALOG, "promote", f"{HOST}:{self.ports[LEADER]}"], check=True, stdout=subprocess.DEVNULL)

    def empty(self, number: int) -> None:
        """Stop a node and take away all that it has."""
        self.stop(number)
        shutil.rmtree(self.directory / str(number))

    def stop(self, number: int) -> None:
        """Stop a node as SIGTERM does."""
        servers.stop(self._processes.pop(number))

    def stop_all(self) -> None:
        for number in tuple(self._processes):
            self.stop(number)

    @property
    def leaders_cpu_s(self) -> float:
        """CPU seconds of the leader's process until now."""
        return servers.threads_cpu_s(self._processes[LEADER].pid)

    async def to_leader(self) -> PeerConnection:
        return await connect(HOST, self.ports[LEADER])


@contextmanager
def _running(directory: Path) -> Iterator[Nodes]:
    nodes = Nodes(directory)
    try:
        for number in NODES:
            nodes.start(number)
        yield nodes
    finally:
        nodes.stop_all()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _bytes_of(data: Path) -> int:
    """Return the bytes of the topic's batches, without the probes'."""
    return sum(file.stat().st_size for index in range(PARTITIONS) for file in (data / f"{TOPIC}-{index}").glob("*.log"))


# The lag


async def _load(nodes: Nodes, seconds: float, mb_s: float) -> Lags:
    connection = await nodes.to_leader()
    try:
        await _made(connection)
    finally:
        await connection.close()
    os.sync()
    context = multiprocessing.get_context("spawn")  # a process of its own, so that the probes' clock is not its
    queue = context.SimpleQueue()
    load = context.Process(target=_write, args=(nodes.ports[LEADER], seconds, mb_s, queue))
    load.start()
    try:
        lags_ms = await _probe(nodes, load.is_alive)
    finally:
        load.join()
    if load.exitcode:
        raise RuntimeError("the load failed")
    return Lags(queue.get(), lags_ms)


async def _made(connection: PeerConnection) -> None:
    topic = {
        "name": TOPIC, "num_partitions": PARTITIONS + 1, "replication_factor": -1, "assignments": [], "configs": [],
    }  # fmt: skip
    answer = await connection.request(CREATE_TOPICS, {"topics": [topic], "timeout": 30_000, "validate_only": False})
    if answer.topics[0].error_code:
        raise RuntimeError(f"the topic cannot be made: error {answer.topics[0].error_code}")
    await _in_sync(connection, set(NODES))


async def _in_sync(connection: PeerConnection, wanted: set[int]) -> None:
    """Return when the replicas in sync of all partitions are these."""
    tree = {
        "topics": [{"topic_id": None, "name": TOPIC}], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False, "include_cluster_authorized_operations": False,
    }  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await connection.request(METADATA, tree)
            if all(set(one.isr_nodes) == wanted for one in answer.topics[0].partitions):
                return
            await asyncio.sleep(LOOK_S)


def _batch(size: int) -> bytes:
    """Return a batch of records of 1 KiB, of about this size."""
    builder = RecordsBuilder(0)
    for _ in range(max(1, size >> 10)):
        builder.append(time.time_ns() // 1_000_000, None, os.urandom(min(size, 1000)))
    return bytes(builder.build())


def _produced(batches: dict[int, bytes]) -> dict[str, Any]:
    rows = [{"index": index, "records": records} for index, records in batches.items()]
    return {
        "transactional_id": None, "acks": 1, "timeout": 30_000,
        "topic_data": [{"name": TOPIC, "partition_data": rows}],
    }  # fmt: skip


def _write(port: int, seconds: float, mb_s: float, queue: Any) -> None:
    """Write the load in a separate process, and put MB per second into the queue."""
    queue.put(asyncio.run(_write_on(port, seconds, mb_s)))


async def _write_on(port: int, seconds: float, mb_s: float) -> float:
    tree = _produced(dict.fromkeys(range(PARTITIONS), _batch(BATCH_BYTES)))
    size = sum(len(row["records"]) for row in tree["topic_data"][0]["partition_data"])
    connection = await connect(HOST, port)
    under_way: deque[asyncio.Task[Any]] = deque()
    began, sent = time.monotonic(), 0
    try:
        while time.monotonic() < began + seconds:
            under_way.append(asyncio.create_task(connection.request(PRODUCE, tree, version=PRODUCE_BY_NAME)))
            sent += size
            if len(under_way) >= IN_FLIGHT:
                _checked(await under_way.popleft())
            await asyncio.sleep(max(0, began + due_s(sent, mb_s) - time.monotonic()))
        for one in under_way:
            _checked(await one)
    finally:
        await connection.close()
    return sent / (time.monotonic() - began) / 1e6


def _checked(answer: Any) -> int:
    """Return the offset of the first row; RuntimeError if a row failed."""
    found = answer.responses[0].partition_responses
    codes = {one.error_code for one in found}
    if codes != {0}:
        raise RuntimeError(f"a produce failed: errors {sorted(codes)}")
    return int(found[0].base_offset)


async def _probe(nodes: Nodes, goes_on: Callable[[], bool]) -> list[float]:
    """Return the lags of probes while the load goes on, in ms."""
    waiting: deque[tuple[int, float]] = deque()
    lags: list[float] = []
    source = LeaderSource(await nodes.to_leader(), CONSUMER, FetchLimits())
    look = asyncio.create_task(_look(source, waiting, lags))
    connection = await nodes.to_leader()
    tree = _produced({PROBE.partition: _batch(100)})
    try:
        while goes_on() and not look.done():
            offset = _checked(await connection.request(PRODUCE, tree, version=PRODUCE_BY_NAME))
            waiting.append((offset, time.monotonic()))
            await asyncio.sleep(PROBE_EVERY_S)
    finally:
        look.cancel()
        await asyncio.wait([look])
        await source.close()
        await connection.close()
    if not look.cancelled():
        look.result()
    # unseen ones are behind by at least as much
    return lags + [(time.monotonic() - appended) * 1e3 for _, appended in waiting]


async def _look(source: LeaderSource, waiting: deque[tuple[int, float]], lags: list[float]) -> None:
    session, offset, mark = FollowerSession(), 0, 0
    while True:
        answers = await source.fetch(
            session.next({PROBE: Asked(offset, -1, -1, -1, 1 << 20)}), {TOPIC: None}
        )
        session.answered(answers.error_code, answers.session_id)
        for _, answer in answers.rows:
            if answer.error_code:
                raise RuntimeError(f"the probes cannot be fetched: error {answer.error_code}")
            mark = offset = max(mark, answer.high_watermark)
        lags += seen(waiting, mark, time.monotonic())


# The leader's CPU


def _replicated(nodes: Nodes, size: int) -> float:
    """Return the leader's CPU seconds for an empty follower, minus those for one that starts with all bytes."""
    found = []
    for end in (nodes.stop, nodes.empty):
        end(LAST)
        began = nodes.leaders_cpu_s
        nodes.start(LAST)
        servers.wait_until(lambda: _bytes_of(nodes.directory / str(LAST)) >= size, WAIT_S)
        found.append(nodes.leaders_cpu_s - began)
    return max(LEAST_CPU_S, found[1] - found[0])


async def _consumed(nodes: Nodes) -> float:
    """Return the leader's CPU seconds while a consumer fetches the same, as many bytes at once as a follower."""
    limits = FetchLimits()
    source = LeaderSource(await nodes.to_leader(), CONSUMER, limits)
    session = FollowerSession()
    wanted = {
        TopicPartition(TOPIC, index): Asked(0, -1, -1, -1, limits.partition_max_bytes) for index in range(PARTITIONS)
    }
    began = nodes.leaders_cpu_s
    try:
        while wanted:
            answers = await source.fetch(session.next(wanted), {TOPIC: None})
            session.answered(answers.error_code, answers.session_id)
            for key, answer in answers.rows:
                end = _end_of(answer.records)
                if end is not None:
                    wanted[key] = wanted.pop(key)._replace(fetch_offset=end)
                if wanted[key].fetch_offset >= answer.high_watermark:
                    del wanted[key]
        return nodes.leaders_cpu_s - began
    finally:
        await source.close()


def _end_of(records: memoryview | None) -> int | None:
    """Return the offset after the last whole batch; None if there is none."""
    if records is None:
        return None
    position, end = 0, None
    while position + 61 <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        if position + size > len(records):
            break
        base = int.from_bytes(records[position : position + 8], "big")
        end = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size
    return end
