"""Background tasks of logs opened by themselves: delayed deletes, and the flush after a roll."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import hooks
from kafkalog.errors import StorageError
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.open_logs import open_log

DELAY_MS = 1000


@pytest.fixture
def scheduler() -> MockScheduler:
    return MockScheduler(MockClock())


def open_delayed(path: Path, scheduler: MockScheduler, fs: FileSystem = OS, **settings: Any) -> kafkalog.Log:
    """Open `t-0` below `path`, whose removed files are deleted after DELAY_MS of the scheduler's clock."""
    settings["file_delete_delay_ms"] = DELAY_MS
    return open_log(path / "t-0", settings, fs=fs, clock=scheduler.clock, scheduler=scheduler)


def append_segments(log: kafkalog.Log, count: int) -> None:
    """Append `count` records, each in a separate segment, and leave an empty active segment."""
    for number in range(count):
        log.append(b"%d" % number)
        log.roll()


def names(path: Path, suffix: str) -> list[str]:
    return sorted(name for name in os.listdir(path / "t-0") if name.endswith(suffix))


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafkalog-background"]


def wait_until_idle() -> None:
    for thread in background_threads():
        thread.join(30)
    assert not background_threads()


def test_removed_files_wait_for_the_delay(tmp_path: Path, scheduler: MockScheduler) -> None:
    """LOG-46: renamed at once, deleted after file.delete.delay.ms."""
    with open_delayed(tmp_path, scheduler) as log:
        append_segments(log, 3)
        log.delete_before(2)
        assert names(tmp_path, ".log") == [f"{2:020d}.log", f"{3:020d}.log"]
        waiting = [f"{0:020d}.log.deleted", f"{1:020d}.log.deleted"]
        assert names(tmp_path, ".log.deleted") == waiting
        scheduler.advance(DELAY_MS - 1)
        assert names(tmp_path, ".log.deleted") == waiting
        scheduler.advance(1)
        assert names(tmp_path, ".deleted") == []
        assert [record.value for record in log] == [b"2"]


def test_a_truncation_and_a_clean_leave_files_for_the_delay(tmp_path: Path, scheduler: MockScheduler) -> None:
    with open_delayed(tmp_path, scheduler, cleanup_policy="compact") as log:
        for value in (b"old", b"new"):
            log.append([(b"key", value)])
            log.roll()
        log.compact()
        assert names(tmp_path, ".log.deleted")
        scheduler.advance(DELAY_MS)
        assert names(tmp_path, ".deleted") == []
        log.append([(b"key", b"newest")])
        log.roll()
        log.truncate_to(2)
        assert names(tmp_path, ".log.deleted") == [f"{3:020d}.log.deleted"]
        scheduler.advance(DELAY_MS)
        assert names(tmp_path, ".deleted") == []
        assert [record.value for record in log] == [b"new"]


def test_a_delay_of_zero_deletes_before_the_call_returns(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", file_delete_delay_ms=0) as log:
        append_segments(log, 3)
        log.truncate_to(1)
        assert names(tmp_path, ".deleted") == []
        assert names(tmp_path, ".log") == [f"{0:020d}.log", f"{1:020d}.log"]


def test_closing_deletes_what_waits(tmp_path: Path, scheduler: MockScheduler) -> None:
    log = open_delayed(tmp_path, scheduler)
    append_segments(log, 3)
    log.truncate_to(1)
    assert names(tmp_path, ".deleted")
    log.close()
    assert names(tmp_path, ".deleted") == []
    assert scheduler.pending == []


def test_a_closed_log_has_no_task_in_the_next_one(tmp_path: Path, scheduler: MockScheduler) -> None:
    with open_delayed(tmp_path, scheduler) as log:
        append_segments(log, 3)
        log.truncate_to(1)
    with open_delayed(tmp_path, scheduler) as log:
        scheduler.advance(DELAY_MS // 2)
        append_segments(log, 3)
        log.truncate_to(1)
        scheduler.advance(DELAY_MS // 2)
        assert names(tmp_path, ".log.deleted")
        scheduler.advance(DELAY_MS // 2)
        assert names(tmp_path, ".deleted") == []


def test_a_roll_flushes_the_old_segment(tmp_path: Path, scheduler: MockScheduler) -> None:
    """LOG-18, LOG-51: the recovery point is raised to the base of the new segment."""
    fs = FaultFS()
    with open_delayed(tmp_path, scheduler, fs) as log:
        log.append([b"a", b"b"])
        assert log.opened_for_append().log.recovery_point == 0
        fs.calls.clear()
        log.roll()
        assert log.opened_for_append().log.recovery_point == 2
        synced = [os.path.basename(call.path) for call in fs.calls if call.op in ("fsync", "fdatasync")]
        assert f"{0:020d}.log" in synced


def test_one_thread_serves_all_logs_and_ends_without_tasks(tmp_path: Path) -> None:
    wait_until_idle()
    logs = [kafkalog.open(tmp_path / f"t-{number}", "a", file_delete_delay_ms=3_600_000) for number in range(5)]
    for log in logs:
        append_segments(log, 2)
        log.truncate_to(1)
    assert len(background_threads()) == 1
    for log in logs:
        log.close()
    wait_until_idle()
    assert not list(tmp_path.rglob("*.deleted"))


def test_the_thread_flushes_rolled_segments(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        append_segments(log, 2)
        wait_until_idle()
        assert log.opened_for_append().log.recovery_point == 2
        append_segments(log, 1)
        wait_until_idle()
        assert log.opened_for_append().log.recovery_point == 3


def test_a_hook_of_a_background_flush_may_close_the_log(tmp_path: Path) -> None:
    log = kafkalog.open(tmp_path / "t-0", "a")
    log.append(b"value")
    with hooks.on("flush", lambda event: log.close()):
        log.roll()
        wait_until_idle()
    assert log.closed


def test_close_waits_for_a_flush_in_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    started, goes_on = threading.Event(), threading.Event()

    def hold(event: Any) -> None:
        started.set()
        goes_on.wait(30)

    log = kafkalog.open(tmp_path / "t-0", "a")
    log.append(b"value")
    with hooks.on("flush", hold):
        log.roll()
        assert started.wait(30)
        closing = threading.Thread(target=log.close)
        closing.start()
        assert closing.is_alive() and not log.closed
        goes_on.set()
        closing.join(30)
    assert log.closed and not caplog.records


def test_a_full_disk_deletes_waiting_files_at_once(tmp_path: Path, scheduler: MockScheduler) -> None:
    """delete_before frees the space it needs for its own checkpoint."""
    fs = FaultFS()
    with open_delayed(tmp_path, scheduler, fs) as log:
        append_segments(log, 1)
        log.append([b"1", b"2", b"3"])
        refused = fs.fail("pwrite", path="log-start-offset-checkpoint", code=errno.ENOSPC, times=2)
        assert log.delete_before(2) == 2
        assert refused.fired == 2
        assert names(tmp_path, ".deleted") == []
    with open_delayed(tmp_path, scheduler) as log:
        assert log.start_offset == 2


def test_a_full_disk_with_nothing_to_delete_is_reported(tmp_path: Path, scheduler: MockScheduler) -> None:
    fs = FaultFS()
    with open_delayed(tmp_path, scheduler, fs) as log:
        log.append([b"a", b"b"])
        fs.fail("pwrite", path="log-start-offset-checkpoint", code=errno.ENOSPC, times=2)
        with pytest.raises(StorageError):
            log.delete_before(1)


def test_files_that_are_gone_already_are_no_error(
    tmp_path: Path, scheduler: MockScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_delayed(tmp_path, scheduler)
    append_segments(log, 3)
    log.truncate_to(1)
    shutil.rmtree(tmp_path / "t-0")
    scheduler.advance(DELAY_MS)
    assert not caplog.records
    with pytest.raises(StorageError):
        log.close()


def test_a_failed_delete_is_logged_and_the_log_continues(
    tmp_path: Path, scheduler: MockScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultFS()
    with open_delayed(tmp_path, scheduler, fs) as log:
        append_segments(log, 2)
        log.delete_before(1)
        fs.fail("unlink", path=".log.deleted", code=errno.EIO)
        scheduler.advance(DELAY_MS)
        assert "background task delete-file failed" in caplog.text
        assert log.append(b"next").first_offset == 2
    with open_delayed(tmp_path, scheduler):
        scheduler.advance(DELAY_MS)
        assert names(tmp_path, ".deleted") == []


def test_an_opening_that_fails_leaves_no_task(tmp_path: Path, scheduler: MockScheduler) -> None:
    with open_delayed(tmp_path, scheduler) as log:
        append_segments(log, 2)
    fs = FaultFS()
    fs.fail("pwrite", path="cleaner-offset-checkpoint", code=errno.EIO)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 9\n")
    (tmp_path / "t-0" / f"{0:020d}.log.deleted").touch()
    with pytest.raises(StorageError):
        open_delayed(tmp_path, scheduler, fs)
    assert scheduler.pending == []


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    quiet = "ignore:This process:DeprecationWarning"
    return subprocess.run([sys.executable, "-W", quiet, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_forked_child_has_a_scheduler_of_its_own(tmp_path: Path) -> None:
    code = f"""
import kafkalog, os, threading
path = {str(tmp_path)!r}
log = kafkalog.open(path + "/parent/t-0", "a", file_delete_delay_ms=3_600_000)
log.append(b"a")
log.roll()
log.truncate_to(0)
pid = os.fork()
if pid == 0:
    with kafkalog.open(path + "/child/t-0", "a", file_delete_delay_ms=3_600_000) as own:
        own.append(b"a")
        own.roll()
        own.truncate_to(0)
        threads = [thread.name for thread in threading.enumerate()]
    os._exit(0 if threads.count("kafkalog-background") == 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert any(name.endswith(".deleted") for name in os.listdir(path + "/parent/t-0"))
log.close()
assert not any(name.endswith(".deleted") for name in os.listdir(path + "/parent/t-0"))
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_with_tasks_pending(tmp_path: Path) -> None:
    code = f"""
import kafkalog
log = kafkalog.open({str(tmp_path / "t-0")!r}, "a", file_delete_delay_ms=3_600_000)
log.append(b"a")
log.roll()
log.truncate_to(0)
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path, ".deleted") == []
