"""The server beside a real broker: the same performance tools of the reference, one after the other on this machine.

Records for each second are what the client got through, and move with what else runs here; the server's own CPU for
each record hardly does. The bar of each row is the broker's figure of the same call.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asv_benchmarks.measure import Row
from tests.interop import toolchain
from tests.interop.broker import Broker

SIZES = {100: 10, 1024: 1}
"""Bytes of a record -> how many times SERVE_RECORDS of them are sent."""
HEAP = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
SETTINGS = {"offsets.topic.num.partitions": "2", "num.partitions": "1"}
TOOL = "org.apache.kafka.tools"
START_S = 30
_SENT = re.compile(r"([\d.]+) records/sec .*?([\d.]+) ms 99th")


class Figures(NamedTuple):
    """What one server did: by row, (records for each second, its CPU in us for each record); its memory in MB."""

    rows: dict[str, tuple[float, float]]
    memory_mb: float


def rows(directory: Path, records: int) -> list[Row]:
    """Produce and consume of records of two sizes; `records` of the larger one."""
    theirs = _measure(_broker(directory / "broker"), records)
    ours = _measure(_own(directory / "own"), records)
    found = []
    for name, (rate, cpu) in ours.rows.items():
        their_rate, their_cpu = theirs.rows[name]
        found.append(Row(f"{name}", rate / 1e3, their_rate / 1e3, "k/s", False, {"broker": their_rate / 1e3}))
        found.append(Row(f"{name}, CPU of the server", cpu, their_cpu, "us", True, {"broker": their_cpu}))
    memory = {"broker": theirs.memory_mb}
    found.append(Row("memory of the server after that", ours.memory_mb, 150, "MB", True, memory))
    return found


def _measure(server: Any, records: int) -> Figures:
    found = {}
    with server as (process_id, bootstrap):
        for size, times in SIZES.items():
            count = records * times
            for acks in ("1", "all"):
                topic = f"t{size}-{acks}"
                _produce(bootstrap, topic, size, acks, count // 4)  # the client's and the broker's compilers warm up
                began = _cpu_s(process_id)
                rate = _produce(bootstrap, topic, size, acks, count)
                found[f"produce {size} B, acks={acks}"] = rate, (_cpu_s(process_id) - began) / count * 1e6
            began = _cpu_s(process_id)
            rate = _consume(bootstrap, topic, count)
            found[f"consume {size} B"] = rate, (_cpu_s(process_id) - began) / count * 1e6
        return Figures(found, _memory_mb(process_id))


def _produce(bootstrap: str, topic: str, size: int, acks: str, count: int) -> float:
    """Records for each second that the tool sent."""
    told = _tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size", str(size),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", f"acks={acks}",
    )  # fmt: skip
    found = _SENT.findall(told)
    if not found:
        raise RuntimeError(f"the producer said: {told[-1000:]}")
    return float(found[-1][0])


def _consume(bootstrap: str, topic: str, count: int) -> float:
    """Records for each second that the tool got, from its first fetch on."""
    told = _tool(
        "ConsumerPerformance", "--topic", topic, "--bootstrap-server", bootstrap, "--num-records", str(count),
        "--timeout", "60000",
    )  # fmt: skip
    return float(told.strip().splitlines()[-1].split(",")[-1])


def _tool(name: str, *arguments: str) -> str:
    command = toolchain.java_command(f"{TOOL}.{name}", *arguments, options=("-Xmx512m",))
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@contextmanager
def _broker(work: Path) -> Iterator[tuple[int, str]]:
    with Broker(None, work, work / "data", SETTINGS, HEAP) as broker:
        yield broker.process_id, broker.bootstrap


@contextmanager
def _own(work: Path) -> Iterator[tuple[int, str]]:
    work.mkdir()
    ready = work / "ready"
    settings = [part for name, value in SETTINGS.items() for part in ("-X", f"{name}={value}")]
    command = [
        sys.executable, "-m", "kafkalog.cli.main", "serve", "-q", "-d", str(work / "data"), "--listen", "localhost:0",
        "--ready-file", str(ready), *settings,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not (ready.exists() and ready.stat().st_size):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.05)
        yield process.pid, ready.read_text(encoding="utf-8").split()[1]
    finally:
        process.terminate()
        process.wait()


def _cpu_s(process_id: int) -> float:
    """CPU seconds that a process has taken, user and system (Linux)."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(process_id: int) -> float:
    """Resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
