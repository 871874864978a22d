"""The log of a directory that was made just now: what lies on disk, and when it is synced."""

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS
from tests.storage.logs import config, run

LOG = "00000000000000000000.log"
NEW = ["leader-epoch-checkpoint", LOG]
INDEXES = ["00000000000000000000.index", "00000000000000000000.timeindex"]


def begin_log(directory: Path, fs: FaultFS, epoch: int = 0, **settings: object) -> UnifiedLog:
    directory.mkdir()
    return UnifiedLog.begin(str(directory), config(**settings), epoch, fs=fs)


def test_a_new_log_makes_two_files_and_reads_none(tmp_path: Path) -> None:
    fs = FaultFS()
    log = begin_log(tmp_path / "t-0", fs, 7)
    assert sorted(os.listdir(log.path)) == sorted(NEW)
    assert sorted(os.path.basename(one.path) for one in fs.named("open")) == sorted(NEW)
    assert len(fs.named("close")) == 2, "no file stays open before the first append"
    assert not fs.named("pread", "listdir", "scandir", "fsync", "fdatasync", "rename")
    assert (tmp_path / "t-0" / NEW[0]).read_text() == "0\n1\n7 0\n"
    assert log.leader_epochs == ((7, 0),) and log.log_end_offset == log.high_watermark == 0
    log.close()


def test_its_first_append_makes_the_indexes_and_a_flush_syncs_all(tmp_path: Path) -> None:
    fs = FaultFS()
    log = begin_log(tmp_path / "t-0", fs)
    log.append_as_leader(bytearray(run(0, 1)))
    assert sorted(os.listdir(log.path)) == sorted([*NEW, *INDEXES])
    fs.calls.clear()
    log.flush()
    synced = {os.path.basename(one.path) for one in fs.named("fsync", "fdatasync")}
    assert synced == {*NEW, *INDEXES, "t-0"}
    log.close()


def test_a_commit_syncs_epochs_records_and_the_directory(tmp_path: Path) -> None:
    fs = FaultFS()
    log = begin_log(tmp_path / "t-0", fs)
    log.append_as_leader(bytearray(run(0, 1)))
    fs.calls.clear()
    log.commit()
    synced = [os.path.basename(one.path) for one in fs.named("fsync", "fdatasync")]
    assert synced == [*NEW, "t-0"]
    log.close()


def test_it_opens_again_with_its_epoch_and_records(tmp_path: Path) -> None:
    log = begin_log(tmp_path / "t-0", FaultFS(), 3)
    log.append_as_leader(bytearray(run(0, 1)))
    log.close()
    with_indexes = sorted(name for name in os.listdir(log.path) if not name.endswith(".snapshot"))
    assert with_indexes == sorted([*NEW, *INDEXES])
    again = UnifiedLog.open(log.path, config())
    assert again.log_end_offset == 1 and again.leader_epochs[-1][0] == 3
    again.close()


def test_an_unused_log_that_was_not_closed_opens_empty(tmp_path: Path) -> None:
    begin_log(tmp_path / "t-0", FaultFS(), 3).close_handlers()
    again = UnifiedLog.open(tmp_path / "t-0", config(), had_clean_shutdown=False, recovery_point=0)
    assert again.log_end_offset == 0
    assert again.append_as_leader(bytearray(run(0, 1))).last_offset == 0
    again.close()


def test_a_preallocated_file_is_trimmed_at_the_close(tmp_path: Path) -> None:
    log = begin_log(tmp_path / "t-0", FaultFS(), preallocate=True, internal_segment_bytes=65536)
    assert os.stat(tmp_path / "t-0" / LOG).st_size == 65536
    data = run(0, 1)
    assert log.append_as_leader(bytearray(data)).first_offset == 0
    log.close()
    assert (tmp_path / "t-0" / LOG).stat().st_size == len(data)


@pytest.mark.parametrize("name", NEW)
def test_a_file_that_the_disk_refuses_is_named(tmp_path: Path, name: str) -> None:
    fs = FaultFS()
    fs.fail("open", path=name, code=errno.ENOSPC)
    with pytest.raises(StorageError) as caught:
        begin_log(tmp_path / "t-0", fs)
    assert caught.value.errno == errno.ENOSPC and str(caught.value.path).endswith(name)


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / LOG).write_bytes(b"records")
    with pytest.raises(StorageError) as caught:
        UnifiedLog.begin(str(tmp_path / "t-0"), config(), 0)
    assert caught.value.errno == errno.EEXIST
    assert (tmp_path / "t-0" / LOG).read_bytes() == b"records"
