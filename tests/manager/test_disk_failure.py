"""A disk that fails takes its directory offline, and no other."""

import errno
import logging
import threading
from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import CorruptCheckpoint, CorruptRecord, IllegalArgument, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.manager.managers import MARKER, T0, T1, OpenManager, append, list_names

T2 = TopicPartition("t", 2)


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path, FaultFS]:
    return tmp_path / "a", tmp_path / "b", FaultFS()


def create_logs(held: OpenManager, a: Path, b: Path) -> tuple[UnifiedLog, UnifiedLog, UnifiedLog]:
    """Two logs in `a`, one in `b`."""
    return held.create_log(T0, directory=a), held.create_log(T2, directory=a), held.create_log(T1, directory=b)


def write(log: UnifiedLog) -> None:
    append(log)


def flush(log: UnifiedLog) -> None:
    append(log)
    log.flush()


def roll(log: UnifiedLog) -> None:
    log.roll()


def read(log: UnifiedLog) -> None:
    log.read(1, 1000)


def truncate(log: UnifiedLog) -> None:
    log.truncate_to(1)


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        (write, ("pwrite",)), (flush, ("fsync", "fdatasync")), (roll, ("open",)), (truncate, ("ftruncate",)),
        (read, ("pread", "preadv")),
    ],
)  # fmt: skip
def test_an_error_of_the_disk_takes_the_directory_offline(
    disks: tuple[Path, Path, FaultFS], operation: object, calls: tuple[str, ...]
) -> None:
    """MGR-23: append, flush, roll, cut and read; its logs go, its lock is free, the other directory goes on."""
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        first, second, other = create_logs(held, a, b)
        fs.fail(*calls, path="a/t-0", code=errno.EIO)
        with pytest.raises(StorageError):
            operation(first)  # type: ignore[operator]
        directory = held.manager.directories[0]
        assert not directory.is_online and isinstance(directory.offline_error, StorageError)
        with pytest.raises(StorageError, match="the data directory is offline"):
            append(second)  # fenced at once, before the manager does anything (KAFKA-10778)
        assert list(held.manager.logs) == [T1] and directory.logs == {}
        with pytest.raises(StorageError, match="is offline"):
            second.read(0, 1000)
        LogDir.acquire(a).release()
        append(other)
        assert held.create_log(TopicPartition("u", 0)).path == str(b / "u-0")
    assert MARKER not in list_names(a) and MARKER in list_names(b)
    fs.heal()
    with OpenManager(a, b, fs=fs) as held:
        assert held.manager.logs[T2].log_end_offset == 3
        assert held.manager.logs[T1].log_end_offset == 4


def test_a_full_disk_takes_nothing_offline(disks: tuple[Path, Path, FaultFS]) -> None:
    """MGR-23: the reference gives the directory up; here retention can still make room."""
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        first, *_ = create_logs(held, a, b)
        fs.fail("pwrite", path="a/t-0", code=errno.ENOSPC)
        with pytest.raises(StorageError):
            append(first)
        fs.heal()
        append(first)
        assert first.log_end_offset == 4 and len(held.manager.logs) == 3
    assert MARKER in list_names(a) and MARKER in list_names(b)


def test_the_scheduler_takes_it_offline_when_nobody_asks(disks: tuple[Path, Path, FaultFS]) -> None:
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        first, *_ = create_logs(held, a, b)
        fs.fail("fsync", "fdatasync", path="a/t-0", code=errno.EIO)
        with pytest.raises(StorageError):
            flush(first)
        assert "handle-log-dir-failure" in held.scheduler.pending
        held.scheduler.advance(1)
        LogDir.acquire(a).release()


def test_nothing_is_made_where_the_disk_has_failed(disks: tuple[Path, Path, FaultFS]) -> None:
    """From the failure on, though the directory's lock is released only later."""
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        failed = held.manager.directories[0]
        failed.note_failure(OSError(errno.EIO, "gone"))
        assert failed.log_dir is not None
        with pytest.raises(StorageError, match="the data directory is offline: .*gone") as caught:
            held.create_log(T0, directory=a)
        assert (caught.value.errno, caught.value.path) == (errno.EIO, str(a))
        with pytest.raises(StorageError, match="offline"):
            _ = failed.online_log_dir
        assert held.create_log(T1).path == str(b / "t-1")


def test_a_directory_can_be_given_up_by_name(disks: tuple[Path, Path, FaultFS]) -> None:
    """MGR-23: once; the other's checkpoints go on."""
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        _, _, other = create_logs(held, a, b)
        error = OSError(errno.EIO, "gone")
        held.manager.fail_directory(a, error)
        held.manager.fail_directory(a, OSError(errno.EROFS, "later"))
        assert held.manager.directories[0].offline_error is error
        with pytest.raises(IllegalArgument):
            held.manager.fail_directory(a / "x", error)
        for job in held.manager.jobs:
            job.run()
        assert (b / "recovery-point-offset-checkpoint").exists() and other.log_end_offset == 3
        assert not (a / "recovery-point-offset-checkpoint").exists()


def test_an_error_of_the_disk_while_loading_takes_the_directory_offline(disks: tuple[Path, Path, FaultFS]) -> None:
    """LOAD-32: the others go on."""
    a, b, fs = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    fs.fail("open", "open_read", path="a/t-0/0000", code=errno.EIO)
    with OpenManager(a, b, fs=fs) as held:
        assert list(held.manager.logs) == [T1]
        assert str(a / "t-0") in str(held.manager.directories[0].offline_error)
    assert MARKER not in list_names(a) and MARKER in list_names(b)
    with pytest.raises(StorageError, match=r"offline.*Input/output error"):
        OpenManager(a, fs=fs)
    fs.heal()
    with OpenManager(a, b, fs=fs) as held:
        assert {log.log_end_offset for log in held.manager.logs.values()} == {3} and len(held.manager.logs) == 3


def test_damage_of_one_log_takes_that_log_offline_and_no_other(disks: tuple[Path, Path, FaultFS]) -> None:
    """CKPT-5; of a directory that fails itself all logs go offline (LOAD-32)."""
    a, b, _ = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    (a / "t-0" / "leader-epoch-checkpoint").write_text("7\n")
    with OpenManager(a, b) as held:
        assert sorted(held.manager.logs) == [T1, T2]
        ((key, error),) = held.manager.problems.items()
        assert key.partition == 0 and isinstance(error, CorruptCheckpoint)
        assert all(one.is_online for one in held.manager.directories)


@pytest.mark.parametrize("recovers", [False, True])
def test_damage_of_a_log_that_was_closed_well_is_cut_off_only_in_a_copy(
    disks: tuple[Path, Path, FaultFS], recovers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """LOAD-32: else the log is offline, and one line says so and why."""
    a, b, _ = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    file = a / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with caplog.at_level(logging.WARNING), OpenManager(a, b, recovers_damage=recovers) as held:
        assert held.manager.logs[T1].log_end_offset == held.manager.logs[T2].log_end_offset == 3
        said = [one.getMessage() for one in caplog.records if one.name == "kafkalog.manager.loading"]
        if recovers:
            assert held.manager.logs[T0].log_end_offset == 2 and not held.manager.problems
            assert len(said) == 1 and said[0].startswith("recovering t-0 in a copy, although it was cleanly closed: ")
        else:
            error = held.manager.problems[T0]
            assert isinstance(error, CorruptRecord) and T0 not in held.manager.logs
            assert said == [f"{a / 't-0'} is offline, other partitions are available: {error}"]
            assert file.read_bytes() == data


def test_no_further_log_is_opened_where_the_disk_has_failed(disks: tuple[Path, Path, FaultFS]) -> None:
    """LOAD-32."""
    a, b, fs = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    (a / MARKER).unlink()
    rule = fs.fail("open", "open_read", path=f"{a}/t-", code=errno.EIO)
    with OpenManager(a, b, fs=fs, config=BrokerConfig(num_recovery_threads_per_data_dir=1)) as held:
        assert [one.is_online for one in held.manager.directories] == [False, True]
        assert list(held.manager.logs) == [T1]
        assert rule.fired == 1
        fs.heal()


def test_an_error_that_is_none_of_the_disk_ends_the_start(
    disks: tuple[Path, Path, FaultFS], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOAD-32: no marker in any directory that was being loaded, and no lock held."""
    a, b, _ = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    real = UnifiedLog.open.__func__  # type: ignore[attr-defined]

    def broken(cls: type[UnifiedLog], directory: str, *rest: object, **more: object) -> UnifiedLog:
        if directory.endswith("t-0"):
            raise RuntimeError("a mistake")
        log: UnifiedLog = real(cls, directory, *rest, **more)
        return log

    with monkeypatch.context() as patched:
        patched.setattr(UnifiedLog, "open", classmethod(broken))
        with pytest.raises(RuntimeError, match="a mistake"):
            OpenManager(a, b)
    assert MARKER not in list_names(a) and MARKER not in list_names(b)
    with OpenManager(a, b) as held:
        assert len(held.manager.logs) == 3


def test_a_marker_that_cannot_be_removed_takes_the_directory_offline(disks: tuple[Path, Path, FaultFS]) -> None:
    """LOAD-30: else a crash would look like a clean stop."""
    a, b, fs = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)
    fs.fail("unlink", path=f"a/{MARKER}", code=errno.EIO)
    with OpenManager(a, b, fs=fs) as held:
        assert list(held.manager.logs) == [T1]


def test_the_marker_is_gone_before_the_first_log_is_opened(disks: tuple[Path, Path, FaultFS]) -> None:
    """LOAD-30: and its going is on disk."""
    a, _, fs = disks
    with OpenManager(a) as held:
        held.create_log(T0)
    with OpenManager(a, fs=fs):
        pass
    opened = next(i for i, call in enumerate(fs.calls) if "/t-0" in call.path)
    removed = next(i for i, call in enumerate(fs.calls) if call.op == "unlink" and call.path.endswith(MARKER))
    synced = next(i for i, call in enumerate(fs.calls) if call.op == "fsync" and i > removed)
    assert removed < synced < opened and fs.calls[synced].path == str(a)


def test_a_close_that_fails_in_one_directory_leaves_the_others_a_marker(disks: tuple[Path, Path, FaultFS]) -> None:
    """MGR-19, MGR-20."""
    a, b, fs = disks
    held = OpenManager(a, b, fs=fs)
    first, _, _ = create_logs(held, a, b)
    append(first)
    fs.fail("fsync", "fdatasync", path="a/t-0", code=errno.EIO)
    with pytest.raises(StorageError):
        held.manager.close()
    assert MARKER not in list_names(a) and MARKER in list_names(b)
    assert not (a / "recovery-point-offset-checkpoint").exists()
    LogDir.acquire(a).release()
    LogDir.acquire(b).release()


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_a_checkpoint_that_cannot_be_written_at_the_close_is_no_clean_stop(
    disks: tuple[Path, Path, FaultFS], name: str
) -> None:
    """MGR-20: a full disk too; the logs are closed all the same."""
    a, b, fs = disks
    held = OpenManager(a, b, fs=fs)
    create_logs(held, a, b)
    fs.fail("open", path=f"a/{name}", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        held.manager.close()
    assert MARKER not in list_names(a) and MARKER in list_names(b)
    fs.heal()
    with OpenManager(a, b) as held:
        assert {log.log_end_offset for log in held.manager.logs.values()} == {3}


def test_an_interrupted_start_writes_no_marker(disks: tuple[Path, Path, FaultFS]) -> None:
    """MGR-20: a close before loading is done."""
    a, b, _ = disks
    with OpenManager(a, b) as held:
        create_logs(held, a, b)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LogManager.open([a, b], progress=interrupt)
    assert MARKER not in list_names(a) and MARKER not in list_names(b)
    with OpenManager(a, b) as held:
        assert len(held.manager.logs) == 3


def test_appends_beside_a_failing_directory_never_wait_for_each_other(disks: tuple[Path, Path, FaultFS]) -> None:
    """Appends in both directories while one fails: those of the other all succeed, and nothing hangs."""
    a, b, fs = disks
    with OpenManager(a, b, fs=fs) as held:
        first, second, other = create_logs(held, a, b)
        refused: list[BaseException] = []

        def work(log: UnifiedLog) -> None:
            try:
                for _ in range(200):
                    append(log)
            except StorageError as error:
                refused.append(error)

        threads = [threading.Thread(target=work, args=(log,)) for log in (first, second, other)]
        for thread in threads:
            thread.start()
        fs.fail("pwrite", path="a/t-0", code=errno.EIO)
        for _ in range(100):
            assert T1 in held.manager.logs
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        if not refused:  # all were done before the disk failed
            with pytest.raises(StorageError):
                append(first)
        assert other.log_end_offset == 203 and list(held.manager.logs) == [T1]
