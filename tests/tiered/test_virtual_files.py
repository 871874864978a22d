"""A file system with additional files: each call on one of them, beside the files of the system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog.tiered.span_files import VirtualFile
from kafkalog.tiered.virtual_files import VirtualDirectory, VirtualFileSystem
from kafkalog.util.fileio import OS, FileSystem

Row = tuple[str, str, bool, bool, bool]
EXACT_NS = 1_700_000_000_123_456_789


class Content(NamedTuple):
    """A virtual file of some bytes."""

    data: bytes
    identity: str = "one"
    mtime_ns: int = EXACT_NS

    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class Missing(Content):
    """A virtual file that turns out to be missing."""

    def size(self) -> int:
        raise FileNotFoundError(errno.ENOENT, "missing")


WHOLE = b"0123456789" * 102 + b"01234"
FILES: Mapping[str, VirtualFile] = {
    "c": Content(WHOLE), "b": Content(b"other", "another"), "real": Content(b"hidden"),
    "none": Missing(b""),
}  # fmt: skip


class Beside(VirtualFileSystem):
    """Additional files in one directory, which are seen after a refresh."""

    def __init__(self, directory: Path) -> None:
        super().__init__(OS)
        self.directory, self.refreshed = str(directory), 0

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        if directory != self.directory:
            return {}
        self.refreshed += refresh
        return FILES if self.refreshed else {}


class Alone(VirtualDirectory):
    """A directory of which all files are virtual."""

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        return FILES if directory.rstrip("/") == self.path and refresh else {}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "real").write_bytes(b"real bytes")
    (tmp_path / "sub").mkdir()
    return tmp_path


def beside(place: Path) -> Beside:
    fs = Beside(place)
    fs.refreshed = 1
    return fs


def read_at(fs: FileSystem, number: int, *sizes: int, position: int) -> list[bytes]:
    """Return what a scattered read puts into buffers of these sizes, cut to the bytes that it reports."""
    buffers = [bytearray(size) for size in sizes]
    got = fs.preadv(number, buffers, position)
    return [b"".join(buffers)[:got]]


@pytest.mark.parametrize(("name", "whole"), [("c", WHOLE), ("real bytes", b"real bytes")])
def test_open_files_are_read_and_closed(place: Path, name: str, whole: bytes) -> None:
    (place / "real bytes").write_bytes(b"real bytes")
    fs = beside(place)
    number, other = fs.open(str(place / name), os.O_RDONLY), fs.open(str(place / "b"), os.O_RDONLY)
    assert number != other and (name != "c" or 1 << 30 < number < 1 << 31), "a C int above those of a store's files"
    assert fs.pread(number, 3, 4) == whole[4:7] and fs.pread(other, 9, 0) == b"other"
    assert read_at(fs, number, 2, 3, position=1) == [whole[1:6]]
    assert read_at(fs, number, 1100, 3, position=5) == [whole[5:]]
    assert fs.fstat(number).st_size == len(whole) and fs.fstat(other).st_size == 5
    fs.advise(number, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    assert fs.next_data(number, 7) == 7
    fs.close(number)
    assert fs.pread(other, 2, 1) == b"th"
    fs.close(other)
    calls: list[Callable[[], object]] = [lambda: fs.pread(number, 1, 0), lambda: fs.fstat(other)]
    for call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_calls_on_files_of_the_system_reach_it(place: Path) -> None:
    fs, base = beside(place), FileSystem()
    calls: list[tuple[int, ...]] = []
    base.advise = lambda *given: calls.append(given)
    base.next_data = lambda *given: given[1] + 100
    fs.base = base
    virtual, real = fs.open(str(place / "c"), os.O_RDONLY), fs.open(str(place / "sub"), os.O_RDONLY)
    for number in (virtual, real):
        fs.advise(number, 1, 2, 3)
    assert calls == [(real, 1, 2, 3)]
    assert (fs.next_data(virtual, 5), fs.next_data(real, 5)) == (5, 105)
    fs.close(real)
    with pytest.raises(OSError):
        os.fstat(real)


def test_the_status_of_a_virtual_file(place: Path) -> None:
    fs = beside(place)
    found, path = fs.stat(str(place / "c")), place / "c"
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o444
    assert (found.st_size, found.st_blocks, found.st_nlink) == (1025, 3, 1)
    assert (found.st_dev, found.st_uid, found.st_gid) == (0, 0, 0)
    assert found.st_mtime_ns == found.st_ctime_ns == found.st_atime_ns == EXACT_NS
    assert found[stat.ST_MTIME] == found[stat.ST_CTIME] == found[stat.ST_ATIME] == EXACT_NS // 10**9
    assert fs.stat(path) == fs.fstat(fs.open(str(path), os.O_RDONLY))
    numbers = {fs.stat(str(place / name)).st_ino for name in ("c", "b")}
    assert len(numbers) == 2 and all(0 < number < 1 << 56 for number in numbers)
    assert fs.stat(str(place / "sub")).st_mode == os.stat(place / "sub").st_mode


def test_what_an_open_raises(place: Path) -> None:
    fs = beside(place)
    with pytest.raises(FileNotFoundError, match="missing"):
        fs.open(str(place / "none"), os.O_RDONLY)
    for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
        for name in ("c", "new"):
            with pytest.raises(OSError) as caught:
                fs.open(str(place / name), flag)
            assert caught.value.errno == errno.EROFS
    with pytest.raises(OSError) as caught:
        fs.rename(str(place / "real"), str(place / "new"))
    assert caught.value.errno == errno.EROFS and not (place / "new").exists()


def scanned(fs: Any, path: str | Path) -> list[Any]:
    with fs.scandir(path) as found:
        return list(found)


def entries_of(fs: VirtualFileSystem, path: str | Path) -> list[Row]:
    found = scanned(fs, path)
    return [(one.name, one.path, one.is_file(), one.is_dir(), one.is_symlink()) for one in found]


def rows(place: Path, files: Iterable[str], *, directories: Iterable[str] = ()) -> list[Row]:
    return [(one, str(place / one), True, False, False) for one in files] + [
        (one, str(place / one), False, True, False) for one in directories
    ]


def test_listings_have_each_name_once_and_are_up_to_date(place: Path) -> None:
    listed = Beside(place).listdir(str(place))
    assert sorted(listed[:2]) == ["real", "sub"] and listed[2:] == ["b", "c", "none"]
    entries = entries_of(Beside(place), place)
    assert sorted(entries[:2]) == sorted(rows(place, ["real"], directories=["sub"]))
    assert entries[2:] == rows(place, ["b", "c", "none"])
    assert Beside(place).listdir(place / "sub") == [] == entries_of(Beside(place), place / "sub")
    by_name = {one.name: one for one in scanned(Beside(place), place)}
    assert by_name["real"].stat().st_size == 10, "that of the system"
    assert by_name["c"].stat() == beside(place).stat(place / "c")
    assert by_name["c"].inode() == by_name["c"].stat().st_ino != by_name["b"].inode()


def test_a_virtual_directory(place: Path) -> None:
    fs = Alone(OS, str(place), "more")
    assert fs.path == str(place / "more")
    for path in (fs.path, fs.path + "/"):
        assert fs.listdir(path) == ["b", "c", "none", "real"]
        assert stat.S_ISDIR(fs.stat(path).st_mode)
        assert entries_of(fs, path) == rows(place / "more", sorted(FILES))
    assert sorted(fs.listdir(place)) == ["real", "sub"]
    assert sorted(entries_of(fs, place)) == sorted(rows(place, ["real"], directories=["sub"]))
    assert fs.stat(place / "real").st_size == 10
