"""The packages whose lines are changed, and the tests that reach them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """Sources, as patterns, and tests: files and folders, those first that are quick and close."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


_LOG = (
    "tests/test_open.py", "tests/test_append.py", "tests/test_api_read.py", "tests/test_times.py",
    "tests/test_hooks.py",
)  # fmt: skip
PACKAGES = {
    "storage": Package(("kafkalog/storage/*.py",), ("tests/storage", *_LOG, "tests/golden")),
    "records": Package(("kafkalog/records/*.py",), ("tests/records", "tests/golden", "tests/_core/test_legacy.py")),
    "cleaner": Package(
        ("kafkalog/cleaner/*.py",), ("tests/cleaner", "tests/test_compact.py", "tests/golden/test_cleaner.py")
    ),
    "manager": Package(
        ("kafkalog/manager/*.py",), ("tests/manager", "tests/test_open_dirs*.py", "tests/golden/test_log_manager.py")
    ),
    "tools": Package(
        ("kafkalog/tools/*.py",),
        ("tests/tools", "tests/cli", "tests/golden/test_dump_*.py", "tests/golden/test_con*e.py"),
    ),
    "groups": Package(
        ("kafkalog/server/groups/*.py", "kafkalog/server/apis/offset_*.py", "kafkalog/server/apis/*_group*.py"),
        ("tests/server/groups", "tests/server/apis/test_offset_calls.py", "tests/cli/test_consume_group.py"),
    ),
    "txns": Package(("kafkalog/server/txns/*.py",), ("tests/server/txns", "tests/server/apis/test_trans*.py")),
    "replica": Package(("kafkalog/server/replica/*.py",), ("tests/server/replica", "tests/server/apis/test_[fp]*.py")),
    "server": Package(
        ("kafkalog/server/*.py", "kafkalog/server/apis/*.py", "kafkalog/server/net/*.py"),
        ("tests/server/test_*.py", "tests/server/apis", "tests/server/net", "tests/server/security"),
    ),
    "core": Package(("kafkalog/_core/*.pyx",), ("tests/_core", "tests/storage", "tests/cleaner")),
}  # fmt: skip


def files_of(package: Package, root: Path) -> list[Path]:
    """Return the files of a package's tests."""
    files: dict[Path, None] = {}
    for pattern in package.tests:
        for found in sorted(root.glob(pattern)):
            files |= dict.fromkeys(sorted(found.rglob("test_*.py")) if found.is_dir() else [found])
    return list(files)


def files_reaching(package: Package, module: str, root: Path) -> list[str]:
    """Return a package's test files, those first that are named like a module, then those that name it."""
    stem = Path(module).stem.strip("_")
    named = re.compile(rf"\b{Path(module).parent.name}(?:\.| import .*\b){stem}\b")

    def distance(file: Path) -> int:
        if stem in file.stem or file.stem.removeprefix("test_") in stem:
            return 0
        return 1 if named.search(file.read_text(encoding="utf-8")) else 2

    return [str(file.relative_to(root)) for file in sorted(files_of(package, root), key=distance)]


class Seen:
    """What `tests.mutants.watch` saw: the tests that ran each line of a source."""

    def __init__(self, page: str) -> None:
        seen = json.loads(page)
        self._seconds: dict[str, float] = seen["seconds"]
        self._tests: list[str] = seen["tests"]
        self._lines: dict[str, dict[str, list[int]]] = seen["lines"]

    def tests_of(self, path: str, source: bytes, line: int) -> list[str]:
        """Return the tests that ran the statement at a line, the quick ones first.

        A line outside of functions runs once, with the first import: any test that ran the module may hang on it.
        """
        lines = self._lines.get(path, {})
        if (span := _statement(source, line)) is None:
            numbers = {test for tests in lines.values() for test in tests}
        else:
            numbers = {test for one in span for test in lines.get(str(one), ())}
        found = {self._tests[number] for number in numbers}
        files = {test for test in found if "::" not in test} - {""}
        found = {test for test in self._seconds if test in found or test.partition("::")[0] in files}
        return sorted(found, key=self._seconds.__getitem__)


def _statement(source: bytes, line: int) -> range | None:
    """Return the lines up to `line` of the smallest statement in a function that has it; None outside of functions."""
    best: range | None = None
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in (found for child in function.body for found in ast.walk(child)):
                if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
                    first = range(node.lineno, line + 1)
                    best = first if best is None or len(first) <= len(best) else best
    return best
