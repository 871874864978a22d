"""Whole commands on the demo's lines: produce, consume and dump, their memory, and the program's start."""

import os
import shutil
from pathlib import Path

from asv_benchmarks.measure import KAFKALOG, Peers, Row, median_run
from asv_benchmarks.peers import limit

TOPIC = "tp_demo_05"
SEGMENT_BYTES = 104_857_600


def make_lines(path: Path, count: int) -> None:
    """Write the lines `hello lagou $i`, with i from 1."""
    with path.open("wb") as out:
        for at in range(1, count + 1, 100_000):
            out.write(b"".join(b"hello lagou %d\n" % i for i in range(at, min(at + 100_000, count + 1))))


def rows(directory: Path, count: int, reference: bool) -> list[Row]:
    """Return the rows of whole processes; the bars of 10 million lines are scaled to `count`, except 0.1 s to start."""
    lines, data, out = directory / "lines.txt", directory / "data", directory / "out.txt"
    make_lines(lines, count)
    scale = count / 10_000_000

    def fresh() -> None:
        shutil.rmtree(data, ignore_errors=True)

    settings = ["-d", str(data), "-t", TOPIC]
    produce = [*KAFKALOG, "produce", *settings, "-q", "-l", "-X", f"segment.bytes={SEGMENT_BYTES}", str(lines)]
    consume = [*KAFKALOG, "consume", *settings, "-q"]
    made = median_run(produce, before=fresh)
    segment = min((data / f"{TOPIC}-0").glob("*.log"))
    dump = [*KAFKALOG, "dump", "--deep-iteration", "--print-data-log", "--files", str(segment)]
    read = median_run(consume, stdout=str(out))
    shown = median_run(dump, stdout=str(out))
    started = median_run([*KAFKALOG, "--version"], rounds=7)
    raw = directory / "raw.log"
    found = [
        Row("kafkalog produce, whole process", made.cpu, _bar(0.8, scale), "s CPU", True, _c("produce", lines, raw)),
        Row("kafkalog consume to a file", read.cpu, _bar(0.6, scale), "s CPU", True, _c("consume", raw, out) | _kcat()),
        Row(
            "kafkalog dump, deep, first segment",
            shown.cpu,
            _bar(1.2, min(1, scale * 3)),
            "s CPU",
            True,
            _c("dump", segment, out),
        ),
        Row("kafkalog produce, peak memory", made.peak_mb, 120, "MB", True),
        Row("kafkalog consume, peak memory", read.peak_mb, 120, "MB", True),
        Row("kafkalog dump, peak memory", shown.peak_mb, 120, "MB", True),
        Row("kafkalog --version", started.wall, 0.15, "s wall", True),
    ]
    if reference:
        from asv_benchmarks.peers import kafka_embedded

        found[2].peers["Kafka"] = float(kafka_embedded.dump_deep(segment)["cpu"])
    return found


def _bar(full: float, scale: float) -> float:
    return 0.1 + (full - 0.1) * scale


def _c(job: str, *files: Path) -> Peers:
    peer = limit.ask(job, *files)
    return {"C": peer[job][0]} if peer else {"C": "no compiler"}


def _kcat() -> Peers:
    if shutil.which("kcat") is None or "KCAT_BROKER" not in os.environ:
        return {"kcat": "needs kcat and a broker in KCAT_BROKER"}
    used = median_run(["kcat", "-C", "-q", "-e", "-b", os.environ["KCAT_BROKER"], "-t", TOPIC], rounds=1)
    return {"kcat": used.cpu}
