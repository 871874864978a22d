"""Trials of a replica set for as long as one likes: `make soak`.

    python -m tests.server.replicated.soak [--seconds 7200] [--seed N] [--round 60] [--keep DIRECTORY]
    python -m tests.server.replicated.soak --check DIRECTORY

Each round is a new set with a seed of its own, which is printed with its counts; each fourth one lets nodes lead by
force. The directories of the first rounds with findings, or with a client that crashed, are kept, and `--check` looks
at such a one again. KAFKALOG_SOAK_S says how many seconds where --seconds does not. Ctrl-C and SIGTERM end it with
the summary of the rounds that were whole; its status is 0 where none had a finding.
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
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.server.replicated.apart import CRASHED
from tests.server.replicated.trial import Result, Trial, checked_again, is_allowed

MOST_KEPT: Final = 10
COUNT_LABELS: Final = {
    "records sent": "records sent", "records acknowledged": "acknowledged", "records read": "read and checked",
    "kills": "kills", "links cut": "links cut", "delay": "times delayed", "pause": "nodes paused",
    "slow_disk": "slow disks", "promotions": "promotions", "promotions refused": "refused",
}  # fmt: skip


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
    soak = Soak(given.keep, given.seed, given.round)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, soak.end)
    soak.run(given.seconds)
    print(f"{'ended early: ' if soak.is_ended else ''}{soak.summary()}", flush=True)
    return 1 if soak.failed else 0


class Soak:
    """Rounds one after the other, and what came of them."""

    def __init__(self, keep: Path, seed: int, round_s: float) -> None:
        self.failed: list[int] = []
        """The seeds of rounds with findings."""
        self.is_ended = False
        self._is_trying = False
        self._keep = keep
        self._first = self._seed = seed
        self._round_s = round_s
        self._total: Counter[str] = Counter()
        self._kept = 0
        self._slowest_s = 0.0
        self._begin = time.monotonic()

    def run(self, seconds: float) -> None:
        """Run rounds until the time is up, the last one whole, or until `end`, which aborts the current round."""
        self._keep.mkdir(parents=True, exist_ok=True)
        while time.monotonic() < self._begin + seconds and not self.is_ended:
            with suppress(KeyboardInterrupt):
                self._round()

    def end(self, *_: object) -> None:
        """Handle a signal: start no further round."""
        self.is_ended = True
        if self._is_trying:
            self._is_trying = False  # what ends it is not interrupted
            raise KeyboardInterrupt

    def _round(self) -> None:
        is_forced = self._seed % 4 == 3
        name = f"replicas-{self._seed}-{'forced-' if is_forced else ''}"
        place = Path(tempfile.mkdtemp(prefix=name, dir=self._keep))
        is_clean = True
        try:
            result = self._tried(place, is_forced)
            is_clean = not result.findings and not crashes(result.counts)
            may_keep = self._kept < MOST_KEPT
            where = "" if is_clean else f" (kept in {place})" if may_keep else " (not kept)"
            print(f"{time.strftime('%H:%M:%S')} {result}{where}", flush=True)
            self._take(result, is_forced)
            is_clean = is_clean or not may_keep
            self._kept += not is_clean
        finally:
            if is_clean:
                shutil.rmtree(place, ignore_errors=True)

    def _tried(self, place: Path, is_forced: bool) -> Result:
        try:
            self._is_trying = True
            return Trial(place, self._seed, is_forced=is_forced).run(self._round_s)
        except Exception:  # of the trial itself: the soak goes on, and does not pass
            return Result(self._seed, [traceback.format_exc()], Counter())
        finally:
            self._is_trying = False

    def _take(self, result: Result, is_forced: bool) -> None:
        self._total += result.counts
        self._total["rounds"] += 1
        self._slowest_s = max(self._slowest_s, result.slowest_s)
        self._total["forced"] += is_forced
        if result.findings:
            self.failed.append(result.seed)
        self._seed += 1

    def summary(self) -> str:
        """A paragraph about all whole rounds."""
        total = self._total
        totals = ", ".join(f"{total[what]} {words}" for what, words in COUNT_LABELS.items())
        seeds = f"seeds {self._first} to {self._seed - 1}" if total["rounds"] else f"seed {self._first}"
        return (
            f"soak of {time.monotonic() - self._begin:.0f} s, {seeds}: {total['rounds']} rounds, {total['forced']} of "
            f"them with nodes forced to lead; {totals}; writers went on at most "
            f"{self._slowest_s:.1f} s after a heal; clients that crashed: {crashes(total)}; "
            f"rounds with findings: {len(self.failed)}{f', seeds {self.failed}' if self.failed else ''}"
        )


def crashes(counts: Counter[str]) -> int:
    """Return the number of client processes that signals ended."""
    return sum(count for what, count in counts.items() if CRASHED in what)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
