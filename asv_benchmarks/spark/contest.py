"""Measurement of Spark: contestants in turns, the median of rounds, in one session of one JVM.

A ratio is one of wall seconds, which is what a user waits for. Beside it stands the ratio of CPU seconds, of this
process and all below it (JVM, Python workers, broker): machines are shared, and what others run moves it less.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asv_benchmarks.measure import Row
from asv_benchmarks.servers import stat

ROUNDS = 3
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
MILLION = 1e6


@dataclass
class Spent:
    """Wall and CPU seconds of one contestant, a round each."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def race(works: Mapping[str, Callable[[], Any]], rounds: int | None = None, *, warm: int = 1) -> dict[str, Spent]:
    """Return the seconds of each contestant in each round: all run once in a round, after warm-up rounds."""
    rounds = rounds or ROUNDS
    spent = {name: Spent() for name in works}
    for number in range(-warm, rounds):
        for name, work in works.items():
            cpu, began = tree_cpu(), time.perf_counter()
            work()
            wall = time.perf_counter() - began
            if number >= 0:
                spent[name].wall.append(wall)
                spent[name].cpu.append(tree_cpu() - cpu)
    return spent


def tree_cpu() -> float:
    """Return the CPU seconds of this process and all its descendants, including those that ended.

    A process that ends meanwhile is in neither its own figures nor those of its parent, which were read before.
    """
    below = descendants()
    while True:
        ticks = sum(sum(map(int, stat(pid)[11:15])) for pid in (os.getpid(), *below))
        before, below = below, descendants()
        if set(before) <= set(below):
            return ticks / TICKS_A_SECOND


def descendants() -> list[int]:
    """Return the descendants of this process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name)))[1] != "0":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [os.getpid()]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def ratio_bar(work: str, spent: Mapping[str, Spent], other: str, bar: float, rows: int, own: str = "kafkalog") -> Row:
    """Return how many times faster `own` is than `other`; the noise is the span of the rounds' ratios."""
    ours, theirs = spent[own], spent[other]
    each = sorted(b / a for a, b in zip(ours.wall, theirs.wall, strict=True))
    cpu = statistics.median(theirs.cpu) / statistics.median(ours.cpu)
    rates = ", ".join(f"{name} {rate(spent[name], rows):.2f}" for name in (own, other))
    remark = f"{rates} M rows/s; rounds {each[0]:.2f} to {each[-1]:.2f}; by CPU {cpu:.2f}"
    ratio = statistics.median(theirs.wall) / statistics.median(ours.wall)
    return Row(f"{work}, beside {other}", ratio, bar, "x", remark=remark)


def rate(spent: Spent, rows: int) -> float:
    """Return million rows per second, the median of the rounds."""
    return rows / statistics.median(spent.wall) / MILLION
