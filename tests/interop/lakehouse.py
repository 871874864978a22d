"""A topic and the tables that Spark's own writers make of it, while their driver is killed and started again.

    python -m tests.interop.lakehouse [--kills 20]     without --kills: only fetch the Spark that has both formats

That Spark is 4.1, in packages and jars of its own (lakehouse-requirements.txt, lakehouse-pom.xml): newer ones have no
Iceberg yet.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow

import kafkalog
from kafkalog.lake.compact import compact_table
from kafkalog.lake.sync import sync_topic
from tests.interop import toolchain
from tests.lake.tables import Lake
from tests.spark.quick_java import PLAIN
from tests.trees import ROOT

FORMATS = ("iceberg", "delta")
PATIENCE_S = 900
T = 1_700_000_000_000
DRIVER = toolchain.HERE / "lakehouse_driver.py"

Row = tuple[int, int, str, str, int]
"""Partition, offset, key, value, and time in ms."""


class Lakehouse:
    """The topic, its tables in `root`/lake, and the driver of the streams into them, with these options of its JVM."""

    def __init__(self, root: Path, java: str) -> None:
        self.root = root
        self._java = java
        self.data = root / "data"
        self.lake = root / "lake"
        self.rows: list[Row] = []
        """Every record of the topic, as it was appended."""
        self.killed = self.replayed = 0
        self._driver: subprocess.Popen[bytes] | None = None
        for name in ("lake", "local"):
            (root / name).mkdir()
        with kafkalog.open_dirs(self.data, "a") as dirs:
            dirs.create_topic("orders", 2, {"retention.ms": "-1"})

    def append(self, count: int) -> None:
        """Append so many orders to each partition."""
        with kafkalog.open_dirs(self.data, "a") as dirs:
            for log in dirs.logs("orders"):
                new = [
                    (log.partition, offset, f"k{offset % 7}", json.dumps({"cents": offset * 3 + 1}), T + offset * 1000)
                    for offset in range(log.end_offset, log.end_offset + count)
                ]
                log.append([(key.encode(), value.encode(), time) for _, _, key, value, time in new])
                self.rows += new

    # The driver

    def start(self) -> None:
        """Start the driver, which continues from the checkpoints."""
        python, jars = toolchain.lakehouse()
        paths = os.pathsep.join(map(str, (python, ROOT)))
        env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        env |= {"PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        line = [sys.executable, str(DRIVER), str(self.root), os.pathsep.join(map(str, jars)), self._java]
        with (self.root / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                line, env=env, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the driver with all that it started."""
        assert self._driver is not None
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        self.killed += 1

    def forget_last_commits(self) -> None:
        """Leave the checkpoints as a driver does that dies after a table's commit, before it is written down there."""
        for format in FORMATS:
            checkpoint = self.root / "checkpoints" / format
            begun, done = (_newest(checkpoint / name) for name in ("offsets", "commits"))
            if done is not None and begun == done:
                for name in (f"{done}", f".{done}.crc"):
                    (checkpoint / "commits" / name).unlink(missing_ok=True)
                self.replayed += 1

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds; AssertionError if the driver ends before."""
        assert self._driver is not None
        until = time.monotonic() + PATIENCE_S
        while not condition():
            ended = self._driver.poll() is not None and not condition()
            if ended or time.monotonic() > until:
                said = (self.root / "driver.log").read_text(errors="replace")[-6000:]
                raise AssertionError(f"{'the driver ended before' if ended else 'in vain'}: {what}\n{said}")
            time.sleep(0.2)

    def is_batch_open(self) -> bool:
        """True while a micro-batch of one of the queries has begun and is not done."""
        checkpoints = [self.root / "checkpoints" / format for format in FORMATS]
        return any(_newest(one / "offsets") != _newest(one / "commits") for one in checkpoints if one.exists())

    def are_rows_there(self) -> bool:
        """True once both streamed tables have as many rows as the topic."""
        return all(self._streamed_rows(format) >= len(self.rows) for format in FORMATS)

    def _streamed_rows(self, format: str) -> int:
        if format == "delta":
            log = self.lake / "streamed" / "_delta_log"
            if not log.exists() or not [*log.glob("*.json")]:
                return 0
            return int(self.table(format, "streamed").num_rows)
        if not (self.lake / "catalog.db").exists() or not self._lake("iceberg", "streamed").exists():
            return 0
        try:
            return int(self.table(format, "streamed").num_rows)
        except pyarrow.ArrowInvalid:  # a repeated micro-batch writes its files again, under the same names
            return 0

    def finish(self) -> dict[str, list[Row]]:
        """End the streams; return what Spark reads of all tables."""
        (self.root / "stop").touch()
        self.wait((self.root / "read.json").exists, "what it read")
        assert self._driver is not None
        assert self._driver.wait(PATIENCE_S) == 0
        found = json.loads((self.root / "read.json").read_text())
        return {name: [tuple(row) for row in rows] for name, rows in found.items()}

    def wait_for_java(self) -> None:
        """Return once the JVM of a driver that has ended is gone too."""
        assert self._driver is not None
        group, until = self._driver.pid, time.monotonic() + PATIENCE_S
        while _is_group(group):
            assert time.monotonic() < until, "the JVM does not end"
            time.sleep(0.1)

    def end(self) -> None:
        """End the driver with all that it started."""
        if self._driver is not None and _is_group(self._driver.pid):
            self.kill()

    # The tables

    def sync(self) -> None:
        """Write the topic to the tables `synced`, and to `compacted`, whose files become one."""
        for format in FORMATS:
            sync_topic(self.data, "orders", self.target(format, "synced"), key="string", value="string")
            sync_topic(self.data, "orders", self.target(format, "compacted"), key="string", value="string")
            compact_table(self.target(format, "compacted"))

    def target(self, format: str, name: str) -> str:
        return f"iceberg:{self.lake}/shop.{name}" if format == "iceberg" else f"delta:{self.lake}/{name}"

    def _lake(self, format: str, name: str) -> Any:
        return _Table(self.lake, format, name)

    def table(self, format: str, name: str) -> Any:
        """The rows that pyiceberg or delta-rs reads, as an Arrow table."""
        return self._lake(format, name).read()

    def files(self, format: str, name: str) -> list[tuple[str, int]]:
        """The data files of a table, with their sizes."""
        return self._lake(format, name).files()

    def duckdb_rows(self, names: list[str]) -> dict[str, Any]:
        """Count, sum of offsets and sum of cents of tables, by DuckDB and its own extensions for the two formats."""
        python, _ = toolchain.lakehouse()
        places = {
            f"{format} {name}": self._lake(format, name).place() for format in FORMATS for name in names
        }
        line = [sys.executable, "-c", DUCKDB, json.dumps(places), str(self.root / "extensions")]
        env = {**os.environ, "PYTHONPATH": str(python)}
        done = subprocess.run(line, env=env, capture_output=True, text=True, cwd=self.root, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


DUCKDB = """
import json, pathlib, sys
import duckdb, duckdb_ext

connection = duckdb.connect(config={"extension_directory": sys.argv[2], "autoinstall_known_extensions": "false"})
files = pathlib.Path(duckdb_ext.__file__).parent.rglob("*.duckdb_extension")
for file in sorted(files):                    # avro before iceberg, which needs it
    connection.load_extension(str(file))
found = {}
for name, place in json.loads(sys.argv[1]).items():
    scan = "iceberg_scan" if name.startswith("iceberg") else "delta_scan"
    columns = "count(*), sum(\\"offset\\")::BIGINT, sum((value->>'cents')::BIGINT)::BIGINT"
    found[name] = connection.execute(f"SELECT {columns} FROM {scan}(?)", [place]).fetchone()
print(json.dumps(found))
"""


class _Table(Lake):
    """A table of the lake, by its name."""

    def __init__(self, directory: Path, format: str, name: str) -> None:
        super().__init__(directory, format)
        self._name = name

    def loaded(self) -> Any:
        from deltalake import DeltaTable

        if self.format == "delta":
            return DeltaTable(self.directory / self._name)
        return self.catalog().load_table(f"shop.{self._name}")

    def exists(self) -> bool:
        return self.catalog().table_exists(f"shop.{self._name}")

    def place(self) -> str:
        """Return the name of the table for DuckDB's extensions."""
        return self.loaded().metadata_location if self.format == "iceberg" else str(self.directory / self._name)


def _newest(directory: Path) -> int | None:
    """The number of the newest file of a checkpoint's log."""
    names = [int(one.name) for one in directory.glob("[0-9]*")] if directory.exists() else []
    return max(names, default=None)


def _is_group(group: int) -> bool:
    """Return True while a process of the group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@functools.cache
def quick_java() -> str:
    """Return the options of a driver's JVM that starts soon; the first call of a user runs a driver, for an archive."""

    def train(archiving: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory(prefix="kafkalog-lakehouse-") as scratch:
            house = Lakehouse(Path(scratch).resolve(), " ".join((PLAIN, *archiving)))
            try:
                run(house, 0)
                house.wait_for_java()
            finally:
                house.end()

    python, jars = toolchain.lakehouse()
    return " ".join((PLAIN, *toolchain.class_archive("lakehouse", os.pathsep.join(map(str, (python, *jars))), train)))


def run(house: Lakehouse, kills: int, tell: Callable[[str], object] = print) -> dict[str, list[Row]]:
    """Kill the driver in the middle of micro-batches and between two steps of their ends; return Spark's rows."""
    rng = random.Random("lakehouse")
    house.append(100)
    house.start()
    for number in range(kills):
        house.wait(house.are_rows_there, "the rows so far")
        if number % 2 == 0:
            house.wait(lambda: not house.is_batch_open(), "the end of a micro-batch")
            house.kill()
            house.forget_last_commits()
        else:
            house.append(50)
            house.wait(house.is_batch_open, "a micro-batch")
            time.sleep(rng.random())
            house.kill()
        tell(f"{house.killed}: killed, {len(house.rows)} records, {house.replayed} micro-batches to be repeated")
        if number == 0:
            house.sync()
        house.append(50)
        house.start()
    house.wait(house.are_rows_there, "all rows")
    house.sync()
    return house.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description="streams into Iceberg and Delta tables whose driver is killed")
    parser.add_argument("--kills", type=int, default=0)
    given = parser.parse_args()
    print(*toolchain.lakehouse())
    if not given.kills:
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-lakehouse-") as scratch:
        house = Lakehouse(Path(scratch).resolve(), quick_java())
        try:
            found = run(house, given.kills, lambda line: print(line, flush=True))
        finally:
            house.end()
        for name, rows in found.items():
            assert rows == sorted(house.rows), f"{name}: {len(rows)} rows, not {len(house.rows)}"
        print(f"{len(house.rows)} records are in each of {len(found)} tables once after {house.killed} kills")


if __name__ == "__main__":
    main()
