"""The server beside a real broker: the same performance tools of the reference, one after the other on this machine.

Records for each second are what the client got through, and move with what else runs here; the server's own CPU for
each record moves less. So the two take turns, ROUNDS of each, what one left to be written goes to the disk before the
next is timed, and the best of each counts. The bar of each row is the broker's figure of the same call, where the
project has set none.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asv_benchmarks.measure import Row
from asv_benchmarks.servers import Running, cpu_s, memory_mb, serving
from tests.interop import toolchain
from tests.interop.broker import Broker

ROUNDS = 2
SIZES = {100: 5, 1024: 1}
"""Bytes of a record -> how many times SERVE_RECORDS of them are sent."""
HEAP = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
SETTINGS = {"offsets.topic.num.partitions": "2", "num.partitions": "1", "auto.create.topics.enable": "true"}
TOOL = "org.apache.kafka.tools"
SLOW_RECORDS, SLOW_RATE = 4000, 400  # of single records, so far apart that each is a request of its own
_SENT = re.compile(r"([\d.]+) records/sec .*?([\d.]+) ms 99th")


class Figures(NamedTuple):
    """Figures of one server.

    `rows` are (records for each second, its CPU in us for each record) by name, `p99_ms` the latency of single records
    by acks, and memory is resident, before the first client and after the last one.
    """

    rows: dict[str, tuple[float, float]]
    p99_ms: dict[str, float]
    start_s: float
    idle_mb: float
    memory_mb: float


def rows(directory: Path, records: int) -> list[Row]:
    """Start, memory, produce and consume of records of two sizes, and single records; `records` of the larger size."""
    all_ours, all_theirs = [], []
    for turn in range(ROUNDS):
        all_theirs.append(_measure(_broker(directory / f"broker{turn}"), records))
        all_ours.append(_measure(serving(directory / f"own{turn}", "localhost:0", SETTINGS), records))
    ours, theirs = _best(all_ours), _best(all_theirs)
    found = []
    for name, (rate, cpu) in ours.rows.items():
        their_rate, their_cpu = theirs.rows[name]
        found.append(Row(f"{name}", rate / 1e3, their_rate / 1e3, "k/s", False, {"broker": their_rate / 1e3}))
        found.append(Row(f"{name}, CPU of the server", cpu, their_cpu, "us", True, {"broker": their_cpu}))
    for acks, p99_ms in ours.p99_ms.items():
        peer = theirs.p99_ms[acks]
        found.append(Row(f"p99 of a single record, acks={acks}", p99_ms, peer, "ms", True, {"broker": peer}))
    found.append(Row("server ready from its start", ours.start_s, 0.4, "s", True, {"broker": theirs.start_s}))
    found.append(Row("memory of the idle server", ours.idle_mb, 60, "MB", True, {"broker": theirs.idle_mb}))
    memory = {"broker": theirs.memory_mb}
    found.append(Row("memory of the server after the load", ours.memory_mb, 150, "MB", True, memory))
    return found


def _best(rounds: Sequence[Figures]) -> Figures:
    """Return the best of each figure, and the largest of memory."""
    best = {
        name: (max(one.rows[name][0] for one in rounds), min(one.rows[name][1] for one in rounds))
        for name in rounds[0].rows
    }
    p99_ms = {acks: min(one.p99_ms[acks] for one in rounds) for acks in rounds[0].p99_ms}
    idle_mb, memory_mb = max(one.idle_mb for one in rounds), max(one.memory_mb for one in rounds)
    return Figures(best, p99_ms, min(one.start_s for one in rounds), idle_mb, memory_mb)


def _measure(server: Any, records: int) -> Figures:
    found, p99_ms = {}, {}
    with server as (process_id, bootstrap, start_s):
        idle_mb = memory_mb(process_id)
        for size, times in SIZES.items():
            count = records * times
            for acks in ("1", "all"):
                topic = f"t{size}-{acks}"
                produce(bootstrap, topic, size, acks, count // 4)  # the client's and the broker's compilers warm up
                began = cpu_s(process_id)
                rate = produce(bootstrap, topic, size, acks, count)
                found[f"produce {size} B, acks={acks}"] = rate, (cpu_s(process_id) - began) / count * 1e6
            began = cpu_s(process_id)
            rate = _consume(bootstrap, topic, count)
            found[f"consume {size} B"] = rate, (cpu_s(process_id) - began) / count * 1e6
        for acks in ("1", "all"):
            p99_ms[acks] = _sent(bootstrap, "single", 100, acks, SLOW_RECORDS, SLOW_RATE, SLOW_RECORDS // 4)[1]
        return Figures(found, p99_ms, start_s, idle_mb, memory_mb(process_id))


def produce(bootstrap: str, topic: str, size: int, acks: str, count: int) -> float:
    """Return the records per second that the tool sent as fast as it could."""
    return _sent(bootstrap, topic, size, acks, count, -1)[0]


def _sent(
    bootstrap: str, topic: str, size: int, acks: str, count: int, rate: int, warmup: int = 0
) -> tuple[float, float]:
    """Return the records per second that the tool sent (at most `rate` unless it is -1), and its p99 in ms.

    The first `warmup` records are left out of both: while they are sent, the client compiles itself.
    """
    os.sync()
    output = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size", str(size),
        "--throughput", str(rate), "--warmup-records", str(warmup),
        "--producer-props", f"bootstrap.servers={bootstrap}", f"acks={acks}",
    )  # fmt: skip
    found = _SENT.findall(output)
    if not found:
        raise RuntimeError(f"the producer said: {output[-1000:]}")
    records_s, p99_ms = found[-1]
    return float(records_s), float(p99_ms)


def _consume(bootstrap: str, topic: str, count: int) -> float:
    """Return the records per second that the tool received, from its first fetch on."""
    output = tool(
        "ConsumerPerformance", "--topic", topic, "--bootstrap-server", bootstrap, "--num-records", str(count),
        "--timeout", "60000",
    )  # fmt: skip
    return float(output.strip().splitlines()[-1].split(",")[-1])


def tool(name: str, *arguments: str) -> str:
    """Run a performance tool of Kafka and return what it printed."""
    command = toolchain.java_command(f"{TOOL}.{name}", *arguments, options=("-Xmx512m",))
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@contextmanager
def _broker(work: Path) -> Iterator[Running]:
    broker = Broker(None, work, work / "data", SETTINGS, HEAP)
    broker.format()
    began = time.monotonic()
    with broker:
        yield Running(broker.process_id, broker.bootstrap, time.monotonic() - began)
