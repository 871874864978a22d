"""A repair's forecast of the next open: the cuts that recovery makes, with sound segments read no second time."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkalog.storage.names import log_file_name
from kafkalog.storage.recovery.next_opening import foresee_cuts
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.repair.opening import NextOpening, opening_lines
from kafkalog.util.fileio import OS, FileSystem
from tests.storage.test_kept import FIRST, SEGMENTS, flip_bits, make, make_damaged, mark_unclean, positions

SECOND, LAST = log_file_name(36), log_file_name(36 * (SEGMENTS - 1))


class ReadsByFile(FileSystem):
    """A file system that counts the bytes that were read of each file."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()

    def preadv(self, fd: int, buffers: Any, position: int) -> int:  # type: ignore[override]
        size = FileSystem.preadv(fd, buffers, position)
        self.bytes[os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))] += size
        return size


def test_a_sound_segment_is_read_once(tmp_path: Path) -> None:
    path = make(tmp_path)
    mark_unclean(path)
    fs = ReadsByFile()
    (opening,) = repair(path, fs=fs).openings
    assert (opening.recovery_point, opening.cuts) == (0, ())
    assert {name: size for name, size in fs.bytes.items() if name.endswith(".log")} == {
        file.name: file.stat().st_size for file in path.glob("*.log")
    }


def test_damage_behind_sound_segments_is_still_foreseen(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    flip_bits(path / LAST, positions(path / LAST)[4] + 70)
    (opening,) = repair(path).openings
    (cut,) = opening.cuts
    assert (cut.path, cut.offset, cut.later) == (str(path / FIRST), 15, SEGMENTS - 1)


@pytest.mark.parametrize("name", [FIRST, SECOND, LAST])
@pytest.mark.parametrize("at", [7, 11, 16, 22, 26, 30, 70], ids=lambda at: f"byte-{at}")
def test_the_cuts_are_those_of_reading_every_segment(tmp_path: Path, name: str, at: int) -> None:
    path = make(tmp_path)
    flip_bits(path / name, positions(path / name)[5] + at, 2)
    mark_unclean(path)
    (opening,) = repair(path, rebuild_indexes=False, truncate_tail=False).openings
    assert opening.cuts == tuple(foresee_cuts(str(path), OS, is_clean=False, recovery_point=0, log_start_offset=0))


@pytest.mark.parametrize(
    "tail", [b"\0" * 500, b"\0\0\0\0\0\0\0\x24\0\0\0\x50torn", b"junk" * 30], ids=["zeros", "torn", "junk"]
)
@pytest.mark.parametrize("name", [FIRST, LAST])
def test_the_cut_of_a_tail_is_that_of_reading_every_segment(tmp_path: Path, name: str, tail: bytes) -> None:
    path = make(tmp_path)
    mark_unclean(path)
    with open(path / name, "ab") as file:
        file.write(tail)
    (opening,) = repair(path, rebuild_indexes=False, truncate_tail=False).openings
    foreseen = foresee_cuts(str(path), OS, is_clean=False, recovery_point=0, log_start_offset=0)
    assert opening.cuts == tuple(foreseen) != ()


def test_partitions_that_lose_nothing_share_a_line() -> None:
    """Their recovery points differ; a directory with thousands of partitions is reported in a few lines."""
    lines = list(opening_lines([NextOpening(f"data/t-{number}", 100 + number, ()) for number in range(3)]))
    said = "the next opening for writing recovers from their recovery points on and cuts nothing"
    assert lines == [f"next     data/t-0 and 2 more: {said}"]
    (line,) = opening_lines([NextOpening("data/t-0", 100, ())])
    assert line.endswith("recovers from offset 100 on and cuts nothing")
