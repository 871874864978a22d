"""The directory of a test: in memory for tests that sync often, on the disk for those of a file system."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import conftest, memory


def test_a_directory_that_is_absent_or_full_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "MEMORY", str(tmp_path))
    assert memory.memory(1) == memory.memory() == str(tmp_path)
    assert memory.memory(1 << 60) is None
    monkeypatch.setattr(memory, "MEMORY", str(tmp_path / "absent"))
    assert memory.memory() is None


@pytest.mark.in_memory
def test_a_test_with_the_mark_is_there(tmp_path: Path) -> None:
    place = memory.memory()
    assert place is None or tmp_path.is_relative_to(place) and tmp_path.parent != Path(place)


def test_another_test_is_where_pytest_keeps_files(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert tmp_path.is_relative_to(tmp_path_factory.getbasetemp())


def test_folders_in_memory_are_there_and_too_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(Path(folder).is_dir() for folder in conftest.IN_MEMORY)
    monkeypatch.setattr(memory, "MEMORY", "/absent")
    assert "/absent has less than" in conftest.pytest_report_header()[-1]


def test_each_example_has_a_directory_of_its_own(new_path: Callable[[str], Path]) -> None:
    one, other = new_path("t"), new_path("t")
    assert one != other and one.is_dir() and other.is_dir()
