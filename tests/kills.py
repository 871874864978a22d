"""Work that is killed by SIGKILL, in a forked process: at each step of it, or at random moments."""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from kafkalog.util.fileio import FileSystem
from tests.faults import WRITING_CALLS, FaultFS

KILLS = int(os.environ.get("KAFKALOG_KILLS", "0"))
"""The least number of kills of each kind of work, for `make crash-tables`; 0: what the suite has time for."""

Steps = Mapping[str, set[str]]
"""Names of functions by a part of the path of their file."""


def forked(work: Any) -> int:
    """Start a process that does the work; return its id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()  # the child ends without
        finally:
            os._exit(status)
    return child


def die_at(step: int, steps: Steps) -> Any:
    """A profiler that kills the process at its n-th call or return of a step."""
    left = step

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if any(place in code.co_filename and code.co_name in names for place, names in steps.items()):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    return profile


class Fatal(FaultFS):
    """Kills the process at its n-th call that changes a file."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.left = nth

    def _check(self, op: str, path: str, write: Any = None) -> None:
        if op in WRITING_CALLS:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1


def more_kills(kills: int, stride: int) -> tuple[int, int]:
    """Return kills and stride of `kill`: those given, or `KILLS` over the same range of steps."""
    return (KILLS, max(1, (kills - 1) * stride // (KILLS - 1))) if KILLS > kills else (kills, stride)


class Killed(NamedTuple):
    """Kills of some work: their number, and True if a later one was too late to find anything to kill."""

    kills: int
    is_over: bool


def kill(
    work: Callable[[FileSystem], None], check: Callable[[], None], how: str, kills: int, seed: int,
    steps: Steps | None = None, stride: int = 1,
) -> Killed:  # fmt: skip
    """Kill the work `kills` times and call `check` after each; it brings back the state before.

    how: "steps", at the first step and each `stride`-th after it, of the calls that change files or of `steps`; or
    "moments", at random ones, which come later or earlier as the work takes.
    """
    rng = random.Random(seed)
    longest_s, done, turn = 0.3, 0, 0
    while done < kills:
        nth = turn * stride

        def run() -> None:
            fs = FileSystem() if how == "moments" or steps else Fatal(nth)  # noqa: B023
            if how == "steps" and steps:
                sys.setprofile(die_at(nth, steps))  # noqa: B023
            work(fs)

        child = forked(run)
        if how == "moments":
            time.sleep(rng.uniform(0, longest_s))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), f"turn {turn}: the work ended with {status}"
        turn += 1
        if status == 0 and how == "steps":
            return Killed(done, True)
        if status:
            done += 1
        longest_s *= 1.1 if status else 0.6
        check()
    return Killed(done, False)
