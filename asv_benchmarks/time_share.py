"""`python -m asv_benchmarks.time_share DIR`: the share of a large log that a DuckDB query of a range of time reads.

It writes a log of GB (default 10) gigabytes below DIR, with every hundredth record 5 seconds late, and removes it at
the end. A query of 1 % of its time runs in a separate process, without its pages in the cache: without time ranges,
with `lateness_ms`, and with those of `kafkalog times build`. "read by calls" are the bytes of its read calls, "from
disk" those that the system fetched for them, read-ahead included.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import kafkalog
from asv_benchmarks.measure import KAFKALOG, run

FIRST_MS, STEP_MS = 1_700_000_000_000, 10
ROWS = 10_000
"""Records of an append; each has 512 bytes."""

QUERY = """
import json, sys
import duckdb, kafkalog, numpy, pyarrow.dataset
directory, first, last, given = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
def figures():
    lines = open("/proc/self/io").read().splitlines()
    return {name: int(number) for name, number in (line.split(": ") for line in lines)}
with duckdb.connect(config={"threads": 1}) as sql:
    sql.execute("SET enable_progress_bar = false")
    before = figures()
    with kafkalog.duckdb.register(sql, directory, **given):
        between = f"timestamp >= make_timestamptz({first * 1000}) AND timestamp < make_timestamptz({last * 1000})"
        rows = sql.execute(f"SELECT count(value) FROM orders WHERE {between}").fetchall()[0][0]
after = figures()
print(json.dumps([rows, after["rchar"] - before["rchar"], after["read_bytes"] - before["read_bytes"]]))
"""


def write(directory: Path, gigabytes: float) -> int:
    """Write the log and return the number of its records."""
    import numpy
    import pyarrow

    value = pyarrow.array([os.urandom(480) for _ in range(ROWS)])
    number = numpy.arange(ROWS)
    late = numpy.where(number % 100 == 99, 5000, 0)
    count = 0
    with kafkalog.open(directory / "orders-0", "a", segment_bytes=1 << 30, retention_ms=-1) as log:
        while log.size < gigabytes * 1e9:
            times = FIRST_MS + STEP_MS * (count + number) - late
            columns = {"value": value, "timestamp": pyarrow.array(times, pyarrow.timestamp("ms", "UTC"))}
            log.append_arrow(pyarrow.table(columns))
            count += ROWS
    return count


def drop_pages(directory: Path) -> None:
    """Write the files back and drop their pages from the cache."""
    for file in directory.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def main(work: Path, gigabytes: float) -> None:
    directory, store = work / "data", work / "times"
    directory.mkdir(parents=True)
    try:
        count = write(directory, gigabytes)
        size = sum(file.stat().st_size for file in directory.rglob("*.log"))
        middle, part = FIRST_MS + STEP_MS * count // 2, STEP_MS * count // 100
        print(f"{count:,} records, {size / 1e9:.2f} GB")

        def show(name: str, **given: object) -> None:
            drop_pages(work)
            words = [sys.executable, "-c", QUERY, directory, middle, middle + part, json.dumps(given)]
            rows, called, fetched = json.loads(subprocess.check_output([*map(str, words)]))
            print(f"{name}: {rows:,} rows, {called / size:.2%} read by calls, {fetched / size:.2%} from disk")

        show("no time ranges, the first query")
        show("no time ranges, lateness_ms=60_000", lateness_ms=60_000)
        usage = run([*KAFKALOG, "times", "build", "-d", str(directory), "--store", str(store)])
        print(f"kafkalog times build: {usage.cpu:.1f} s of CPU")
        show("time ranges of `kafkalog times build`, the first query", time_ranges=str(store))
    finally:
        for file in [*directory.rglob("*"), *store.rglob("*")]:
            if file.is_file():
                file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(os.environ.get("GB", "10")))
