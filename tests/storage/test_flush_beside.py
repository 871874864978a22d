"""A flush takes no lock: what may happen to a log between two of its file calls (LOG-50 to LOG-52)."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.errors import LogClosed, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.fileio import FileSystem
from tests.faults import FaultFS
from tests.gates import PATIENCE_S, Threads
from tests.storage.logs import append_batches, bases, log


class SyncHook(FileSystem):
    """Does `action` once, in front of the first sync of a file whose name ends in `suffix`."""

    def __init__(self) -> None:
        self.action: Callable[[], object] | None = None
        self.suffix = ""

    def arm(self, suffix: str, action: Callable[[], object]) -> None:
        self.suffix, self.action = suffix, action

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        if self.action is not None and os.readlink(f"/proc/self/fd/{fd}").endswith(self.suffix):
            action, self.action = self.action, None
            before = os.fstat(fd)
            action()
            assert os.path.samestat(before, os.fstat(fd)), "the descriptor is another file's now"
        os.fdatasync(fd)


def cut_and_roll_at_the_same_offset(a_log: UnifiedLog) -> None:
    base = a_log.active_segment.base_offset
    a_log.truncate_to(base - 1)
    append_batches(a_log)
    a_log.roll()
    assert a_log.active_segment.base_offset == base


ACTIONS: dict[str, Callable[[UnifiedLog], object]] = {
    "roll": lambda a_log: a_log.roll(),
    "roll twice": lambda a_log: (a_log.roll(), append_batches(a_log), a_log.roll()),
    "another flush": lambda a_log: a_log.flush(),
    "delete": lambda a_log: a_log.delete_before(-1),
    "roll and delete": lambda a_log: (a_log.roll(), append_batches(a_log), a_log.delete_before(-1)),
    "cut": lambda a_log: a_log.truncate_to(a_log.log_end_offset - 1),
    "cut all": lambda a_log: a_log.truncate_fully_and_start_at(50),
    "cut and roll at the same offset": cut_and_roll_at_the_same_offset,
}


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("action", ACTIONS)
def test_segments_that_come_and_go_under_a_flush(tmp_path: Path, action: str, suffix: str, active: bool) -> None:
    """LOG-52: no failure of the disk, so the log takes writes on, and all of it is on disk in the end."""
    fs = SyncHook()
    a_log = log(tmp_path, fs=fs, internal_segment_bytes=1000, index_interval_bytes=100)
    append_batches(a_log, times=25)
    name = f"{a_log.active_segment.base_offset:020d}" if active else ""
    fs.arm(name + suffix, lambda: ACTIONS[action](a_log))
    a_log.flush()
    assert fs.action is None
    append_batches(a_log, times=3)
    a_log.flush()
    assert a_log.recovery_point == a_log.log_end_offset
    a_log.close()
    again = log(tmp_path)
    assert (again.log_end_offset, bases(again)) == (a_log.log_end_offset, bases(a_log))
    again.close()


def delete_directory(a_log: UnifiedLog) -> None:
    """Do what the deletion of a topic does with a log's directory."""
    a_log.stop_writes(StorageError("the partition was deleted"))
    a_log.rename_dir("topic-0.0123-delete")
    a_log.close_handlers()
    shutil.rmtree(a_log.path)


GONE: dict[str, Callable[[UnifiedLog], object]] = {
    "the directory": delete_directory,
    "segments, then the directory": lambda a_log: (a_log.delete_before(-1), delete_directory(a_log)),
    "cut, then the directory": lambda a_log: (a_log.truncate_to(a_log.log_end_offset - 1), delete_directory(a_log)),
}


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("deleted", GONE)
def test_a_log_deleted_under_a_flush_is_no_failure_of_the_disk(tmp_path: Path, deleted: str, suffix: str) -> None:
    """LOG-52: the flush says that the log is closed; its data directory stays online, the background task is silent."""
    for is_in_background in (False, True):
        fs, failures = SyncHook(), list[BaseException]()
        a_log = log(tmp_path, fs=fs, internal_segment_bytes=1000, index_interval_bytes=100)
        a_log._core.health.report = failures.append
        append_batches(a_log, times=25)
        fs.arm(suffix, lambda: GONE[deleted](a_log))  # noqa: B023 - called in this turn
        if is_in_background:
            a_log._flusher._flush_if_usable(a_log.log_end_offset)
        else:
            with pytest.raises(LogClosed):
                a_log.flush()
        assert (fs.action, failures) == (None, [])


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_file_that_is_missing_when_a_log_closes_is_reported(tmp_path: Path, suffix: str) -> None:
    fs, failures = SyncHook(), list[BaseException]()
    a_log = log(tmp_path, fs=fs, internal_segment_bytes=1000, index_interval_bytes=100)
    a_log._core.health.report = failures.append
    append_batches(a_log, times=25)
    fs.arm(suffix, lambda: shutil.rmtree(a_log.path))
    with pytest.raises(StorageError):
        a_log.close()
    assert len(failures) == 1


def test_a_disk_error_while_segments_go_poisons_all_the_same(tmp_path: Path) -> None:
    """A failed sync of what is still there is never passed over, whatever was deleted meanwhile."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, internal_segment_bytes=1000)
    append_batches(a_log, times=25)
    state = a_log.state
    a_log.delete_before(12)
    fs.fail("fdatasync", path=".log", code=errno.EIO)
    with pytest.raises(StorageError) as failure:
        error = StorageError("cannot flush", errno=errno.EIO, path="x.log")
        a_log._flusher._flush_failed(error, state, a_log.truncation_count)
    assert failure.value.errno == errno.EIO
    with pytest.raises(StorageError, match="rejects writes"):
        append_batches(a_log)
    a_log.close_handlers()


def test_what_is_appended_while_a_log_closes_is_synced_or_refused(tmp_path: Path) -> None:
    """The clean-shutdown marker must not vouch for bytes that no sync was asked for."""
    fs = SyncHook()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    refused = []

    def append() -> None:
        try:
            append_batches(a_log)
        except ValueError as error:
            refused.append(error)

    fs.arm(".log", append)
    a_log.close()
    assert a_log.recovery_point == a_log.log_end_offset
    assert len(refused) == 1 and "log topic-0 is closed" in str(refused[0])


def test_an_index_entry_written_during_a_flush_is_synced_by_the_next(tmp_path: Path) -> None:
    fs = SyncHook()
    a_log = log(tmp_path, fs=fs, index_interval_bytes=100)
    append_batches(a_log, times=3)
    fs.arm(".index", lambda: None)
    a_log.flush()
    assert fs.action is None
    fs.arm(".timeindex", lambda: append_batches(a_log, times=3))
    append_batches(a_log, times=3)
    a_log.flush()
    assert fs.action is None
    synced = []
    fs.arm(".index", lambda: synced.append(True))
    a_log.flush()
    assert synced
    a_log.close()


class FirstSyncFails(FileSystem):
    """Fails the first sync of a file whose name ends in `suffix`, once `go` is set; later ones succeed, as in Linux."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.inside, self.go = threading.Event(), threading.Event()

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        if os.readlink(f"/proc/self/fd/{fd}").endswith(self.suffix) and not self.inside.is_set():
            self.inside.set()
            assert self.go.wait(PATIENCE_S)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(fd)

    fsync = fdatasync  # type: ignore[assignment]


def sync_beside_a_failing_flush(
    path: Path, suffix: str, call: Callable[[UnifiedLog], object], monkeypatch: pytest.MonkeyPatch
) -> tuple[UnifiedLog, list[object]]:
    """Make `call` while a flush waits in its sync of a file, which then fails; return the log and both outcomes."""
    fs, threads, second = FirstSyncFails(suffix), Threads(), threading.Event()
    a_log = log(path, fs=fs, index_interval_bytes=100)
    append_batches(a_log, times=3)
    a_log.active_segment.add_aborted(AbortedTxn(0, 1, 0, 2, 3))
    threads.start(a_log.flush)
    assert fs.inside.wait(PATIENCE_S)
    real = FileRecords.flush
    monkeypatch.setattr(FileRecords, "flush", lambda records: (second.set(), real(records)))
    threads.start(lambda: call(a_log))
    assert second.wait(PATIENCE_S)
    fs.go.set()
    return a_log, threads.join()


def test_a_commit_fails_if_a_concurrent_sync_of_the_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the lost pages to one of both syncs."""
    a_log, outcomes = sync_beside_a_failing_flush(tmp_path, ".log", lambda a_log: a_log.commit(), monkeypatch)
    assert [isinstance(outcome, StorageError) and outcome.errno for outcome in outcomes] == [errno.EIO] * 2
    assert a_log._core.durable == 0
    a_log.close_handlers()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_the_recovery_point_waits_for_indexes_that_another_flush_syncs(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log, outcomes = sync_beside_a_failing_flush(tmp_path, suffix, lambda a_log: a_log.flush(), monkeypatch)
    assert [isinstance(outcome, StorageError) and outcome.errno for outcome in outcomes] == [errno.EIO] * 2
    assert a_log.recovery_point == 0
    a_log.close_handlers()


def test_a_file_is_not_synced_again_after_a_failed_sync(tmp_path: Path) -> None:
    fs = FaultFS()
    records = FileRecords.open(tmp_path / "x.log", fs=fs)
    records.append(b"data")
    fs.fail("fdatasync", code=errno.EIO, times=1)
    for _ in range(3):
        with pytest.raises(StorageError) as failure:
            records.flush()
        assert (failure.value.errno, failure.value.path) == (errno.EIO, records.path)
    assert len(fs.named("fdatasync")) == 1
    records.close_handlers()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOENT])
def test_a_sync_without_a_descriptor_may_be_repeated(tmp_path: Path, code: int) -> None:
    fs = FaultFS()
    records = FileRecords.open(tmp_path / "x.log", fs=fs)
    records.append(b"data")
    fs.fail("fdatasync", code=code, times=1)
    with pytest.raises(StorageError):
        records.flush()
    records.flush()
    records.close()


def test_a_flush_fails_if_another_file_failed_meanwhile(tmp_path: Path) -> None:
    fs = SyncHook()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    fs.arm(".log", lambda: a_log.stop_writes(StorageError("cannot flush", errno=errno.EIO)))
    with pytest.raises(StorageError, match="cannot flush"):
        a_log.flush()
    assert a_log.recovery_point == 0
    a_log.close_handlers()


@pytest.mark.parametrize("failed", [True, False])
def test_a_commit_fails_if_another_file_failed_meanwhile(tmp_path: Path, failed: bool) -> None:
    """A log that was only stopped meanwhile has its records on disk."""
    fs = SyncHook()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    cause = StorageError("cannot flush", errno=errno.EIO) if failed else StorageError("the partition was deleted")
    fs.arm(".log", lambda: a_log.stop_writes(cause))
    if failed:
        with pytest.raises(StorageError, match="cannot flush"):
            a_log.commit()
    else:
        a_log.commit()
    assert a_log._core.durable == (0 if failed else 1)
    a_log.close_handlers()
