"""The packages whose lines are changed, and the tests that reach them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """Sources, as patterns, and tests: files and folders, those first that are quick and close."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


_LOG = ("tests/test_open.py", "tests/test_append.py", "tests/test_api_read.py", "tests/test_times.py")
PACKAGES = {
    "storage": Package(("kafkalog/storage/*.py",), ("tests/storage", *_LOG, "tests/golden")),
    "records": Package(("kafkalog/records/*.py",), ("tests/records", "tests/golden", "tests/_core/test_legacy.py")),
    "cleaner": Package(
        ("kafkalog/cleaner/*.py",), ("tests/cleaner", "tests/test_compact.py", "tests/golden/test_cleaner.py")
    ),
    "manager": Package(
        ("kafkalog/manager/*.py",), ("tests/manager", "tests/test_open_dirs.py", "tests/golden/test_log_manager.py")
    ),
    "verify": Package(
        ("kafkalog/tools/verify*.py", "kafkalog/tools/repair*.py"),
        (
            "tests/tools/test_verify*.py", "tests/tools/test_repair*.py", "tests/cli/test_verify_cmd.py",
            "tests/cli/test_repair_cmd.py",
        ),
    ),
    "groups": Package(
        ("kafkalog/server/groups/*.py", "kafkalog/server/apis/offset_*.py", "kafkalog/server/apis/*_group*.py"),
        ("tests/server/groups", "tests/server/apis/test_offset_calls.py", "tests/cli/test_consume_group.py"),
    ),
    "txns": Package(("kafkalog/server/txns/*.py",), ("tests/server/txns", "tests/server/apis/test_trans*.py")),
    "replica": Package(("kafkalog/server/replica/*.py",), ("tests/server/replica", "tests/server/apis/test_[fp]*.py")),
    "core": Package(("kafkalog/_core/*.pyx",), ("tests/_core", "tests/storage", "tests/cleaner")),
}  # fmt: skip


def files_reaching(package: Package, module: str, root: Path) -> list[str]:
    """Return the test files that reach a module: those named like it, those that name it, the others."""
    files: dict[Path, None] = {}
    for pattern in package.tests:
        for found in sorted(root.glob(pattern)):
            files |= dict.fromkeys(sorted(found.rglob("test_*.py")) if found.is_dir() else [found])
    stem = Path(module).stem.strip("_")
    named = re.compile(rf"\b{Path(module).parent.name}(?:\.| import .*\b){stem}\b")

    def distance(file: Path) -> int:
        if stem in file.stem or file.stem.removeprefix("test_") in stem:
            return 0
        return 1 if named.search(file.read_text(encoding="utf-8")) else 2

    return [str(file.relative_to(root)) for file in sorted(files, key=distance)]
