"""Recovery of a log of several segments: its threads, its progress reports, and its lines in the log."""

import errno
import logging
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.recovery.recover_log import RecoveryProgress
from kafkalog.util.fileio import FileSystem
from kafkalog.util.readahead import THREAD_NAME
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW, append_batches, config, log, offset_entries, segment, time_entries

SETTINGS: dict[str, Any] = {"internal_segment_bytes": 500, "index_interval_bytes": 150}


def write_killed_log(path: Path, times: int = 42) -> Path:
    """A log of segments of five batches of 100 bytes, as a kill leaves it."""
    a_log = log(path, **SETTINGS)
    for n in range(times):
        append_batches(a_log, timestamp=NOW + n)
    a_log.close_handlers()
    return path / "topic-0"


def open_recovered(folder: Path, **more: Any) -> UnifiedLog:
    return UnifiedLog.open(folder, config(**SETTINGS), clock=MockClock(NOW), had_clean_shutdown=False, **more)


def contents(a_log: UnifiedLog) -> list[object]:
    return [
        (one.base_offset, one.size, offset_entries(one), time_entries(one)) for one in a_log.segments
    ]  # fmt: skip


@pytest.mark.parametrize("damaged", [None, 0, 4, 8], ids=lambda at: f"damaged-{at}")
def test_threads_change_nothing(tmp_path: Path, damaged: int | None) -> None:
    """LOAD-11: what lies behind damage is given up, though it was read ahead."""
    folder = write_killed_log(tmp_path)
    if damaged is not None:
        path = sorted(folder.glob("*.log"))[damaged]
        data = bytearray(path.read_bytes())
        data[150] ^= 1
        path.write_bytes(data)
    found = []
    for threads in (1, 2, 5):
        copy = tmp_path / f"copy{threads}-0"
        shutil.copytree(folder, copy)
        again = open_recovered(copy, recovery_threads=threads)
        found.append((contents(again), again.log_end_offset, sorted(os.listdir(copy))))
        again.close()
    assert found[0] == found[1] == found[2]
    assert found[0][1] == (42 if damaged is None else damaged * 5 + 1)


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    """One call at a time, from the threads that read; segments and bytes never go back."""
    folder = write_killed_log(tmp_path)
    reported: list[RecoveryProgress] = []
    names: list[str] = []
    inside = threading.Lock()

    def progress(one: RecoveryProgress) -> None:
        assert inside.acquire(blocking=False), "two calls at once"
        reported.append(one)
        names.append(threading.current_thread().name)
        inside.release()

    again = open_recovered(folder, recovery_threads=3, progress=progress)
    again.close()
    assert reported[0] == (0, 9, 0, 4200) and reported[-1] == (9, 9, 4200, 4200)
    assert reported == sorted(reported)


def test_segments_are_read_in_several_threads(tmp_path: Path) -> None:
    """The opener's thread recovers the first one; threads that end with the recovery do the others."""
    readers = set()

    class Watched(FileSystem):
        def preadv(self, fd: int, buffers: Any, position: int) -> int:  # type: ignore[override]
            readers.add(threading.current_thread().name)
            return os.preadv(fd, buffers, position)

    open_recovered(write_killed_log(tmp_path), recovery_threads=3, fs=Watched()).close()
    assert any(name.startswith(THREAD_NAME) for name in readers)
    assert threading.current_thread().name in readers
    assert not any(thread.name.startswith(THREAD_NAME) for thread in threading.enumerate())


def test_a_log_that_was_closed_well_tells_nothing(tmp_path: Path) -> None:
    write_killed_log(tmp_path)
    reported: list[RecoveryProgress] = []
    UnifiedLog.open(tmp_path / "topic-0", config(**SETTINGS), progress=reported.append).close()
    assert reported == []


def test_one_line_at_the_beginning_and_one_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the bytes, where it ends, and what was cut; the end is a warning where something was."""
    folder = write_killed_log(tmp_path)
    last = max(folder.glob("*.log"))
    os.truncate(last, last.stat().st_size - 30)
    caplog.set_level(logging.INFO, "kafkalog.storage.recovery.recover_log")
    open_recovered(folder).close()
    first, end = [one for one in caplog.records if one.name.endswith("recover_log")]
    assert first.levelno == logging.INFO
    assert first.getMessage() == f"{folder} was not closed cleanly: recovering 9 segments from offset 0 on, 4170 bytes"
    assert end.levelno == logging.WARNING
    pattern = r"in \d+\.\d s: it ends at offset 41, 70 bytes were cut off there, 0 later segments removed"
    assert re.search(pattern, end.getMessage())
    cut = next(one.getMessage() for one in caplog.records if one.name.endswith("recover_segment"))
    assert cut == f"{last}: cut at byte 100, offset 41, 70 bytes lost: the rest is not a complete batch"


def test_a_disk_that_fails_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    """LOAD-9: whichever of its calls fails; a second try recovers all that was there."""
    folder = write_killed_log(tmp_path, 12)
    failed = 0
    for nth in range(1, 12):
        copy = tmp_path / f"copy{nth}-0"
        shutil.copytree(folder, copy)
        fs = FaultFS()
        fs.fail("preadv", nth=nth, code=errno.EIO)
        try:
            open_recovered(copy, fs=fs).close()
        except StorageError as error:
            failed += 1
            assert error.errno == errno.EIO and error.path is not None and error.path.startswith(str(copy))
            again = open_recovered(copy)
            assert again.log_end_offset == 12
            again.close()
    assert failed


@pytest.mark.parametrize("call", ["pwrite", "ftruncate", "posix_fallocate"])
def test_an_index_that_cannot_be_filled_has_no_entries(tmp_path: Path, call: str) -> None:
    a_segment = segment(tmp_path)
    a_segment.offset_index.append(5, 100)
    a_segment.close()
    fs = FaultFS()
    again = segment(tmp_path, fs=fs, exists=True)
    assert offset_entries(again) == [(5, 100)]
    fs.fail(call, code=errno.EIO)
    with pytest.raises(StorageError, match="offset index"):
        again.offset_index.refill(bytes.fromhex("00000007000000c80000000900000190"))
    assert offset_entries(again) in ([], [(5, 100)])
    again.close_handlers()


def test_refilled_index_looks_up_and_takes_no_more(tmp_path: Path) -> None:
    a_segment = segment(tmp_path)
    a_segment.offset_index.refill(bytes.fromhex("00000007000000c80000000900000190"))
    assert offset_entries(a_segment) == [(7, 200), (9, 400)]
    assert a_segment.offset_index.lookup(8).position == 200 and a_segment.offset_index.last_offset == 9
    assert a_segment.offset_index.is_full
    a_segment.offset_index.refill(b"")
    assert offset_entries(a_segment) == [] and os.path.getsize(a_segment.offset_index.path) == 0
    a_segment.close()
