"""Snapshots of a test's cluster of 1,000 records in 20 topics, and going back to them, by the wall clock."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from confluent_kafka import Producer

from asv_benchmarks.measure import Row
from kafkalog.testing import kafka_cluster

BAR_MS = 50
RECORDS = 1000
TOPICS = tuple(f"t{number}" for number in range(20))
ROUNDS = 15


def rows(_: Path) -> list[Row]:
    """Return the median times of a snapshot and a restore, for one node and for three."""
    return [row for nodes in (1, 3) for row in _of(nodes)]


def _of(nodes: int) -> list[Row]:
    taken: dict[str, list[float]] = {}
    with kafka_cluster(nodes=nodes, topics=TOPICS) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

        def write(count: int) -> None:
            for number in range(count):
                producer.produce(TOPICS[number % len(TOPICS)], b"%d" % number)
            producer.flush()

        write(RECORDS)
        for is_changed in (False, True) * ROUNDS:
            began = time.perf_counter()
            before = cluster.snapshot()
            taken.setdefault("snapshot", []).append(time.perf_counter() - began)
            if is_changed:
                write(len(TOPICS))
            began = time.perf_counter()
            cluster.restore(before)
            work = "restore, all topics changed" if is_changed else "restore, nothing changed"
            taken.setdefault(work, []).append(time.perf_counter() - began)
    name = "1 node" if nodes == 1 else f"{nodes} nodes"
    return [
        Row(f"{work}, {name}", 1e3 * statistics.median(seconds), BAR_MS, "ms", less_is_better=True)
        for work, seconds in taken.items()
    ]
