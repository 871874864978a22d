"""Trials of a replica set for as long as one likes: `make soak`.

    python -m tests.server.replicated.soak [--seconds 7200] [--seed N] [--round 60] [--keep DIRECTORY]
    python -m tests.server.replicated.soak --check DIRECTORY

Each round is a new set with a seed of its own, which is printed with its counts; each fourth one lets nodes lead by
force. The directory of a round with findings is kept, and `--check` looks at such a one again. KAFKALOG_SOAK_S says how
many seconds where --seconds does not.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.server.replicated.trial import Trial, checked_again, is_allowed


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.replicated.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("KAFKALOG_SOAK_S", "7200")))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--round", type=float, default=60, help="seconds of each set")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()), help="where findings are kept")
    parser.add_argument("--check", type=Path, help="the directory of a round")
    given = parser.parse_args(words)
    logging.disable(logging.CRITICAL)  # what clients say of each failure
    if given.check is not None:
        faults = checked_again(given.check)
        for fault in faults:
            print("  " if is_allowed(fault, is_forced="forced" in given.check.name) else "! ", fault)
        return 1 if faults else 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the nodes of a round end with it
    end = time.monotonic() + given.seconds
    total: Counter[str] = Counter()
    failed = 0
    seed = given.seed
    while time.monotonic() < end:
        is_forced = seed % 4 == 3
        place = given.keep / f"replicas-{seed}{'-forced' if is_forced else ''}"
        place.mkdir(parents=True)
        result = Trial(place, seed, is_forced=is_forced).run(given.round)
        print(f"{result}{f' (kept in {place})' if result.findings else ''}", flush=True)
        total += result.counts
        total["rounds"] += 1
        failed += bool(result.findings)
        if not result.findings:
            shutil.rmtree(place)
        seed += 1
    print(f"from seed {given.seed} on, {failed} with findings: {dict(sorted(total.items()))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
