"""The tests against a finished wheel, where a Python can be had that it runs on."""

import os
import platform
from pathlib import Path

from .command import Failed, run
from .headers import interpreters
from .targets import Target

# Debian's own aarch64 Pythons, in roots that an emulated processor runs where this machine has another one
EMULATED_SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}


class NotRun(Exception):
    """There is nothing to run the wheel with; says what is missing."""


def try_wheel(target: Target, wheel: Path, root: Path, cache: Path, options: list[str], log: Path) -> str:
    """Run the suite against `wheel` with pytest's `options`; returns pytest's last line.

    Raises `NotRun` where no Python can be had for the target, and `Failed` where a test fails.
    """
    if target.libc == "musllinux":
        raise NotRun("no registry has a Python built for musl")
    if target.machine == platform.machine():
        return last_line(run(["bash", root / "ci/test_wheel.sh", wheel, local_python(target), *options], log))
    if target.machine != "aarch64" or target.python not in EMULATED_SUITES:
        raise NotRun(f"no {target.machine} Python {target.python} in Debian's packages")
    suite = EMULATED_SUITES[target.python]
    emulated = cache / "roots" / f"arm64_{suite}"
    emulated.parent.mkdir(exist_ok=True)
    run(["bash", root / "ci/aarch64_root.sh", emulated, suite], log)
    return last_line(run(["bash", root / "ci/test_aarch64.sh", emulated, wheel, *options], log))


def local_python(target: Target) -> Path:
    """Return an interpreter of this machine for the target."""
    for program in interpreters(target.python):
        try:
            run([program, "-c", "import venv"], Path(os.devnull))
        except Failed:  # a shim of a version that is not chosen
            continue
        return program
    raise NotRun(f"no Python {target.python} on this machine")


def last_line(said: str) -> str:
    """Return the last line of pytest, as `12 passed in 3.4s`, without its frame."""
    lines = [line.strip("= ") for line in said.splitlines() if " passed" in line or " failed" in line]
    return lines[-1] if lines else "said nothing of tests"
