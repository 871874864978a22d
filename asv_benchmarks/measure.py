"""Measurement and its table: CPU seconds, since machines are shared; the median of rounds; one row for each figure."""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 5
LAUNCHER = Path(__file__).with_name("launch.py")
KAFKALOG = (sys.executable, "-m", "kafkalog.cli.main")
"""The command line of this tree, run by this interpreter."""


@dataclass(frozen=True)
class Usage:
    """Resources of a process: CPU and wall seconds, peak memory in MB (of the process alone)."""

    cpu: float
    wall: float
    peak_mb: float


def run(command: Sequence[str], *, stdin: str | None = None, stdout: str = os.devnull) -> Usage:
    """Run a command to its end; RuntimeError if it fails."""
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), stdin or os.devnull, stdout, *command]
    done = subprocess.run(launcher, capture_output=True, text=True, check=True)
    code, cpu, wall, peak_mb = json.loads(done.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {done.stderr[-500:]}")
    return Usage(cpu, wall, peak_mb)


def median_run(
    command: Sequence[str], rounds: int = 3, *, before: Callable[[], None] | None = None, **io: str
) -> Usage:
    """Run a command several times; return the run with the median CPU time."""
    taken = []
    for _ in range(rounds):
        if before is not None:
            before()
        taken.append(run(command, **io))
    return sorted(taken, key=lambda usage: usage.cpu)[rounds // 2]


def per_item(
    work: Callable[[], int],
    *,
    rounds: int = ROUNDS,
    least_seconds: float = 0.2,
    between: Callable[[], object] | None = None,
) -> float:
    """Return the CPU seconds per item: `work` returns its number of items; the median of rounds after a warm-up.

    `between` is called after each round, unmeasured: it may drop what a round wrote.
    """
    taken = []
    for warm in range(rounds + 1):
        items, began, clock = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < least_seconds:
            items += work()
        spent = time.process_time() - clock
        if warm:
            taken.append(spent / items)
        if between is not None:
            between()
    return statistics.median(taken)


def quantile(values: Sequence[float], percent: float) -> float:
    """Return the least of the values that at least `percent` of 100 of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def cpu_seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the CPU seconds of one call, as a mean of so many."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def wall_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


Peers = dict[str, float | str]


def scaled(peers: Peers, divisor: float) -> Peers:
    """Return the figures of peers in a larger unit; a text, which is the reason for a missing one, stays."""
    return {name: value / divisor if isinstance(value, float) else value for name, value in peers.items()}


@dataclass
class Row:
    """One line of the table: the figure of kafkalog, its bar, and those of peers in the same call.

    Values have `unit`; `less_is_better` says on which side of the bar they belong. A missing peer has a reason; a row
    of Spark's has `remark` instead of peers.
    """

    work: str
    value: float
    bar: float
    unit: str
    less_is_better: bool = False
    peers: Peers = field(default_factory=dict)
    remark: str = ""

    @property
    def reached(self) -> bool:
        return self.value <= self.bar if self.less_is_better else self.value >= self.bar

    def ratio(self, other: float) -> float:
        """Return how many times better kafkalog is than a peer: below 1 is worse."""
        return other / self.value if self.less_is_better else self.value / other


def show(rows: Sequence[Row]) -> None:
    """Print the table and how many bars are reached; with a ratio of 2.0x kafkalog needs half of the peer's CPU."""
    width = max((len(row.work) for row in rows), default=0)
    for row in rows:
        peers = "  ".join(
            f"{name} {other:.3g} ({row.ratio(other):.2f}x)" if isinstance(other, float) else f"{name}: {other}"
            for name, other in row.peers.items()
        )
        sign = "<=" if row.less_is_better else ">="
        mark = "ok  " if row.reached else "MISS"
        figure = f"{row.value:>9.3g} {row.unit:<6} bar {sign} {row.bar:<5g}"
        print(f"{mark} {row.work:<{width}} {figure} {peers or row.remark}", flush=True)
    missed = [row.work for row in rows if not row.reached]
    print(f"{len(rows) - len(missed)} of {len(rows)} bars reached" + (f"; not: {', '.join(missed)}" if missed else ""))
