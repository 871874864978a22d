"""`python -m asv_benchmarks.growth [PART ...]`: measure growth and draw docs/images/growth-*.svg.

Parts are threads, workers, partitions and size, all by default; the others keep what results/growth.json has of them.
`draw` measures none. GROWTH_MB sets the size of a log in the runs with threads (default 30; scans and checks have ten
times as much), GROWTH_PARTITIONS the largest number of partitions (default 10,000), GROWTH_LARGEST_MB the largest
partition (default 1000; 10000 is 10 GB, and takes as much disk), GROWTH_SERVED_MB that at a server (default 1000),
GROWTH_ROUNDS the rounds (default 5). TMPDIR is where logs are written.
"""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from asv_benchmarks.growth import local, served
from asv_benchmarks.growth.draw import draw
from kafkalog.server.running import raise_descriptor_limit

RESULTS = Path(__file__).resolve().parent.parent / "results" / "growth.json"
REQUESTS = 2000
PARTITIONS_MB = 64
PARTS = ("threads", "workers", "partitions", "size")


def main(arguments: list[str]) -> None:
    unknown = set(arguments) - {*PARTS, "draw"}
    if unknown:
        sys.exit(f"unknown part {', '.join(sorted(unknown))}: known are {', '.join(PARTS)} and draw")
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"loads": {}}
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="kafkalog-growth-") as work:
        for name in arguments or PARTS:
            if name == "draw":
                continue
            before = os.getloadavg()[0]
            found[name] = measured(name, Path(work))
            found["loads"][name] = [round(one, 1) for one in (before, os.getloadavg()[0])]
            found["machine"] = f"{os.cpu_count()} processors, {platform.machine()}"
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: measured, load {found['loads'][name]}", flush=True)
    for line in draw(found):
        print(line)


def measured(name: str, work: Path) -> dict[str, Any]:
    """Return the figures of a part."""

    def number(name: str, usual: int) -> int:
        return int(os.environ.get(f"GROWTH_{name}", usual))

    rounds, counts = number("ROUNDS", 5), powers(number("PARTITIONS", 10_000))
    if name == "threads":
        return local.by_threads(work, number("MB", 30), rounds)
    if name == "workers":
        return served.by_workers(work, REQUESTS, rounds)
    if name == "partitions":
        return {
            **local.by_partitions(work, counts, PARTITIONS_MB),
            **served.by_partitions(work, counts, REQUESTS),
        }  # fmt: skip
    return {
        **local.by_size(work, powers(number("LARGEST_MB", 1000))),
        **served.by_size(work, powers(number("SERVED_MB", 1000)), REQUESTS),
    }  # fmt: skip


def powers(largest: int) -> list[int]:
    """Return 1, 10, 100 and so on, up to the largest."""
    found = [1]
    while found[-1] * 10 <= largest:
        found.append(found[-1] * 10)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
