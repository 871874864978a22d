"""A plugin of pytest that writes which tests run each line of kafkalog: `-p tests.mutants.watch`.

KAFKALOG_WATCH names the file to write: seconds of each test, and for each line of a source the tests that ran it. A
line that a fixture of a file or of the session runs counts for every test of that file. The lines are those of Python,
or those of the compiled modules if the process was started with `tests.mutants.blocks`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants.blocks import Blocks, is_loaded

ROOT = Path(__file__).resolve().parents[2]


class Statements:
    """Statements of Python that ran, by the test that ran them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._coverage = coverage.Coverage(data_file=None, source=[str(root / "kafkalog")], config_file=False)
        self._coverage.start()
        self.switch = self._coverage.switch_context

    def lines(self) -> dict[str, dict[int, set[str]]]:
        """Return the contexts that ran each line, by the path of its source below the root."""
        self._coverage.stop()
        data = self._coverage.get_data()
        return {
            str(Path(file).relative_to(self._root)): {
                line: set(tests) for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }


_RAN: Blocks | Statements = Blocks(ROOT) if is_loaded() else Statements(ROOT)
_SECONDS: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note the lines and the seconds of one test."""
    _RAN.switch(item.nodeid)
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        _SECONDS[item.nodeid] = time.perf_counter() - began
        _RAN.switch("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """Give the lines of a fixture that tests share to all tests of the file."""
    test = getattr(request, "_pyfuncitem", None)
    if fixturedef.scope == "function" or test is None:
        return (yield)
    _RAN.switch(test.nodeid.partition("::")[0])
    try:
        return (yield)
    finally:
        _RAN.switch(test.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    lines = _RAN.lines()
    tests = sorted({test for of_line in lines.values() for found in of_line.values() for test in found})
    number = {test: place for place, test in enumerate(tests)}
    numbered = {
        file: {line: sorted(map(number.__getitem__, found)) for line, found in of_line.items()}
        for file, of_line in lines.items()
    }
    seen = {"seconds": _SECONDS, "tests": tests, "lines": numbered}
    Path(os.environ["KAFKALOG_WATCH"]).write_text(json.dumps(seen), encoding="utf-8")
