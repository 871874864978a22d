"""The index files of a segment as objects: made by the first use, once, and closed where the segment is."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import base_name
from kafkalog.storage.segment import index_files
from kafkalog.storage.segment_files import Indexes, SegmentFiles
from kafkalog.util.fileio import OS

NAME = f"{7:020d}"


def files(directory: Path) -> tuple[SegmentFiles, list[Indexes]]:
    """The files of a segment that begins at offset 7, with an empty `.log`, and what was made for its indexes."""
    made: list[Indexes] = []

    def make() -> Indexes:
        made.append(index_files(os.path.join(directory, base_name(7)), "", 7, 1000, OS))
        return made[-1]

    return SegmentFiles(FileRecords.create(os.fspath(directory / f"{NAME}.log")), make), made


def test_nothing_is_made_before_it_is_asked_for_and_then_once(tmp_path: Path) -> None:
    segment, made = files(tmp_path)
    assert segment.size == 0 and not made
    segment.indexes_are_on_disk()
    segment.flush()
    assert not made
    assert segment.offset_index.base_offset == segment.txn_index.base_offset == 7
    assert segment.time_index is segment.time_index
    assert len(made) == 1


def test_threads_that_ask_at_once_get_the_same(tmp_path: Path) -> None:
    segment, made = files(tmp_path)
    start, found = threading.Barrier(8), set()

    def ask() -> None:
        start.wait()
        found.add(id(segment.offset_index))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(made) == 1


@pytest.mark.parametrize("close", [SegmentFiles.close_files, SegmentFiles.close_handlers])
def test_what_is_asked_for_after_the_close_is_closed(tmp_path: Path, close: Callable[[SegmentFiles], None]) -> None:
    segment, made = files(tmp_path)
    close(segment)
    assert not made
    for ask in (lambda: segment.offset_index, lambda: segment.time_index):
        with pytest.raises(IllegalState, match="closed"):
            ask()
    assert sorted(os.listdir(tmp_path)) == [f"{NAME}.log"]


def test_a_segment_that_gets_another_name_takes_its_index_files_with_it(tmp_path: Path) -> None:
    """SEG-27, for unopened files."""
    segment, _ = files(tmp_path)
    for suffix in (".index", ".timeindex", ".txnindex"):
        (tmp_path / f"{NAME}{suffix}").write_bytes(b"")
    segment.change_file_suffixes("", ".deleted")
    assert {name.removesuffix(".deleted") for name in os.listdir(tmp_path)} == {
        f"{NAME}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")
    }
    assert all(name.endswith(".deleted") for name in os.listdir(tmp_path))
    segment.unlink_files()
    with pytest.raises(StorageError):
        segment.records.read(0, 1)
    assert os.listdir(tmp_path) == []


def test_a_directory_that_gets_another_name_has_its_index_files_under_that(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    segment, _ = files(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "behind")
    segment.relocate(os.fspath(tmp_path / "behind"))
    for index in (segment.offset_index, segment.time_index, segment.txn_index):
        assert os.path.dirname(index.path) == os.fspath(tmp_path / "behind")
