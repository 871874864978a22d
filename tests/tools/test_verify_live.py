"""`verify` beside an owner that changes its log between two looks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.tools.verify.directories import verify
from kafkalog.util.fileio import File, FileSystem


class ActsAtOpen(FileSystem):
    """The owner of a log does something just before its first segment is opened to be read."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.acts = [act]

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        if self.acts and os.fspath(path).endswith(".log"):
            self.acts.pop()()
        return super().open_file(path, mode)


@pytest.mark.parametrize("rolls", [False, True])
def test_batches_past_the_base_of_a_segment_cut_away_since_are_sound(tmp_path: Path, rolls: bool) -> None:
    """The segment behind is gone, or begins elsewhere by then."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"x"] * 20)
        log.append([b"x"] * 10)
        log.roll()
        log.append([b"x"] * 10)

        def cut_and_append() -> None:
            log.truncate_to(20)
            log.append([b"x"] * 30)
            if rolls:
                log.roll()
                log.append([b"x"])

        report = verify(tmp_path, threads=1, fs=ActsAtOpen(cut_and_append))
        assert report.ok, str(report)
        assert log.end_offset == 50 + rolls


@pytest.mark.parametrize("appended", [0, 2, 3])
def test_old_entries_in_a_full_index_of_a_truncated_log_are_no_damage(tmp_path: Path, appended: int) -> None:
    """The file has no zeros at its end, by which free space is known."""
    with kafkalog.open(tmp_path / "t-0", "a", index_interval_bytes=0, segment_index_bytes=40) as log:
        for number in range(6):
            log.append([(b"%d" % number, b"v", 1_700_000_000_000)])
        assert len(list((tmp_path / "t-0").glob("*.log"))) == 1
        log.truncate_to(2)
        for number in range(appended):
            log.append([(b"%d" % number, b"a longer value", 1_700_000_000_000)])
        report = verify(tmp_path)
        assert report.ok, str(report)
    assert verify(tmp_path).ok
