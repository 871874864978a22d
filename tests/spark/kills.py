"""Exactly once, shown: a stream into the sink whose driver and workers are killed in the middle, again and again.

    python -m tests.spark.kills [--kills 20] [--seed 1] [--keep DIR]      what `make crash-spark` runs
    python -m tests.spark.kills drive ROOT                                the driver that is killed

The stream reads text files, which appear as long as there are kills to come, and writes each line to a topic of three
partitions, on a `local-cluster` of two executors. Kills come at moments that are watched for: while tasks stage, when
they have staged, while a commit is decided and not done, and at any time. At the end every line of every file is there
once, and the lines of a file are in their order.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import kafkalog
from kafkalog.errors import NotAPartition
from kafkalog.landing.ledger import LEDGER_FILE, read_ledger
from kafkalog.landing.staging import parse_name
from kafkalog.tools.verify.directories import verify
from tests.spark.quick_java import INTERPRETED, quick_java

ROOT = Path(__file__).parents[2]
TOKEN = "KAFKALOG_KILLS"
LINES = 40
BACKLOG = 8
EXECUTOR = b"CoarseGrainedExecutorBackend"
MOMENTS = ("staging", "staged", "intent", "any")
TARGETS = ("driver", "driver without its workers", "executor", "python worker")
MOMENT_S, END_S = 60, 1800


def drive(root: Path) -> None:
    """Run the query until it is stopped."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    quick = quick_java()
    for name, value in {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "512m",
        "spark.local.dir": str(root / "local"), "spark.python.authenticate.socketTimeout": "120s",
        "spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick,
        "spark.executorEnv.SPARK_HOME": os.environ["SPARK_HOME"], "spark.sql.files.openCostInBytes": "0",
        "spark.executorEnv.PYTHONPATH": str(ROOT), "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20", "spark.sql.warehouse.dir": str(root / "warehouse"),
        **INTERPRETED,
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    query = (
        session.readStream.format("text").option("maxFilesPerTrigger", 6).load(str(root / "in"))
        .selectExpr("split(value, ' ')[0] as key", "value").writeStream.format("kafkalog")
        .option("topic", "t").option("partitions", "3").option("compression", "lz4").option("lockWait", "5m")
        .option("checkpointLocation", str(root / "checkpoint")).start(str(root / "data"))
    )  # fmt: skip
    while not (root / "stop").exists():
        if query.awaitTermination(0.2):
            raise SystemExit("the query ended by itself")
    query.stop()
    session.stop()


class Processes:
    """The processes of a run: all that have its token in their environment."""

    def __init__(self, token: str) -> None:
        self._mark = f"{TOKEN}={token}".encode()

    def commands(self) -> dict[int, bytes]:
        """Their command lines by id."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    if self._mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                        found[int(entry)] = Path("/proc", entry, "cmdline").read_bytes()
                except OSError:
                    continue
        return {process: line for process, line in found.items() if line}

    def executors(self) -> list[int]:
        """The JVMs of executors."""
        return [process for process, line in self.commands().items() if EXECUTOR in line and b"java" in line]

    def below(self, roots: list[int]) -> list[int]:
        """Processes whose parents are `roots`, or below them."""
        parents = {process: _parent(process) for process in self.commands()}
        found = set(roots)
        while more := {process for process, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found - set(roots))

    def end(self) -> None:
        """Ends all there are."""
        while left := list(self.commands()):
            _kill(left)
            time.sleep(0.05)


def _parent(process: int) -> int:
    try:
        return int(Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(processes: list[int]) -> int:
    killed = 0
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    return killed


class Run:
    """One stream, its files, its driver, and what was killed so far."""

    def __init__(self, root: Path, seed: int, tell: Callable[[str], object]) -> None:
        self.root, self.data = root, root / "data"
        self.rng = Random(f"kills {seed}")
        self.killed: Counter[str] = Counter()
        self.drivers = 0
        self._tell = tell
        self._files = 0
        self._driver: subprocess.Popen[bytes] | None = None
        self._log = root / "driver.log"
        self._processes = Processes(str(root))
        for name in ("in", "local"):
            (root / name).mkdir()
        self._home = _spark_home(root)

    def start(self) -> None:
        """Starts a driver, which goes on where the last one was."""
        self.drivers += 1
        env = {
            **os.environ, TOKEN: str(self.root), "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.root / "local"),
        }  # fmt: skip
        with self._log.open("ab") as log:
            program = [sys.executable, "-m", "tests.spark.kills", "drive", str(self.root)]
            self._driver = subprocess.Popen(
                program, env=env, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def landed(self) -> int:
        """Return the number of records in the topic."""
        if not (self.data / "t-0").exists():
            return 0
        with kafkalog.open_dirs(self.data) as dirs:
            return sum(self._records_of(dirs, number) for number in dirs.topics["t"].partitions)

    @staticmethod
    def _records_of(dirs: kafkalog.LogDirs, number: int) -> int:
        try:
            return dirs["t", number].end_offset
        except NotAPartition:  # a driver was killed, or is, between the directory and its first file
            return 0

    def feed(self) -> None:
        """Puts another file where the query has not too many before it."""
        if self._files - self.landed() // LINES < BACKLOG:
            name = f"file{self._files:05}"
            hidden = self.root / "in" / f".{name}"
            hidden.write_text("".join(f"{name} {line:03}\n" for line in range(LINES)))
            hidden.rename(self.root / "in" / name)
            self._files += 1

    def kill(self, target: str, moment: str) -> None:
        """Kills once the moment has come; a driver that was killed is started again."""
        self._wait_until_at_work()
        seen = self._await(moment)
        killed = self._kill_now(target)
        self.killed[f"{target}, {moment}" if seen else f"{target}, any"] += 1
        self._tell(f"{sum(self.killed.values())}: killed {target} ({killed} processes), {moment}"
                   f"{'' if seen else ' not seen'}, {self.landed()} records so far")  # fmt: skip
        assert killed, "there was no process to kill"
        if target.startswith("driver"):
            assert self._driver is not None
            self._driver.wait()
            if self.rng.random() < 0.5:  # else what the old driver left is still about
                self._processes.end()
            self.start()

    def _wait_until_at_work(self) -> None:
        """Returns when a batch lands with this driver: it reads, stages and commits."""
        before, until = self._batch(), time.monotonic() + END_S
        while self._batch() == before:
            self._check_driver(until)
            self.feed()
            time.sleep(0.02)

    def _batch(self) -> int:
        return max((mark.batch_id for mark in read_ledger(str(self.data)).marks.values()), default=-1)

    def _await(self, moment: str) -> bool:
        """Return True if the moment came before the deadline."""
        if moment == "any":
            time.sleep(self.rng.random() * 3)
            return True
        until = time.monotonic() + MOMENT_S
        next_feed = 0.0
        while time.monotonic() < until:
            if self._is(moment):
                return True
            if time.monotonic() > next_feed:
                self.feed()
                next_feed = time.monotonic() + 0.05
        return False

    def _is(self, moment: str) -> bool:
        if moment == "intent":
            try:
                return b'"intent":{' in (self.data / LEDGER_FILE).read_bytes()
            except FileNotFoundError:
                return False
        staged = [name for name in os.listdir(self.data) if parse_name(name) is not None]
        return any(name.endswith(".tmp") for name in staged) if moment == "staging" else bool(staged)

    def _kill_now(self, target: str) -> int:
        processes = self._processes
        executors = processes.executors()
        if target == "executor":
            return _kill([self.rng.choice(executors)] if executors else [])
        theirs = processes.below(executors)
        if target == "python worker":
            return _kill([self.rng.choice(theirs)] if theirs else [])
        assert self._driver is not None
        drivers = [process for process in processes.commands() if process not in {*executors, *theirs}]
        if target == "driver without its workers":  # a commit that has begun finishes without a driver
            lines = processes.commands()
            drivers = [process for process in drivers if b"pyspark.daemon" not in lines.get(process, b"pyspark.daemon")]
        return _kill(drivers)

    def _check_driver(self, until: float) -> None:
        assert self._driver is not None
        if self._driver.poll() is not None:
            raise AssertionError(f"the driver ended by itself:\n{self._log.read_text(errors='replace')[-6000:]}")
        if time.monotonic() > until:
            raise AssertionError(f"nothing lands any more:\n{self._log.read_text(errors='replace')[-6000:]}")

    def finish(self) -> None:
        """Waits for all lines, and ends the driver."""
        until = time.monotonic() + END_S
        while self.landed() < self._files * LINES:
            self._check_driver(until)
            time.sleep(0.1)
        (self.root / "stop").touch()
        assert self._driver is not None
        assert self._driver.wait(END_S) == 0, self._log.read_text(errors="replace")[-6000:]

    def check(self) -> str:
        """Return the findings; raise AssertionError if a line is missing, duplicated or out of order."""
        lines: list[bytes] = []
        with kafkalog.open_dirs(self.data) as dirs:
            for log in dirs.logs("t"):
                before: dict[bytes, bytes] = {}
                for record in log:
                    key, value = bytes(record.key or b""), bytes(record.value or b"")
                    assert before.get(key, b"") < value, f"{value!r} comes after {before[key]!r}"
                    before[key] = value
                    lines.append(value)
        wanted = [f"file{n:05} {line:03}".encode() for n in range(self._files) for line in range(LINES)]
        assert sorted(lines) == wanted, f"{len(lines)} records, {len(set(lines))} different, {len(wanted)} lines"
        assert read_ledger(str(self.data)).intent is None
        assert verify([str(self.data)]).ok
        said = self._log.read_text(errors="replace")
        return (
            f"{len(lines)} lines of {self._files} files are there once and in order after "
            f"{sum(self.killed.values())} kills and {self.drivers} drivers; "
            f"{said.count('rolling forward incomplete batch')} batches were rolled forward"
        )

    def end(self) -> None:
        """Ends every process that is left."""
        self._processes.end()
        if self._driver is not None:
            self._driver.wait()


def _spark_home(root: Path) -> Path:
    """A home of Spark whose working files lie in `root`."""
    import pyspark

    home = root / "home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name in ("bin", "jars", "sbin", "python", "conf"):
            (home / entry.name).symlink_to(entry)
    return home


def plan(kills: int, rng: Random) -> Iterator[tuple[str, str]]:
    """So many targets with their moments: each pair before one comes again, drivers last so that the work goes on."""
    pairs: list[tuple[str, str]] = []
    while len(pairs) < kills:
        every = [(target, moment) for target in TARGETS for moment in MOMENTS]
        rng.shuffle(every)
        pairs += every
    yield from pairs[:kills]


def run(root: Path, kills: list[tuple[str, str]], seed: int, tell: Callable[[str], object] = print) -> str:
    """Kills so often, and what was found."""
    it = Run(root, seed, tell)
    try:
        it.data.mkdir()
        it.start()
        for target, moment in kills:
            it.kill(target, moment)
        it.finish()
        return it.check()
    finally:
        it.end()


def main() -> None:
    if sys.argv[1:2] == ["drive"]:
        drive(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description="kills drivers and workers of a stream into the sink")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a new directory, which stays, instead of a temporary one")
    given = parser.parse_args()
    pairs = list(plan(given.kills, Random(f"plan {given.seed}")))

    def tell(line: str) -> None:
        print(line, flush=True)

    if given.keep is not None:
        given.keep.mkdir(parents=True)
        tell(run(given.keep.resolve(), pairs, given.seed, tell))
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-kills-") as scratch:
        tell(run(Path(scratch).resolve(), pairs, given.seed, tell))


if __name__ == "__main__":
    main()
