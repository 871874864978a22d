"""Runs the hot paths of one tree under callgrind, and reads the counts from its dumps."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asv_benchmarks.counting.meter import compile_meter
from asv_benchmarks.counting.process import EMPTY, REPORT, ROUNDS

ROOT = Path(__file__).resolve().parents[2]
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", "--LL=8388608,16,64"]
"""Of a usual processor, so that the machine it runs on makes no difference."""
_FIXED = {
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC",
    # glibc moves these as memory is freed: the same call then clears memory in one run and not in another
    "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1",
    # callgrind counts each turn of a `rep movsb`, which glibc takes for a copy by where source and target lie
    "GLIBC_TUNABLES": ":".join(
        f"glibc.cpu.x86_{name}_threshold={1 << 30}" for name in ("rep_movsb", "rep_stosb", "non_temporal")
    ),
}  # fmt: skip
_MEMORY_DISK, _ROOM_BYTES = Path("/dev/shm"), 1 << 30


@dataclass
class Counts:
    """Counts of one tree: the instructions of one round of each path, and its number of items.

    `spread` is how far the rounds of a path lie apart; `misses` those of the last-level cache (in the full profile);
    `missing` why a path was not counted.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    spread: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def take_lower(self, again: "Counts") -> None:
        """Keep the lower of two counts: a disturbance only adds instructions."""
        for name, instructions in again.instructions.items():
            self.instructions[name] = min(self.instructions.get(name, instructions), instructions)


def unavailable() -> str | None:
    """Return why nothing can be counted here, in one line; None if it can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (apt-get install valgrind, dnf install valgrind, apk add valgrind)"
    return None


def count(
    names: Sequence[str], *, tree: Path = ROOT, profile: str = "quick", python: str = sys.executable
) -> Counts:
    """Return the counts of a tree's `kafkalog`, run by this tree's bodies; RuntimeError with callgrind's output."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-callgrind-", dir=_quick_disk()) as scratch:
        work = Path(scratch)
        report = work / REPORT
        command = [
            *_fixed_addresses(), shutil.which("valgrind") or "valgrind", "--tool=callgrind", "--instr-atstart=no",
            "--quiet", f"--callgrind-out-file={work / 'out'}", *(CACHES if profile == "full" else []), python, "-m",
            "asv_benchmarks.counting.process", str(compile_meter(work)), profile, str(work), *names,
        ]  # fmt: skip
        done = subprocess.run(command, env=_environment(work, tree), cwd=work, capture_output=True, text=True)
        if done.returncode or not report.exists():
            raise RuntimeError(f"counting in {tree} ended with {done.returncode}: {done.stderr[-2000:]}")
        return _read(work, json.loads(report.read_text()))


def _environment(work: Path, tree: Path) -> dict[str, str]:
    """Return one environment for all runs: other variables would move the stack, and settings change the work.

    The tree comes before this one, whose bodies run; both by names of one length, so that what is in memory lies where
    it lies in any other run.
    """
    for name, target in (("tree", tree), ("benchmarks", ROOT)):
        (work / name).symlink_to(target, target_is_directory=True)
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {**kept, **_FIXED, "HOME": str(work), "PYTHONPATH": f"{work / 'tree'}{os.pathsep}{work / 'benchmarks'}"}


def _quick_disk() -> Path | None:
    """Return a directory in memory if it has enough space, so that syncs of some bodies do not wait for a disk."""
    if os.access(_MEMORY_DISK, os.W_OK) and shutil.disk_usage(_MEMORY_DISK).free >= _ROOM_BYTES:
        return _MEMORY_DISK
    return None


def _fixed_addresses() -> list[str]:
    """Return the command that fixes addresses, and with them hashes of addresses, if the system allows it."""
    if shutil.which("setarch") and subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0:
        return ["setarch", "-R"]
    return []


def _read(work: Path, report: dict[str, dict[str, int]]) -> Counts:
    counts = Counts(missing=report["missing"])  # type: ignore[arg-type]
    dumps = iter(range(1, 1 + ROUNDS * len(report["names"])))
    empty = 0
    for name in report["names"]:
        rounds = [totals((work / f"out.{next(dumps)}").read_text().splitlines()) for _ in range(ROUNDS)]
        taken = [one["Ir"] for one in rounds]
        middle = int(statistics.median(taken))
        if name == EMPTY:
            empty = middle
            continue
        counts.instructions[name] = middle - empty
        counts.spread[name] = max(taken) - min(taken)
        counts.items[name] = report["items"][name]
        if "DLmr" in rounds[0]:
            counts.misses[name] = int(statistics.median(one["DLmr"] + one["DLmw"] for one in rounds))
    return counts


def totals(lines: Iterable[str]) -> dict[str, int]:
    """Return the total of each event in a dump; ValueError if it has none."""
    events: list[str] = []
    for line in lines:
        if found := re.match(r"(events|totals): (.*)", line):
            words = found[2].split()
            if found[1] == "events":
                events = words
            else:
                return dict(zip(events, [*map(int, words), *[0] * len(events)], strict=False))
    raise ValueError("a dump of callgrind without a total")
