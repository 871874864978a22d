"""The state after a call that fails half-way through a step (tests/crash finds them, these keep them)."""

import errno
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from tests.faults import FaultFS
from tests.storage.logs import NOW, append_batches, bases, files, log
from tests.storage.test_log_transactions import build_batch

SETTINGS = {"internal_segment_bytes": 300, "index_interval_bytes": 0}


def test_a_log_that_could_not_begin_anew_takes_no_more(tmp_path: Path) -> None:
    """LOG-55: its files are given up by then, and what went into them would be lost at the next opening."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    append_batches(a_log, times=7)
    fs.fail("unlink", path=".snapshot", times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.truncate_fully_and_start_at(20)
    with pytest.raises(StorageError):
        append_batches(a_log)


def test_a_transaction_index_entry_whose_write_failed_is_gone(tmp_path: Path) -> None:
    """LOG-26, TXN-1: all of it may have been written before the error."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    a_log.append_as_leader(build_batch(7, 0, txn=True))
    fs.fail("pwrite", path=".txnindex", times=1, partial=34)
    marker = marker_batch(ControlType.ABORT, 7, 0, 0, timestamp=NOW)
    with pytest.raises(StorageError):
        a_log.append_as_leader(marker, origin="coordinator")
    assert files(tmp_path / "topic-0")[f"{0:020d}.txnindex"] == 0
    a_log.close()
    assert log(tmp_path).active_segment.txn_index.entries() == []


def test_a_log_start_that_could_not_be_raised_keeps_its_epoch(tmp_path: Path) -> None:
    """LOG-36, EPOCH-6."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, high_watermark_follows_end=False)
    a_log.append_as_leader(build_batch(7, 0, txn=True))
    append_batches(a_log, times=3)
    a_log.update_high_watermark(3)
    assert a_log.leader_epochs == ((0, 0),)
    fs.fail("pread", times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.maybe_increment_log_start_offset(2)
    assert (a_log.log_start_offset, a_log.leader_epochs) == (0, ((0, 0),))


def test_segments_that_could_not_be_renamed_stay_in_the_log(tmp_path: Path) -> None:
    """LOG-46: their files are found at the next opening."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    append_batches(a_log, times=10)
    fs.fail("rename", path=f"{3:020d}", times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.delete_before(9)
    assert bases(a_log) == [3, 6, 9] and a_log.log_start_offset == 9
    assert a_log.delete_before(9) == 9
    a_log.delete_old_segments()
    assert bases(a_log) == [9]


def test_a_lock_file_that_cannot_be_closed_is_no_raw_error(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("stat", "fstat", "close", path=".lock", code=errno.EIO)
    with pytest.raises(StorageError):
        LogDir.acquire(tmp_path, fs=fs)
    fs.heal()
    held = LogDir.acquire(tmp_path, fs=fs)
    fs.fail("close", code=errno.EIO)
    held.release()
    LogDir.acquire(tmp_path).release()
