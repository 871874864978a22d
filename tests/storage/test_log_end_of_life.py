"""A log after it is closed, renamed, deleted or abandoned."""

import errno
import threading
from pathlib import Path

import pytest

from kafkalog.errors import InconsistentTopicId, LogClosed, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata, write_partition_metadata
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.storage.logs import append_batches, config, run


def open_new_log(path: Path, fs: FaultFS | None = None, **settings: object) -> UnifiedLog:
    (path / "t-0").mkdir()
    return UnifiedLog.open(path / "t-0", config(**settings), fs=fs or OS)


def refuses_every_use(log: UnifiedLog) -> None:
    assert log.closed
    for use in (
        lambda: append_batches(log), lambda: log.read(0, 100), log.roll, log.flush, lambda: log.truncate_to(0),
        log.commit,
        log.delete_old_segments, lambda: log.delete_before(1), lambda: log.expire_producers(2**62),
    ):  # fmt: skip
        with pytest.raises(LogClosed):
            use()


def test_a_closed_log_is_on_disk_and_refuses_every_use(tmp_path: Path) -> None:
    """LOG-70: flushed, producers' snapshot, files closed; then a typed error, where the reference has an uncontrolled
    one."""
    fs = FaultFS()
    log = open_new_log(tmp_path, fs)
    append_batches(log, times=3)
    log.close()
    assert "00000000000000000003.snapshot" in {one.name for one in (tmp_path / "t-0").iterdir()}
    assert any(call.path.endswith(".log") for call in fs.named("fsync", "fdatasync")) and log.recovery_point == 3
    refuses_every_use(log)


def test_a_log_whose_handlers_are_closed_wrote_nothing_and_refuses_every_use(tmp_path: Path) -> None:
    """LOG-70."""
    log = open_new_log(tmp_path)
    append_batches(log, times=3)
    before = {one.name for one in (tmp_path / "t-0").iterdir()}
    log.close_handlers()
    assert {one.name for one in (tmp_path / "t-0").iterdir()} == before
    refuses_every_use(log)


def test_a_renamed_directory_is_followed(tmp_path: Path) -> None:
    """LOG-72: segments, indexes, snapshots, epochs and what was deleted later are all reached by the new name."""
    log = open_new_log(tmp_path, internal_segment_bytes=1000)
    append_batches(log, times=25)
    log.rename_dir("t-0.0123456789abcdef0123456789abcdef-future")
    target = tmp_path / "t-0.0123456789abcdef0123456789abcdef-future"
    assert (log.path, log.name) == (str(target), target.name) and not (tmp_path / "t-0").exists()
    assert all(Path(segment.path).parent == target for segment in log.segments)
    assert log.read(0, 1000).records.size
    log.append_as_leader(bytearray(run(0, 1)), leader_epoch=7)
    assert "7 25" in (target / "leader-epoch-checkpoint").read_text()
    log.roll()
    log.delete_before(12)
    log.flush()
    log.rename_dir("t-0")
    assert log.read(12, 1000).records.size and log.log_end_offset == 26
    log.close()
    assert not target.exists()
    again = UnifiedLog.open(tmp_path / "t-0", config(), log_start_offset=12)
    assert (again.log_start_offset, again.log_end_offset, again.leader_epochs) == (12, 26, ((0, 12), (7, 25)))
    again.close()


def test_a_rename_that_fails_leaves_the_old_name(tmp_path: Path) -> None:
    """LOG-72."""
    fs = FaultFS()
    log = open_new_log(tmp_path, fs)
    append_batches(log)
    fs.fail("rename", path="/t-0", code=errno.EIO, times=1)
    with pytest.raises(StorageError, match="rename to u-0"):
        log.rename_dir("u-0")
    assert log.name == "t-0"
    append_batches(log)
    assert log.read(0, 1000).records.size == 2 * log.read(0, 100).records.size
    log.close()


def test_readers_and_flushes_go_on_while_the_directory_is_renamed(tmp_path: Path) -> None:
    """LOG-72, KAFKA-15391: a file that is missed under its old name is no failure of the disk."""
    log = open_new_log(tmp_path, internal_segment_bytes=1000)
    append_batches(log, times=40)
    stop, failures, reads = threading.Event(), [], [0]

    def work() -> None:
        try:
            while not stop.is_set():
                for offset in range(0, 40, 7):
                    assert log.read(offset, 200).records.read()
                    reads[0] += 1
                append_batches(log)
                log.flush()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for at in range(60):
        log.rename_dir(f"t-0.{at:032x}-future" if at % 2 == 0 else "t-0")
    while not reads[0] and not failures:
        pass
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures, failures[0]
    log.close()


def test_an_abandoned_log_says_why(tmp_path: Path) -> None:
    log = open_new_log(tmp_path)
    append_batches(log)
    log.abandon(StorageError("the disk is gone", path="/disk"))
    for use in (lambda: append_batches(log), lambda: log.read(0, 100), log.flush):
        with pytest.raises(StorageError, match="the disk is gone"):
            use()
    log.close()


def test_writes_that_were_stopped_can_go_on(tmp_path: Path) -> None:
    log = open_new_log(tmp_path)
    cause = StorageError("moving")
    log.stop_writes(cause)
    with pytest.raises(StorageError, match="moving"):
        append_batches(log)
    log.resume_writes(StorageError("another"))
    with pytest.raises(StorageError, match="moving"):
        append_batches(log)
    log.resume_writes(cause)
    append_batches(log)
    log.close()


def test_the_topic_id_is_recorded_once(tmp_path: Path) -> None:
    """LOG-73: here it is on disk before the log is open, so before the first append."""
    (tmp_path / "t-0").mkdir()
    topic_id = new_topic_id()
    write_partition_metadata(OS, tmp_path / "t-0", topic_id)
    write_partition_metadata(OS, tmp_path / "t-0", topic_id)
    assert read_partition_metadata(OS, tmp_path / "t-0") == topic_id
    with pytest.raises(InconsistentTopicId):
        write_partition_metadata(OS, tmp_path / "t-0", new_topic_id())
