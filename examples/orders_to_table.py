"""Orders in a log become rows of an Iceberg table, each once, although what writes the table is killed on the way.

    python orders_to_table.py shop lake --orders 20000 --kills 3

This program appends orders to the topic `orders` of the data directory `shop`. Beside it runs

    kafkalog table sync -d shop -t orders -s value=json --project ... --follow iceberg:lake/shop.orders

which is killed without a warning as soon as it has written a file, and started again. The positions in the log are part
of each commit to the table, so it continues with the next order, and a file without a commit is not part of the table.
At the end DuckDB sums up the table and the log, which must be the same; otherwise the status is 1. Run it again for
more orders in the same table. It needs the extras `lake` and `sql`.

With `--spark` a stream on Spark, stream_to_iceberg.py, writes the table, and is killed in its second batch. That also
needs the extra `spark`, and Java 17. Give each of the two a LAKE of its own.
"""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyiceberg.catalog.sql import SqlCatalog

import kafkalog

TOPIC, TABLE, PARTITIONS = "orders", "shop.orders", 3
PRODUCTS = {"bread": 320, "cheese": 1450, "honey": 890, "olives": 640, "tea": 1175, "wine": 2350}  # cents for one
MONDAY_MS, STEP_MS = 1_767_571_200_000, 1000
ORDERS_A_WRITE = 500
FIELDS = {
    "partition": "partition", "offset": "offset", "timestamp": "timestamp",
    "product": "value.product", "cents": "value.cents",
}  # fmt: skip
TOTALS = 'SELECT product, count(*) AS orders, sum(cents)::BIGINT AS cents FROM "rows" GROUP BY ALL ORDER BY product'
START_S = 600


def order(partition: int, offset: int) -> tuple[bytes, bytes, int]:
    """An order as key, value and time; the same one for the same place in the log."""
    rng = random.Random(f"{partition} {offset}")
    product = rng.choice([*PRODUCTS])
    value = {"product": product, "cents": PRODUCTS[product] * rng.randint(1, 5)}
    return b"customer %d" % rng.randrange(500), json.dumps(value).encode(), MONDAY_MS + offset * STEP_MS


def append(dirs: kafkalog.LogDirs, count: int) -> None:
    """Append orders, as a shop does: a few at a time, to each partition in turn."""
    logs = dirs.logs(TOPIC)
    for turn, first in enumerate(range(0, count, ORDERS_A_WRITE)):
        log = logs[turn % len(logs)]
        end = log.end_offset
        log.append([order(log.partition, end + n) for n in range(min(ORDERS_A_WRITE, count - first))])
    for log in logs:
        log.flush()


class Sync:
    """The program that writes the table, which can be killed and started again."""

    _pattern = "*.parquet"
    _files_before_kill = 1

    def __init__(self, data: Path, lake: Path) -> None:
        project = ",".join(f"{name}={path}" for name, path in FIELDS.items())
        target = f"iceberg:{lake}/{TABLE}"
        line = [sys.executable, "-m", "kafkalog", "table", "sync", "-d", str(data), "-t", TOPIC]
        self._line = [*line, "-s", "value=json", "--project", project, "-q", target]
        self._follow = ["--follow", "--commit-every", "0.2"]
        self._files = lake / "shop" / "orders" / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def follow(self) -> None:
        """Start it; it keeps syncing."""
        line = [*self._line, *self._follow]
        self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def kill_after_file(self, known: set[str]) -> None:
        """Kill it once it has written files that are not `known`; the last commit may have been made or not."""
        assert self._process is not None
        until = time.monotonic() + START_S
        while len(self.files() - known) < self._files_before_kill:
            if self._process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the sync ended, or wrote nothing")
            time.sleep(0.005)
        self._process.kill()
        self._process.wait()

    def files(self) -> set[str]:
        """Data files in the table's directory, those without a commit among them."""
        return {one.name for one in self._files.glob(self._pattern)}

    def finish(self) -> None:
        """Write what is still missing, once."""
        subprocess.run(self._line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    def end(self) -> None:
        """Kill it if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class SparkSync(Sync):
    """The same by a stream on Spark, in batches of so many orders."""

    _pattern = "*/*.parquet"  # without those that Spark's tasks have not finished
    _files_before_kill = 2

    def __init__(self, data: Path, lake: Path, batch: int) -> None:
        super().__init__(data, lake)
        self._line = [sys.executable, str(Path(__file__).with_name("stream_to_iceberg.py")), str(data), str(lake)]
        self._follow = ["--follow", "--batch", str(batch)]


def totals(rows: Any) -> list[tuple[Any, ...]]:
    """Orders and cents of each product, by DuckDB."""
    with duckdb.connect() as sql:
        sql.register("rows", rows)
        return sql.sql(TOTALS).fetchall()


def scan_of_table(lake: Path) -> Any:
    """The table's newest snapshot, as any reader of Iceberg finds it."""
    place = lake.resolve()
    catalog = SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    with contextlib.closing(catalog):
        return catalog.load_table(TABLE).scan()


def shown(rows: Iterable[tuple[Any, ...]]) -> str:
    """The totals as lines of text."""
    return "\n".join(f"{product:8} {orders:8,} orders {cents / 100:14,.2f}" for product, orders, cents in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders in a log become an Iceberg table, each once.")
    parser.add_argument("data", type=Path, metavar="DATA", help="the data directory of the log")
    parser.add_argument("lake", type=Path, metavar="LAKE", help="the directory of the table and its catalog")
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=3, help="how often the sync is killed")
    parser.add_argument("--spark", action="store_true", help="write the table by a stream on Spark")
    given = parser.parse_args()
    parts = given.kills + 1
    sync = Sync(given.data, given.lake)
    if given.spark:
        sync = SparkSync(given.data, given.lake, max(1, given.orders // parts // 4))
    with kafkalog.open_dirs(given.data, "a") as dirs:
        if TOPIC not in dirs.topics:
            dirs.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
        try:
            for part in range(parts):
                known = sync.files()
                append(dirs, given.orders * (part + 1) // parts - given.orders * part // parts)
                if part < given.kills:
                    sync.follow()
                    sync.kill_after_file(known)
        finally:
            sync.end()
        sync.finish()
        log = totals(pyarrow.table(dirs.scan(TOPIC, value="json", project=FIELDS)))
    scan = scan_of_table(given.lake)
    table = totals(scan.to_arrow())
    print(shown(table))
    unused = len(sync.files()) - len([*scan.plan_files()])
    print(f"{sum(row[1] for row in table):,} orders; {given.kills} kills; {unused} files without a commit")
    print("the table and the log have the same totals" if table == log else f"the log has other totals:\n{shown(log)}")
    return 0 if table == log else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
