"""A window moves over a file once: every byte is seen, in order, with as little memory as the work allows."""

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import StorageError
from kafkalog.tools.dump.window import FileWindow
from kafkalog.util.fileio import OS, File, FileSystem


@given(st.binary(max_size=300), st.integers(1, 64), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 90))))
def test_it_holds_the_file_from_its_position_on(data: bytes, chunk: int, moves: list[tuple[int, int]]) -> None:
    window = FileWindow(cast(File, MemoryFile(data)), len(data), chunk)
    window.advance(0, 1)
    for step, needed in moves:
        start = min(window.start + step, window.stop)
        position = window.position + start - window.start
        enough = window.advance(start, needed)
        held = window.stop - window.start
        assert window.position == position
        assert window.buffer[window.start : window.stop] == data[position : position + held]
        assert enough == (held >= needed) == (len(data) - position >= needed)
        assert len(window.buffer) <= max(chunk, len(data))


class MemoryFile:
    """An open file that needs no disk, so that a property test is quick."""

    path = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        part = self.data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def test_a_file_cut_while_it_is_read_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with OS.open_file(path, "r") as file:
        window = FileWindow(file, 10, 4)
        assert window.advance(0, 4)
        path.write_bytes(b"012345")
        assert not window.advance(4, 4)
        assert (window.position, window.left, window.end) == (4, 2, 6)


def test_no_memory_is_taken_for_more_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with OS.open_file(path, "r") as file:
        window = FileWindow(file, 10, 4)
        assert not window.advance(0, 2**40)
        assert not window.advance(0, 11)
        assert len(window.buffer) <= 10
        assert window.left == 10


class Broken(FileSystem):
    @staticmethod
    def preadv(*args: object) -> int:
        raise OSError(5, "Input/output error")


def test_a_read_that_fails_names_file_and_position(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with Broken().open_file(path, "r") as file, pytest.raises(StorageError, match="cannot read") as caught:
        FileWindow(file, 10).advance(0, 1)
    assert (caught.value.path, caught.value.position, caught.value.errno) == (str(path), 0, 5)
