"""A test's cluster of three nodes: its start and its memory; and the cost of a fault that no produce matches.

The cost is the CPU of the server for produce requests of one record each, with the fault over without it. The two take
turns in the same run, in short rounds, and the median of the rounds counts: work of other programs slows both alike.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.servers import memory_mb, processes_of, shared_memory_mb, stat, threads_cpu_s
from kafkalog.testing import KafkaServer, kafka_cluster, kafka_server
from tests.builder import R, batch
from tests.server.nodes import request_bytes

NODES = 3
READY_S, MEMORY_MB, FAULT_PERCENT = 1, 150, 2
STARTS = 5
TOPIC, OTHER = "orders", "payments"
WARM_UP, ROUNDS, REQUESTS, UNCOUNTED = 5000, 120, 200, 20
VERSION = 9
"""Of the produce requests: the first flexible one."""
_PARENT = 1
"""Place of the parent's number in /proc/PID/stat, from the state on."""


def rows(_: Path) -> list[Row]:
    """Return the cluster's start and memory, and the share that a fault adds to a produce."""
    return [*_started(), _fault_cost()]


def _started() -> list[Row]:
    ready_s, shared_mb, resident_mb = [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        with kafka_cluster(nodes=NODES) as cluster:
            ready_s.append(time.perf_counter() - began)
            host = int(stat(cluster.pid(1))[_PARENT])
            processes = processes_of(host)
            shared_mb.append(shared_memory_mb(processes))
            resident_mb.append(sum(map(memory_mb, processes)))
    resident = f"{statistics.median(resident_mb):.0f} MB resident: pages that processes share count in each"
    return [
        Row(f"{NODES} nodes are ready", statistics.median(ready_s), READY_S, "s", less_is_better=True),
        Row("memory of all processes", statistics.median(shared_mb), MEMORY_MB, "MB", True, remark=resident),
    ]


def _fault_cost() -> Row:
    ratios = []
    with kafka_server(topics=TOPIC, unmatched="ignore") as server, _produce(server) as produce:
        produce(WARM_UP)
        for number in range(ROUNDS):
            is_first = number % 2 == 0  # the order alternates: what drifts cancels out
            first = _cpu_s(server, produce, has_fault=is_first)
            second = _cpu_s(server, produce, has_fault=not is_first)
            ratios.append(first / second if is_first else second / first)
    percent = 100 * (statistics.median(ratios) - 1)
    return Row("a fault that does not match, of a produce", percent, FAULT_PERCENT, "%", less_is_better=True)


def _cpu_s(server: KafkaServer, produce: Callable[[int], None], *, has_fault: bool) -> float:
    fault = server.fault("Produce", topic=OTHER, error="INVALID_REQUEST") if has_fault else None
    produce(UNCOUNTED)  # the first request after a change is read in full
    began = threads_cpu_s(server.pid)
    produce(REQUESTS)
    taken = threads_cpu_s(server.pid) - began
    if fault is not None:
        fault.remove()
    return taken


@contextmanager
def _produce(server: KafkaServer) -> Iterator[Callable[[int], None]]:
    """Yield a function that sends so many requests, each after the response to the one before."""
    partitions = [{"index": 0, "records": batch([R(b"a value", timestamp=int(time.time() * 1000))])}]
    tree = {"acks": 1, "timeout": 30_000, "topic_data": [{"name": TOPIC, "partition_data": partitions}]}
    request = request_bytes("produce", VERSION, tree)
    framed = len(request).to_bytes(4, "big") + request
    with socket.create_connection(("127.0.0.1", server.port)) as sock, sock.makefile("rb") as answers:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def produce(count: int) -> None:
            for _ in range(count):
                sock.sendall(framed)
                answers.read(int.from_bytes(answers.read(4), "big"))

        yield produce
