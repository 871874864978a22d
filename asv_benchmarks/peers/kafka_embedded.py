"""Kafka's own storage layer as a peer, embedded in a JVM, no network.

`python -m asv_benchmarks.peers.kafka_embedded [--segment FILE] [GROUP ...]` prints JSON lines
{name, value, unit, cpu}: value is per second of wall time, cpu the same per second of CPU.
Groups are append, read, index, recover, map, and clean=DIRECTORY to clean a log (warm=DIRECTORY: unreported).
--segment adds the seconds that the dump tool takes on one .log file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.interop import toolchain

JAVA = Path(__file__).parent / "java"
GROUPS = ("append", "read", "index", "recover", "map")
HEAP = "512m"


def available() -> str | None:
    """Return None if Java and Kafka's jars are available, else the reason."""
    try:
        toolchain.classes(JAVA)
    except toolchain.ToolMissing as missing:
        return str(missing)
    return None


def measure(
    groups: Sequence[str] = GROUPS,
    *,
    seconds: float = 0.4,
    rounds: int = 5,
    heap: str = HEAP,
    directory: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row {name, value, unit, cpu} for each figure: the median of as many rounds after as many to warm up.

    directory: where the scratch logs of up to 2 GB go (default: the temporary directory).
    """
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as work:
        command = toolchain.java_command(
            "peer.Main", work, str(seconds), str(rounds), *groups, source=JAVA, options=_heap(heap)
        )
        no_input = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=no_input, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                yield json.loads(line)
        if running.returncode:
            raise RuntimeError(f"the peer benchmark ended with status {running.returncode}")


def _heap(size: str) -> tuple[str, str]:
    return f"-Xms{size}", f"-Xmx{size}"


def dump_deep(segment: Path, out: Path = Path(os.devnull)) -> dict[str, Any]:
    """Return the row of the dump tool, deep and with data, on one segment: seconds of the whole process."""
    options = ("--deep-iteration", "--print-data-log", "--files", str(segment))
    command = toolchain.java_command("org.apache.kafka.tools.DumpLogSegments", *options, options=_heap(HEAP))
    began = time.perf_counter()
    with out.open("wb") as sink:
        running = subprocess.Popen(command, stdout=sink, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    if running.returncode:
        raise RuntimeError(f"the dump tool ended with status {running.returncode} on {segment}")
    return {"name": "dump_deep", "value": wall, "unit": "s", "cpu": usage.ru_utime + usage.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", default=GROUPS, help="append, read, index, recover, map (default: all)")
    parser.add_argument("--segment", type=Path, help="a .log file to dump with its data")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of one round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after as many that warm up")
    arguments = parser.parse_args()
    problem = available()
    if problem:
        sys.exit(problem)
    for row in measure(arguments.groups, seconds=arguments.seconds, rounds=arguments.rounds):
        print(json.dumps(row), flush=True)
    if arguments.segment:
        print(json.dumps(dump_deep(arguments.segment)), flush=True)


if __name__ == "__main__":
    main()
