"""The packages whose lines are changed, and the tests that reach them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from tests.trees import ROOT

FUNCTION = re.compile(r"( *)(?:def|cdef|cpdef)\b[^=(]*\(")
"""Where a function of Cython begins."""


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
    "records": Package(
        ("kafkalog/records/*.py",),
        ("tests/records", "tests/golden", "tests/_core/test_legacy.py", "tests/cleaner/test_[rt]*.py"),
    ),
    "cleaner": Package(
        ("kafkalog/cleaner/*.py",), ("tests/cleaner", "tests/test_compact.py", "tests/golden/test_cleaner.py")
    ),
    "manager": Package(
        ("kafkalog/manager/*.py",),
        (
            "tests/manager", "tests/test_open*.py", "tests/golden/test_log_manager.py",
            "tests/server/test_many_topics.py",
        ),
    ),
    "tools": Package(
        ("kafkalog/tools/*.py",),
        ("tests/tools", "tests/cli", "tests/golden/test_dump_*.py", "tests/golden/test_con*e.py"),
    ),
    "groups": Package(
        ("kafkalog/server/groups/*.py", "kafkalog/server/apis/offset_*.py", "kafkalog/server/apis/*_group*.py"),
        (
            "tests/server/groups", "tests/server/apis/test_offset_calls.py", "tests/server/apis/test_refused_calls.py",
            "tests/cli/test_consume_group.py",
        ),
    ),
    "txns": Package(("kafkalog/server/txns/*.py",), ("tests/server/txns", "tests/server/apis/test_trans*.py")),
    "replica": Package(
        ("kafkalog/server/replica/*.py",),
        ("tests/server/replica", "tests/server/apis/test_[fp]*.py", "tests/server/replicated/test_survivors.py"),
    ),
    "server": Package(
        ("kafkalog/server/*.py", "kafkalog/server/apis/*.py", "kafkalog/server/net/*.py"),
        (
            "tests/server/test_*.py", "tests/server/apis", "tests/server/net", "tests/server/security",
            "tests/server/groups/test_group_access.py", "tests/server/groups/test_offset_answers.py",
            "tests/server/quorum/test_leading.py", "tests/server/quorum/test_handover.py",
            "tests/server/quorum/test_new_leader.py", "tests/server/quorum/test_metadata.py",
            "tests/server/replicated/test_following_leader.py",
            "tests/server/replicated/test_other_clusters.py", "tests/server/replicated/test_settings_of_a_set.py",
        ),
    ),
    "core": Package(
        ("kafkalog/_core/*/*.pyx", "kafkalog/_core/*/*.pxd"),
        ("tests/_core", "tests/records", "tests/cleaner", "tests/tools", "tests/test_append*.py", "tests/storage",
         "tests/golden/test_[a-u]*.py"),
    ),  # fmt: skip
    "messages": Package(
        ("kafkalog/_core/messages/*.p[xy][xd]",),
        ("tests/testing/test_faults.py", "tests/server/wire", "tests/test_fuzz_faces.py"),
    ),
    "requests": Package(
        ("kafkalog/server/requests/*.py",),
        ("tests/server/apis", "tests/server/net", "tests/server/security", "tests/server/groups/test_group_access.py",
         "tests/server/test_patterns.py", "tests/server/test_t*.py"),
    ),
    "keys": Package(
        ("kafkalog/keys/*.py",), ("tests/keys", "tests/cli/test_keys_cmd.py", "tests/test_open_dirs_sidecars.py")
    ),
    "time_ranges": Package(
        ("kafkalog/time_ranges/*.py",),
        ("tests/time_ranges", "tests/cli/test_times_cmd.py", "tests/test_open_dirs_sidecars.py"),
    ),
    "where": Package(
        ("kafkalog/where/*.py",), ("tests/where", "tests/cli/test_consume_where.py", "tests/browse/test_*condition.py")
    ),
    "values": Package(
        ("kafkalog/values/*.py", "kafkalog/values/schemas/*.py"),
        ("tests/values", "tests/test_decoders.py", "tests/cli/test_decoders_cmd.py", "tests/where/test_typed_scan.py"),
    ),
    "share": Package(
        ("kafkalog/server/share/*.py",),
        ("tests/server/share", "tests/server/workers/test_share_states.py", "tests/queue/test_[dfl]*.py"),
    ),
    "queue": Package(
        ("kafkalog/queue/*.py", "kafkalog/sharing/*.py", "kafkalog/log/queues.py", "kafkalog/aio/queue.py"),
        ("tests/queue", "tests/server/share", "tests/examples/test_work_queue.py"),
    ),
    "testing": Package(
        ("kafkalog/testing/*.py", "kafkalog/testing/inside/*.py", "kafkalog/pytest_plugin.py"),
        ("tests/testing", "tests/server/test_testing.py"),
    ),
    "backup": Package(
        ("kafkalog/backup/*.py", "kafkalog/backup/re*/*.py"),
        ("tests/backup", "tests/cli/test_backup_cmd.py", "tests/redact/test_redact_backups.py"),
    ),
    "lake": Package(("kafkalog/lake/*.py",), ("tests/lake",)),
    "copy": Package(("kafkalog/copy/*.py",), ("tests/copy", "tests/cli/test_copy_cmd.py")),
    "tiered": Package(
        ("kafkalog/tiered/*.py", "kafkalog/copy/tiering.py"),
        ("tests/tiered", "tests/copy/test_into_tiered.py", "tests/redact/test_redact_tiered.py",
         "tests/remote/test_remote.py"),
    ),  # fmt: skip
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
    files = sorted(files_of(package, root), key=lambda file: _distance(file, module))
    return [str(file.relative_to(root)) for file in files]


def files_naming(package: Package, module: str, root: Path) -> list[str]:
    """Return the test files that are named like a module, or name it: what they compare need not run a line of it."""
    return [str(file.relative_to(root)) for file in files_of(package, root) if _distance(file, module) < _FAR]


_FAR = 2


def _distance(file: Path, module: str) -> int:
    stem = Path(module).stem.strip("_")
    if stem in file.stem or file.stem.removeprefix("test_") in stem:
        return 0
    named = re.compile(rf"\b{Path(module).parent.name}(?:\.| import .*\b){stem}\b")
    return 1 if named.search(file.read_text(encoding="utf-8")) else _FAR


class Seen:
    """Report of `tests.mutants.watch`: the tests that ran each line of a source."""

    def __init__(self, page: str) -> None:
        seen = json.loads(page)
        self._seconds: dict[str, float] = seen["seconds"]
        self._tests: list[str] = seen["tests"]
        self._lines: dict[str, dict[str, list[int]]] = seen["lines"]

    def tests_of(self, path: str, source: bytes, line: int) -> list[str]:
        """Return the tests that ran the statement at a line, the quick ones first.

        A line outside of functions runs once, with the first import: any test that ran the module may hang on it, and
        on one of a .pxd file any test of a module that imports from there.
        """
        lines = self._lines.get(path, {})
        span = statement(source, line) if path.endswith(".py") else _blocks(source, line, lines)
        if span is None:
            files = [path, *(importers(path) if path.endswith(".pxd") else [])]
            numbers = {test for file in files for tests in self._lines.get(file, {}).values() for test in tests}
        else:
            numbers = {test for one in span for test in lines.get(str(one), ())}
        found = {self._tests[number] for number in numbers}
        shared = {test for test in found if "::" not in test} - {""}
        found = {test for test in self._seconds if test in found or test.partition("::")[0] in shared}
        return sorted(found, key=self._seconds.__getitem__)

    def seconds_of(self, tests: list[str]) -> float:
        """Return how long these tests took."""
        return sum(self._seconds[test] for test in tests)


def importers(path: str) -> list[str]:
    """Return the Cython files that import from a .pxd file, and the module that it is of."""
    file = ROOT / path
    used = re.compile(rf"\b{file.parent.name}\.{file.stem} cimport\b")
    others = file.parent.parent.glob("*/*.p[xy][dx]")
    found = [other for other in others if used.search(other.read_text(encoding="utf-8"))]
    return [str(one.relative_to(ROOT)) for one in [*found, file.with_suffix(".pyx")]]


def _blocks(source: bytes, line: int, ran: Container[str]) -> list[int] | None:
    """Return the lines at which the block that has `line`, and the one before it, begin; None outside of functions."""
    rows = source.decode().splitlines()
    for first in range(line, 0, -1):
        if (match := FUNCTION.match(rows[first - 1])) and len(match[1]) < _indentation(rows[line - 1]):
            return [one for one in range(line, first - 1, -1) if str(one) in ran][:2] or None
    return None


def _indentation(row: str) -> int:
    return len(row) - len(row.lstrip())


def statement(source: bytes, line: int) -> range | None:
    """Return the lines up to `line` of the smallest statement in a function that has it; None outside of functions."""
    best: range | None = None
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in (found for child in function.body for found in ast.walk(child)):
                if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
                    first = range(node.lineno, line + 1)
                    best = first if best is None or len(first) <= len(best) else best
    return best
