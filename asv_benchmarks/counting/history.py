"""asv's part of `ci/bench.sh`: the counts and a few times of a commit as results of asv, and its pages of them.

Times are kept and shown; they decide nothing, because they are those of a shared machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from asv_benchmarks.counting.base import ROOT, commit_of

BENCHMARKS = Path(__file__).resolve().parents[1]
RESULTS = BENCHMARKS / "results"
"""Results that are in the repository: those of releases, written by `make bench-page`."""
STORE = ROOT / "build" / "asv"
"""Results of this machine, beside a copy of those of releases, and pages of both."""
COUNTS_VARIABLE = "KAFKALOG_COUNTS"
"""Names a JSON file with the instructions of each commit, so that asv need not count again."""
TIMED = (
    "append one record", "append a ready batch of 100", "scan batches of 1", "decode batches of 100", "clean a log",
    "scan to Arrow, all columns", "open a log to read", "recover batches of 100", "read by offset", "iterate records",
)  # fmt: skip
"""Hot paths whose time is kept beside the counts of all."""
FACTOR = "1.25"
"""A time that differs by less is not shown as a change."""


def unavailable() -> str | None:
    """Return why asv cannot run here, in one line; None if it can."""
    if find_spec("asv") is None:
        return 'asv is not installed: pip install "asv>=0.6.3"'
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "a result belongs to a commit, and this is no clone of the repository"
    return None


def keep(base: str | None, counts: Mapping[str, Mapping[str, int]]) -> int:
    """Keep the counts and a few times of HEAD and of `base` with asv, show how the times changed, and make the pages.

    Return 1 if a benchmark of HEAD has no result; a time never counts.
    """
    if (reason := unavailable()) is not None:
        print(f"asv: no result was kept: {reason}")
        return 0
    began, head = time.monotonic(), str(commit_of("HEAD"))
    one = History()
    failed = one.add([head] if base in (None, head) else [str(base), head], counts)
    one.publish()
    print(f"asv: {len(TIMED)} times and {len(counts.get(head, {}))} counts of {head[:12]} in "
          f"{one.results.relative_to(ROOT)}, {one.points()} values in {one.pages.relative_to(ROOT)} "
          f"({time.monotonic() - began:.0f} s)")  # fmt: skip
    print("\n".join(one.changes() or ["asv: no time differs clearly from that of the base"]))
    for name in failed:
        print(f"asv: {name} has no result; the output is in {one.log.relative_to(ROOT)}")
    return 1 if failed else 0


class History:
    """asv's results in a directory, for a machine of this name, and its pages."""

    def __init__(self, store: Path | None = None, *, results: Path | None = None, machine: str = "here") -> None:
        store = STORE if store is None else store
        self.results = results or store / "results"
        self.pages = store / "html"
        self.log = store / "output.txt"
        self._store = store
        self._machine = machine
        if results is None:
            shutil.copytree(RESULTS, self.results, dirs_exist_ok=True)
        store.mkdir(parents=True, exist_ok=True)
        self._settings = store / "asv.conf.json"
        settings = json.loads((BENCHMARKS / "asv.conf.json").read_text()) | {
            "repo": str(ROOT), "plugins": [".asv_benchmarks.asv_environment"],
            "benchmark_dir": str(BENCHMARKS / "benchmarks"), "env_dir": str(store / "env"),
            "results_dir": str(self.results), "html_dir": str(self.pages),
        }  # fmt: skip
        self._settings.write_text(json.dumps(settings))

    def add(
        self, commits: Sequence[str], counts: Mapping[str, Mapping[str, int]], *, timed: Sequence[str] = TIMED
    ) -> list[str]:
        """Run asv for one commit, or compare the second with the first; return the benchmarks of the last that failed.

        `counts` has the instructions of each path, for each commit.
        """
        file = self._store / "counts.json"
        file.write_text(json.dumps(counts))
        paths = "|".join(map(re.escape, timed))
        bench = [
            "--launch-method=forkserver", f"--bench=time_once.*'({paths})'", "--bench=track_instructions"
        ]  # fmt: skip
        self._asv("machine", "--yes", f"--machine={self._machine}")
        if len(commits) == 1:
            command = ["run", f"--machine={self._machine}", *bench, f"{commits[0]}^!"]
        else:
            command = ["continuous", f"--factor={FACTOR}", f"--machine={self._machine}", *bench, *commits]
        self.log.write_text(self._asv(*command, variables={COUNTS_VARIABLE: str(file)})[1])
        return self._failed(commits[-1])

    def changes(self) -> list[str]:
        """Return the lines of the table of changed times that `asv continuous` printed last."""
        return [line for line in self.log.read_text().splitlines() if line.startswith("|")]

    def publish(self) -> None:
        """Write asv's pages of all results; raise RuntimeError if asv fails."""
        status, output = self._asv("publish")
        if status:
            raise RuntimeError(f"asv publish failed: {output[-2000:]}")

    def points(self) -> int:
        """Return the number of values in the graphs of asv's pages."""
        graphs = [json.loads(one.read_text()) for one in self.pages.glob("graphs/branch-*/**/bench_*.json")]
        values = [value for graph in graphs for _, found in graph for value in _flat(found)]
        return sum(value is not None for value in values)

    def file(self, commit: str) -> Path:
        """Return the file with the results of a commit."""
        return self.results / self._machine / f"{commit[:8]}-existing-python.json"

    def _failed(self, commit: str) -> list[str]:
        """Return the benchmarks of a commit without any value; "all" if asv kept none."""
        if not self.file(commit).exists():
            return ["all"]
        results = json.loads(self.file(commit).read_text())["results"]
        return [name for name, (values, *_) in results.items() if values is None or None in values]

    def _asv(self, *arguments: str, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run asv; return its status and output. Its file about machines goes to the store, not to the user's home."""
        own = Path.home() / ".gitconfig"
        environ = os.environ | {
            "HOME": str(self._store), "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL", str(own)),
            "PYTHONPATH": str(ROOT), **(variables or {}),
        }  # fmt: skip
        command = [sys.executable, "-m", "asv", *arguments, f"--config={self._settings}"]
        done = subprocess.run(command, cwd=self._store, env=environ, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def _flat(values: object) -> list[object]:
    return values if isinstance(values, list) else [values]
