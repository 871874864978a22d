"""A copy of the tree, and one change at a time tried in it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutants import blocks
from tests.mutants.python_changes import Change
from tests.mutants.reach import Seen

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist", "site", "env")
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not interop and not spark")
BUILD = ("setup.py", "-q", "build_ext", "--inplace", "-j", "1")
ALL_PASSED, NO_SUCH_TEST = 0, (4, 5)
MOST_BYTES = 8 << 30
"""Most memory of one process: a change may ask for all that there is."""


class Outcome(NamedTuple):
    """Noticed, survived, timed out or not built; and by which test."""

    word: str
    test: str = ""


class Copy:
    """The tree `root` in a separate directory."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        shutil.copytree(root, place, symlinks=True, ignore=LEFT_OUT)
        self._date = int((place / "setup.py").stat().st_mtime)

    def watch(self, tests: list[str], timeout_s: float, **variables: str) -> Seen:
        """Run all tests, and return which lines each of them runs; whether they pass is not looked at."""
        seen = self.place / "build" / "watched.json"
        seen.parent.mkdir(exist_ok=True)
        options = ["-p", "tests.mutants.watch", "--maxfail=1000000"]
        status, output = self._call([*PYTEST, *options, *tests], timeout_s, KAFKALOG_WATCH=str(seen), **variables)
        if not seen.exists():
            raise RuntimeError(f"pytest ended with {status}: {output[-2000:]}")
        return Seen(seen.read_text(encoding="utf-8"))

    def watch_compiled(self, tests: list[str], timeout_s: float) -> Seen:
        """Do the same for lines of the compiled modules, which are built for it and restored."""
        library = blocks.build(self.place / "build")
        status, output = self._call([*BUILD, "--force"], timeout_s, KAFKALOG_DEBUG="1", CFLAGS=blocks.FLAGS)
        if status != 0:
            raise RuntimeError(f"the build ended with {status}: {output[-2000:]}")
        try:
            return self.watch(tests, timeout_s, LD_PRELOAD=str(library))
        finally:
            self._restore_build()

    def run(self, tests: list[str], timeout_s: float) -> Outcome:
        """Run tests up to the first that fails."""
        chosen = self.place / "chosen-tests"
        chosen.write_text("\n".join(tests), encoding="utf-8")
        status, output = self._call([*PYTEST, f"@{chosen}"], timeout_s)
        if status is None or status == ALL_PASSED:
            return Outcome("timed out" if status is None else "survived")
        failed = re.search(r"^(?:FAILED|ERROR) (tests\S+|test_\S+)", output, re.MULTILINE)
        if failed is None and status in NO_SUCH_TEST:
            raise RuntimeError(output[-2000:])
        return Outcome("noticed", failed[1] if failed else f"status {status}")

    def try_change(self, change: Change, tests: list[str], timeout_s: float) -> Outcome:
        """Run tests with one change in the copy, and take it back."""
        file, is_compiled = self.place / change.path, not change.path.endswith(".py")
        source, date = file.read_bytes(), file.stat().st_mtime
        self._write(file, change.applied(source), is_compiled)
        try:
            if is_compiled and self._call([*BUILD], 600)[0] != 0:
                return Outcome("not built")
            return self.run(tests, timeout_s)
        finally:
            self._write(file, source, is_compiled)
            if is_compiled:
                os.utime(file, (date, date))
                self._restore_build()

    def _write(self, file: Path, source: bytes, is_compiled: bool) -> None:
        file.write_bytes(source)
        self._date += 2  # a date that this file never had, since compiled Python is keyed by size and seconds
        date = time.time() if is_compiled else self._date  # Cython looks for what is later than its output
        os.utime(file, (date, date))

    def _restore_build(self) -> None:
        for folder in ("kafkalog/_core", "build"):
            for file in (self.root / folder).rglob("*"):
                other, found = self.place / file.relative_to(self.root), file.stat()
                if file.is_file() and (not other.exists() or other.stat().st_mtime_ns != found.st_mtime_ns):
                    shutil.copy2(file, other)

    def _call(self, arguments: list[str], timeout_s: float, **variables: str) -> tuple[int | None, str]:
        environ = {**os.environ, **variables, "PYTHONPATH": str(self.place)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.place, env=environ, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            try:
                status: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return status, output.read()


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """A copy that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as place:
        yield Copy(root, Path(place) / "tree")
