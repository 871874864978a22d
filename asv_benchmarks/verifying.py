"""`verify` of a log in the page cache, one thread: bytes for each second of CPU, beside the copy that pread makes."""

import shutil
from pathlib import Path

from asv_benchmarks.benchmarks.common import fill_log
from asv_benchmarks.hot_paths.opening import checked
from asv_benchmarks.measure import Row, per_item

CHUNK_BYTES = 256 << 10
BARS = {100: 5.0, 1: 2.5}


def rows(directory: Path, megabytes: int) -> list[Row]:
    """Return the rows of batches of 100 records of 100 bytes, then of 1; log and indexes are checked completely."""
    found = []
    for count, bar in BARS.items():
        path = directory / f"verify{count}-0"
        fill_log(path, count, megabytes * 1_000_000)

        rate = 1 / per_item(lambda path=path: checked(path), rounds=3) / 1e9
        copy = 1 / per_item(lambda path=path: copied(path), rounds=3) / 1e9
        plural = "s" if count > 1 else ""
        found.append(Row(f"verify, batches of {count} record{plural}", rate, bar, "GB/s", False, {"pread alone": copy}))
        shutil.rmtree(path)
    return found


def copied(path: Path) -> int:
    """Read all segments into one buffer of the size that verify uses; return the bytes."""
    buffer, total = bytearray(CHUNK_BYTES), 0
    for segment in path.glob("*.log"):
        with segment.open("rb", buffering=0) as source:
            while read := source.readinto(buffer):
                total += read
    return total
