"""Recovery of one segment in the page cache that was not closed well, one thread: bytes for each second of CPU."""

import shutil
from pathlib import Path

from asv_benchmarks.benchmarks.common import fill_log
from asv_benchmarks.hot_paths.opening import recovered
from asv_benchmarks.measure import Row, per_item
from asv_benchmarks.verifying import copied

BARS = {100: 4.8, 1: 1.8}
"""GB/s: four times, and thirty times, the 1.2 and 0.06 GB/s of Kafka's own recovery on an idle machine of this kind."""


def rows(directory: Path, megabytes: int) -> list[Row]:
    """Return the rows of batches of 100 records, then of 1, with checksums, indexes, producers, snapshot and close."""
    found = []
    for count, bar in BARS.items():
        path = directory / f"recover{count}-0"
        fill_log(path, count, megabytes * 1_000_000)

        rate = 1 / per_item(lambda path=path: recovered(path), rounds=3) / 1e9
        copy = 1 / per_item(lambda path=path: copied(path), rounds=3) / 1e9
        work = f"recovery, batches of {count} record{'s' if count > 1 else ''}"
        found.append(Row(work, rate, bar, "GB/s", False, {"pread alone": copy}))
        shutil.rmtree(path)
    return found
