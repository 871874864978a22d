"""A read-only mapping: its bytes, what keeps it alive, and that it needs no descriptor."""

import os
from pathlib import Path

import pytest

from kafkalog._core.mapping import Mapping


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    return path


def test_shows_what_is_written_later_and_needs_no_descriptor(file: Path) -> None:
    fd = os.open(file, os.O_RDWR)
    mapping = Mapping(fd, 10)
    view = memoryview(mapping)
    os.pwrite(fd, b"ab", 3)
    os.close(fd)
    assert bytes(view) == b"012ab56789"
    assert len(mapping) == mapping.length == 10
    del mapping
    file.unlink()
    assert view[3:5] == b"ab", "a buffer taken from it keeps the pages"


def test_cannot_be_written_to(file: Path) -> None:
    with file.open("rb") as opened:
        view = memoryview(Mapping(opened.fileno(), 10))
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_errors(file: Path) -> None:
    with file.open("rb") as opened, pytest.raises(ValueError, match="cannot map 0 bytes"):
        Mapping(opened.fileno(), 0)
    with file.open("rb") as opened, pytest.raises(ValueError, match="11 bytes of a file of 10"):
        Mapping(opened.fileno(), 11)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Mapping(-1, 10)
