"""The promises of docs/stability.md: files of earlier versions are readable; deprecated names say what replaces them.

tests/data/stable has a directory for each version that wrote its own files: a backup and an export of the same two
topics. None of them is rebuilt.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.commands import kafkalog as command
from tests.trees import PACKAGE

KEPT = Path(__file__).parent / "data" / "stable"


def check_directory(directory: Path) -> None:
    """Both topics are there as they were written, sound, and take appends."""
    done = command("verify", directory)
    assert done.returncode == 0 and b"25 records: sound" in done.stdout, done.stderr
    with kafkalog.open_dirs(str(directory), "a") as dirs:
        assert {name: len(dirs.logs(name)) for name in dirs.topics} == {"orders": 2, "events": 1}
        assert [one.value for one in dirs["orders", 1]] == [b"order %d" % n for n in range(1, 21)]
        assert [one.value for one in dirs["events", 0]] == [b"event %d" % n for n in range(1, 6)]
        assert dirs["events", 0].append(b"goes on").first_offset == 5


@pytest.mark.parametrize("version", sorted(one.name for one in KEPT.iterdir()))
def test_backups_and_exports_of_earlier_versions_are_read(version: str, tmp_path: Path) -> None:
    shutil.copytree(KEPT / version, tmp_path / "kept")
    for line in (
        ("backup", "verify", "--deep", tmp_path / "kept" / "backups"),
        ("restore", tmp_path / "kept" / "backups", "-d", tmp_path / "restored"),
        ("import", "--format", "kafka-dir", tmp_path / "kept" / "exported", "-d", tmp_path / "imported"),
    ):
        done = command(*line)
        assert done.returncode == 0, done.stderr
    check_directory(tmp_path / "restored")
    check_directory(tmp_path / "imported")


def test_a_file_of_a_later_version_is_refused_and_kept(tmp_path: Path) -> None:
    with kafkalog.open_dirs(str(tmp_path), "a") as dirs:
        dirs.create_topic("orders", 1)
    file = tmp_path / "kafkalog.topics.json"
    later = file.read_text().replace('"version": 1', '"version": 2')
    file.write_text(later)
    done = command("topics", "create", "-d", tmp_path, "-t", "more")
    assert done.returncode == 1 and b"version 2 is unknown" in done.stderr
    assert file.read_text() == later


def deprecations(source: str) -> Iterator[tuple[int, str]]:
    """Each warning of something that is going away: its line, and the letters of its text that are fixed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and any("DeprecationWarning" in ast.unparse(one) for one in node.args):
            text = "".join(str(one.value) for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant))
            yield node.lineno, text


def test_what_is_going_away_says_what_takes_its_place() -> None:
    sample = (
        'warnings.warn(f"{name} goes in 0.4; use b", DeprecationWarning)\nwarnings.warn("a goes", DeprecationWarning)'
    )
    assert [bool(re.search(r"\buse\b", text)) for _, text in deprecations(sample)] == [True, False]
    for path in PACKAGE.rglob("*.py"):
        for line, text in deprecations(path.read_text(encoding="utf-8")):
            assert re.search(r"\buse\b", text), f"{path}:{line} does not say what to use"
