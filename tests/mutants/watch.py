"""A plugin of pytest that writes which tests run each line of kafkalog: `-p tests.mutants.watch`.

KAFKALOG_WATCH names the file to write: seconds of each test, and for each line of a source the tests that ran it. A
line that a fixture of a file or of the session runs counts for every test of that file.
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

ROOT = Path(__file__).resolve().parents[2]
_COVERAGE = coverage.Coverage(data_file=None, source=[str(ROOT / "kafkalog")], config_file=False)
_SECONDS: dict[str, float] = {}


def pytest_sessionstart() -> None:
    """Start before a test is imported."""
    _COVERAGE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note the lines and the seconds of one test."""
    _COVERAGE.switch_context(item.nodeid)
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        _SECONDS[item.nodeid] = time.perf_counter() - began
        _COVERAGE.switch_context("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """Give the lines of a fixture that tests share to all tests of the file."""
    test = getattr(request, "_pyfuncitem", None)
    if fixturedef.scope == "function" or test is None:
        return (yield)
    _COVERAGE.switch_context(test.nodeid.partition("::")[0])
    try:
        return (yield)
    finally:
        _COVERAGE.switch_context(test.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    number = {test: place for place, test in enumerate(sorted(data.measured_contexts()))}
    lines = {}
    for file in data.measured_files():
        found = data.contexts_by_lineno(file).items()
        lines[str(Path(file).relative_to(ROOT))] = {line: [number[test] for test in tests] for line, tests in found}
    seen = {"seconds": _SECONDS, "tests": list(number), "lines": lines}
    Path(os.environ["KAFKALOG_WATCH"]).write_text(json.dumps(seen), encoding="utf-8")
