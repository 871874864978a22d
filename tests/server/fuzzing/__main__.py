"""Mutated requests at a server by the hundred thousand: `ci/fuzz_server.sh`, or `python -m tests.server.fuzzing`.

It prints its seed at once, the figures after every look at the server, and ends with status 1 at a finding; requests
that were sent last are in build/fuzz-requests then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
from pathlib import Path

from tests.server.fuzzing.driver import Driver, Finding, Limits, keep
from tests.server.fuzzing.served import Served
from tests.trees import ROOT


def main() -> int:
    """Send, look, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--every", type=int, default=5_000, help="requests between two looks at the server")
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    parser.add_argument("--rss", type=float, default=400, help="MB that each process of the server may have")
    parser.add_argument("--answer", type=float, default=30, help="seconds that a well-behaved client waits at most")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree whose kafkalog is started")
    parser.add_argument("--preload", default="", help="library of a sanitizer that the server's process is given")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    environment = {"LD_PRELOAD": given.preload, "PYTHONMALLOC": "malloc"} if given.preload else {}
    with tempfile.TemporaryDirectory(prefix="kafkalog-fuzz-") as directory:
        served = Served(Path(directory), given.root, environment, given.workers)
        driver = None
        try:
            served.start()
            driver = Driver(served, given.seed, Limits(given.rss * given.workers, given.answer))
            asyncio.run(driver.run(given.requests, given.every))
            status = served.stop()
            if status:
                raise Finding(f"the server ended with status {status}: {served.log()[-6000:]}")
        except Finding as error:
            assert driver is not None
            keep(ROOT / "build" / "fuzz-requests", driver.sent_last)
            print(f"FINDING: {error}\nseed {given.seed}; what was sent last is in build/fuzz-requests", flush=True)
            driver.figures.tracebacks["finding"] += 1
        finally:
            if served.is_alive:
                served.stop()
        assert driver is not None
        print(driver.figures, flush=True)
        for last, count in driver.figures.tracebacks.most_common():
            print(f"{count} times: {last}", flush=True)
        if driver.figures.tracebacks:
            (ROOT / "build").mkdir(exist_ok=True)
            (ROOT / "build" / "fuzz-log").write_text(served.log())
    return 1 if driver.figures.tracebacks else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
