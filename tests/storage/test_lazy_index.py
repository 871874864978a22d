"""LazyIndex: one opening, and what can be done before it."""

import errno
import threading
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState, StorageError
from kafkalog.storage.index.lazy_index import LazyIndex
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS


def lazy(path: Path, fs: FileSystem = OS) -> tuple[LazyIndex[OffsetIndex], list[str]]:
    opened: list[str] = []

    def opener(name: str) -> OffsetIndex:
        opened.append(name)
        return OffsetIndex(name, 0, 80, fs=fs)

    return LazyIndex(str(path / "a.index"), opener, fs), opened


def test_threads_that_ask_at_once_get_one_index(tmp_path: Path) -> None:
    index, opened = lazy(tmp_path)
    start, got = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        got.append(index.get())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1 and len({id(one) for one in got}) == 1


def test_a_rename_before_the_opening_counts(tmp_path: Path) -> None:
    """SEG-27."""
    index, opened = lazy(tmp_path)
    index.rename_to(str(tmp_path / "b.index"))
    assert not index.is_open and not list(tmp_path.iterdir())
    index.get()
    assert opened == [str(tmp_path / "b.index")]
    index.rename_to(str(tmp_path / "c.index"))
    assert (tmp_path / "c.index").exists() and index.path == index.get().path


def test_delete_and_close_without_opening(tmp_path: Path) -> None:
    index, opened = lazy(tmp_path)
    assert index.delete_if_exists() is False
    (tmp_path / "a.index").write_bytes(b"")
    assert index.delete_if_exists() is True
    index.close()
    index.close_handler()
    assert not opened
    with pytest.raises(IllegalState):
        index.get()


def test_failures_name_the_file(tmp_path: Path) -> None:
    fs = FaultFS()
    index, _ = lazy(tmp_path, fs)
    (tmp_path / "a.index").write_bytes(b"")
    fs.fail("rename", "unlink", code=errno.EIO)
    for call in (lambda: index.rename_to(str(tmp_path / "b.index")), index.delete_if_exists):
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.path == str(tmp_path / "a.index")
