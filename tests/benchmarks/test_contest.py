"""CPU time of a process and all below it, from which the benchmarks of Spark have their ratios."""

import os
import subprocess
import sys
import time

import pytest

from asv_benchmarks.spark import contest

BUSY_S = 0.3
PROGRAM = f"import time\nwhile time.process_time() < {BUSY_S}: pass\nprint(flush=True)\ninput()"


def test_a_process_that_ends_while_it_is_counted_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    start, read, below = contest.tree_cpu(), contest.stat, contest.descendants
    listed: list[int] = []
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()

        def descendants() -> list[int]:
            listed[:] = below()
            return [*listed]

        def end_meanwhile(process: int) -> list[str]:
            found = read(process)
            if process == os.getpid() and child.pid in listed and child.returncode is None:
                child.communicate(b"\n")
            return found

        monkeypatch.setattr(contest, "descendants", descendants)
        monkeypatch.setattr(contest, "stat", end_meanwhile)
        counted = contest.tree_cpu() - start
        assert child.returncode == 0
    assert BUSY_S <= counted + 0.02 <= BUSY_S + time.process_time()
