"""What a log holds of its key indexes after it was closed: nothing, whoever still has a mapping of it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kafkalog
from kafkalog.dirs import writable
from kafkalog.errors import LogClosed
from tests.descriptors import open_descriptors


def filled(log: kafkalog.Log) -> None:
    for _ in range(3):
        log.append([(b"k", b"v"), (b"m", b"w")])
        log.roll()
    log.build_key_index()


@pytest.mark.parametrize("options", [{}, {"in_memory": True}], ids=["on disk", "in memory"])
@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_mapping_that_outlives_its_log_keeps_no_file_open(tmp_path: Path, mode: Any, options: Any) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        filled(log)
    before = open_descriptors()
    log = kafkalog.open(tmp_path / "data" / "t-0", mode)
    latest = log.latest(**options)
    assert latest[b"k"].value == b"v"
    assert log.get(b"m") is not None
    log.close()
    assert open_descriptors() == before
    with pytest.raises(LogClosed):
        latest[b"k"]


def test_a_store_that_was_closed_keeps_no_index_of_a_log_open(tmp_path: Path) -> None:
    before = open_descriptors()
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t")
        log = dirs["t", 0]
        filled(log)
        assert log.get(b"m") is not None
    assert open_descriptors() == before
    assert log.closed


@pytest.mark.parametrize("line", range(1, 5))
def test_a_log_and_its_store_are_closed_at_the_same_time(tmp_path: Path, line: int) -> None:
    """The log, before any line with which its store retires it: where another thread may close it."""
    dirs = kafkalog.open_dirs(tmp_path / "data", "a")
    dirs.create_topic("t")
    log = dirs["t", 0]
    filled(log)
    assert log.get(b"m") is not None

    def closed_at(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is not writable._retire.__code__:
            return None
        if event == "line" and frame.f_lineno - frame.f_code.co_firstlineno == line:
            log.close()
        return closed_at

    before = sys.gettrace()
    sys.settrace(closed_at)
    try:
        dirs.close()
    finally:
        sys.settrace(before)
    assert log.closed and dirs.closed
