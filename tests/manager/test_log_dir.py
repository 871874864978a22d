"""A data directory's lock and its clean-shutdown marker, among processes, threads and forks."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog.errors import DirectoryLocked, IllegalState, StorageError
from kafkalog.manager.log_dir import LogDir, is_locked
from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import FileSystem
from tests.descriptors import open_descriptors
from tests.faults import FaultFS, each_failure
from tests.unprivileged import plain_directory, unprivileged

ROOT = Path(__file__).parent.parent.parent
MARKER = ".kafka_cleanshutdown"
CONTENT = b'{"version":0,"brokerEpoch":-1}'

HOLD = """
import sys
from kafkalog.manager.log_dir import LogDir
held = LogDir.acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""
HOLD_PLAIN = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from kafkalog.errors import DirectoryLocked
from kafkalog.manager.log_dir import LogDir
try:
    LogDir.acquire(sys.argv[1]).release()
    print("free")
except DirectoryLocked:
    print("locked")
"""


def run_script(script: str, directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def hold_lock(directory: Path, script: str = HOLD) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock."""
    process = run_script(script, directory)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.communicate()


def probe_lock(directory: Path) -> str:
    """ "free" or "locked", as another process finds the directory."""
    return run_script(TRY, directory).communicate()[0].strip()


def run_in_fork(check: Callable[[], object]) -> int:
    """The exit status of a forked child that runs `check`: 0 when it raised nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child needs none
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def open_and_close(held: LogDir, name: str, *, created: bool = True, clean: bool = True) -> None:
    """Open and close one partition."""
    (Path(held.path) / name).mkdir(exist_ok=True)
    held.partition_opened(name, created)
    held.partition_closed(name, clean)


# The lock


def test_excludes_another_process_until_released(tmp_path: Path) -> None:
    held = LogDir.acquire(tmp_path)
    assert os.listdir(tmp_path) == [".lock"]
    assert probe_lock(tmp_path) == "locked"
    held.release()
    assert probe_lock(tmp_path) == "free"


@pytest.mark.parametrize("script", [HOLD, HOLD_PLAIN])
def test_a_directory_that_another_process_holds(tmp_path: Path, script: str) -> None:
    """Ours, and any other that takes a record lock, as a broker does; the error names the file and who holds it."""
    with hold_lock(tmp_path, script) as process:
        before = open_descriptors()
        with pytest.raises(DirectoryLocked, match=f"process {process.pid}") as caught:
            LogDir.acquire(tmp_path)
        assert caught.value.path == str(tmp_path / ".lock")
        assert caught.value.hint
        assert isinstance(caught.value, OSError)
        assert open_descriptors() == before
    LogDir.acquire(tmp_path).release()


def test_a_killed_holder_leaves_the_directory_free(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        LogDir.acquire(tmp_path).release()


def test_one_holder_per_process_counted(tmp_path: Path) -> None:
    """A record lock is lost when any descriptor of the file closes: so there is one, closed by the last release."""
    first = LogDir.acquire(tmp_path)
    second = LogDir.acquire(tmp_path / "." / ".." / tmp_path.name)
    assert second is first
    second.release()
    assert probe_lock(tmp_path) == "locked"
    third = LogDir.acquire(tmp_path)
    first.release()
    assert probe_lock(tmp_path) == "locked"
    third.release()
    assert probe_lock(tmp_path) == "free"
    third.release()


def test_another_name_of_the_directory_is_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    with LogDir.acquire(tmp_path / "d") as held, LogDir.acquire(tmp_path / "link") as again:
        assert again is held
    assert probe_lock(tmp_path / "d") == "free"


def test_the_lock_is_lost_by_closing_another_descriptor(tmp_path: Path) -> None:
    """Why the file is opened once: the rule of the system that the design answers."""
    with LogDir.acquire(tmp_path):
        open(tmp_path / ".lock").close()
        assert probe_lock(tmp_path) == "free"


def test_an_unrelated_flock_does_not_matter(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert probe_lock(tmp_path) == "free"


def test_threads_share_one_hold(tmp_path: Path) -> None:
    seen: list[LogDir] = []
    threads = [threading.Thread(target=lambda: seen.append(LogDir.acquire(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1
    for held in seen[1:]:
        held.release()
    assert probe_lock(tmp_path) == "locked"
    seen[0].release()
    assert probe_lock(tmp_path) == "free"


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """The lock stays with the parent: the child's calls are refused, and nothing it does gives the lock away."""
    held = LogDir.acquire(tmp_path)
    open_and_close(held, "t-0")

    def child() -> None:
        for call in (
            held.before_first_write,
            lambda: held.vouches_for("t-0"),
            lambda: held.partition_opened("t-1", True),
            lambda: held.partition_closed("t-0", True),
        ):
            with pytest.raises(IllegalState, match="parent process"):
                call()
        with pytest.raises(DirectoryLocked):
            LogDir.acquire(tmp_path)
        held.release()
        assert not (tmp_path / MARKER).exists()

    assert run_in_fork(child) == 0
    assert probe_lock(tmp_path) == "locked"
    held.release()
    assert (tmp_path / MARKER).exists()
    assert probe_lock(tmp_path) == "free"


def test_a_forked_child_may_lock_what_the_parent_released(tmp_path: Path) -> None:
    LogDir.acquire(tmp_path).release()
    assert run_in_fork(lambda: LogDir.acquire(tmp_path).release()) == 0


def test_descriptors_do_not_reach_a_child_program(tmp_path: Path) -> None:
    with LogDir.acquire(tmp_path) as held:
        assert not os.get_inheritable(held._fd)


def test_missing_directories(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        LogDir.acquire(tmp_path / "a" / "b")
    assert (caught.value.errno, caught.value.path) == (errno.ENOENT, str(tmp_path / "a" / "b"))
    assert os.listdir(tmp_path) == []
    LogDir.acquire(tmp_path / "a" / "b", create=True).release()
    assert os.listdir(tmp_path / "a" / "b") == [".lock"]


def test_a_file_where_a_directory_is_meant(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for path in (tmp_path / "f", tmp_path / "f" / "g"):
        with pytest.raises(StorageError) as caught:
            LogDir.acquire(path, create=True)
        assert caught.value.errno == errno.ENOTDIR


def test_no_permission() -> None:
    with plain_directory() as directory:
        directory.chmod(0o500)
        with unprivileged(), pytest.raises(StorageError, match="permission") as caught:
            LogDir.acquire(directory)
        assert (caught.value.errno, caught.value.path) == (errno.EACCES, str(directory / ".lock"))
        assert os.listdir(directory) == []


def test_a_failed_open_leaves_it_free(tmp_path: Path) -> None:
    fs = FaultFS()
    for op in ("open", "stat"):
        fs.fail(op, code=errno.EIO)
        with pytest.raises(StorageError):
            LogDir.acquire(tmp_path, fs=fs)
        fs.heal()
    LogDir.acquire(tmp_path, fs=fs).release()


# The marker


def test_the_marker_of_a_directory_that_this_process_made(tmp_path: Path) -> None:
    """Every partition in it made here and closed well: the marker is written, byte for byte as a broker's."""
    held = LogDir.acquire(tmp_path / "d", create=True)
    assert not held.marker_found
    open_and_close(held, "a-0")
    open_and_close(held, "b-0")
    assert not (tmp_path / "d" / MARKER).exists()
    held.release()
    assert (tmp_path / "d" / MARKER).read_bytes() == CONTENT


def test_an_empty_directory_that_was_there(tmp_path: Path) -> None:
    """Other files and directories that are no partitions do not count."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties").touch()
    (tmp_path / "a file-0").touch()
    (tmp_path / "file-0").touch()
    with LogDir.acquire(tmp_path) as held:
        open_and_close(held, "a-0")
    assert (tmp_path / MARKER).exists()


def test_a_marker_found_goes_before_the_first_write_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_bytes(b'{"version":0,"brokerEpoch":7}')
    (tmp_path / "old-0").mkdir()
    held = LogDir.acquire(tmp_path)
    assert held.marker_found and held.vouches_for("old-0") and held.vouches_for("never-1")
    assert (tmp_path / MARKER).exists()
    held.partition_opened("old-0", False)
    assert not (tmp_path / MARKER).exists()
    held.partition_closed("old-0", True)
    assert held.vouches_for("old-0")
    held.release()
    assert (tmp_path / MARKER).read_bytes() == CONTENT


def test_before_first_write_syncs_the_directory_once(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    fs = FaultFS()
    with LogDir.acquire(tmp_path, fs=fs) as held:
        held.before_first_write()
        held.before_first_write()
        assert [call.path for call in fs.named("unlink")] == [str(tmp_path / MARKER)]
        assert [call.path for call in fs.named("fsync")] == [str(tmp_path)]


def test_a_directory_that_nothing_touched_keeps_its_marker(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_bytes(b"")
    LogDir.acquire(tmp_path).release()
    assert (tmp_path / MARKER).read_bytes() == b""


def test_no_marker_where_nothing_was_opened(tmp_path: Path) -> None:
    LogDir.acquire(tmp_path).release()
    assert os.listdir(tmp_path) == [".lock"]


def test_no_marker_over_a_partition_that_nobody_vouches_for(tmp_path: Path) -> None:
    """One made by somebody else and not closed well: the marker would vouch for it too."""
    (tmp_path / "old-0").mkdir()
    held = LogDir.acquire(tmp_path)
    assert not held.vouches_for("old-0")
    open_and_close(held, "new-0")
    assert held.vouches_for("new-0")
    held.release()
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", ["old-0.0123456789abcdef0123456789abcdef-delete", "x-0.abc-stray", "x-0.abc-future"])
def test_directories_in_transit_count_as_partitions(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with LogDir.acquire(tmp_path) as held:
        open_and_close(held, "new-0")
    assert not (tmp_path / MARKER).exists()


def test_a_partition_made_here_may_be_opened_again(tmp_path: Path) -> None:
    with LogDir.acquire(tmp_path) as held:
        open_and_close(held, "a-0")
        open_and_close(held, "a-0", created=False)
    assert (tmp_path / MARKER).exists()


def test_no_marker_after_an_unclean_close(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_bytes(CONTENT)
    held = LogDir.acquire(tmp_path)
    open_and_close(held, "a-0", created=False, clean=False)
    assert not held.vouches_for("a-0")
    open_and_close(held, "b-0")
    held.release()
    assert not (tmp_path / MARKER).exists()
    with LogDir.acquire(tmp_path) as again:
        assert not again.vouches_for("a-0") and not again.vouches_for("b-0")


def test_no_marker_while_a_partition_was_not_closed(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_bytes(CONTENT)
    with LogDir.acquire(tmp_path) as held:
        open_and_close(held, "b-0")
        held.partition_opened("a-0", False)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("more", [None, "notes.txt", "a-0"])
def test_a_directory_that_is_discarded_goes_with_what_is_worthless(tmp_path: Path, more: str | None) -> None:
    path = tmp_path / "made"
    held = LogDir.acquire(path, create=True)
    (path / "topics.json").touch()
    (path / MARKER).touch()
    if more is not None:
        (path / more).mkdir()
    before = set(os.listdir(path))
    LogDir.acquire(path).discard(("topics.json",))
    assert set(os.listdir(path)) == before, "another holder has it still"
    held.discard(("topics.json",))
    assert path.exists() == (more is not None) and not is_locked(path)
    if more is not None:
        assert set(os.listdir(path)) == before


def test_one_writer_for_a_partition(tmp_path: Path) -> None:
    with LogDir.acquire(tmp_path) as held:
        held.partition_opened("a-0", True)
        assert held.vouches_for("a-0")
        with pytest.raises(DirectoryLocked, match="already open for writing in this process"):
            held.partition_opened("a-0", False)
        held.partition_closed("a-0", True)
        open_and_close(held, "a-0", created=False)
    assert (tmp_path / MARKER).exists()


def test_a_marker_that_cannot_be_removed_stops_everything(tmp_path: Path) -> None:
    """KAFKA-10101: writing on would leave data that a marker vouches for wrongly."""
    (tmp_path / MARKER).write_bytes(CONTENT)
    for nth in each_failure():
        (tmp_path / MARKER).write_bytes(CONTENT)
        fs = FaultFS()
        with LogDir.acquire(tmp_path, fs=fs) as held:
            rule = fs.fail("unlink", "fsync", nth=nth, times=1, code=errno.EIO)
            if nth > 2:
                held.partition_opened("a-0", False)
                assert not rule.fired
                break
            with pytest.raises(StorageError) as caught:
                held.partition_opened("a-0", False)
            assert (caught.value.errno, caught.value.path) == (errno.EIO, str(tmp_path / MARKER))


def test_a_marker_that_cannot_be_written(tmp_path: Path) -> None:
    """The last release says so, and unlocks all the same; no half of it is left."""
    fs = FaultFS()
    held = LogDir.acquire(tmp_path, fs=fs)
    open_and_close(held, "a-0")
    fs.fail("pwrite")
    with pytest.raises(StorageError) as caught:
        held.release()
    assert caught.value.errno == errno.ENOSPC
    assert sorted(os.listdir(tmp_path)) == [".lock", "a-0"]
    assert probe_lock(tmp_path) == "free"


def test_the_marker_is_on_disk_before_the_lock_is_given_back(tmp_path: Path) -> None:
    fs = FaultFS()
    held = LogDir.acquire(tmp_path, fs=fs)
    open_and_close(held, "a-0")
    held.release()
    ops = [(call.op, os.path.basename(call.path)) for call in fs.named("fsync", "rename", "close")]
    assert ops[-6:] == [
        ("fsync", f"{MARKER}.tmp"), ("close", f"{MARKER}.tmp"), ("rename", f"{MARKER}.tmp"),
        ("fsync", tmp_path.name), ("close", tmp_path.name), ("close", ".lock"),
    ]  # fmt: skip


def test_a_released_directory_refuses(tmp_path: Path) -> None:
    held = LogDir.acquire(tmp_path)
    assert "held 1 times" in repr(held)
    held.release()
    assert "released" in repr(held)
    for call in (held.before_first_write, lambda: held.partition_opened("a-0", True)):
        with pytest.raises(IllegalState, match="released"):
            call()


def test_a_lock_file_removed_before_it_is_locked_is_made_anew(tmp_path: Path) -> None:
    """A broker removes its lock file when it stops; a lock on a file without a name would exclude no one."""

    class Removing(FileSystem):
        opened = 0

        def open(self, path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
            fd = super().open(path, flags, mode)
            if os.fspath(path).endswith(".lock"):
                self.opened += 1
                if self.opened == 1:
                    os.unlink(path)
            return fd

    fs = Removing()
    held = LogDir.acquire(tmp_path, fs=fs)
    try:
        assert (tmp_path / ".lock").exists()
        assert fs.opened == 2
    finally:
        held.release()


def test_the_lock_file_is_opened_where_idle_files_can_be_closed_for_it(tmp_path: Path) -> None:
    fs = FaultFS()
    LogDir.acquire(tmp_path).release()

    class Idle:
        used = was_asked = False

        def try_close(self) -> bool:
            fs.heal()
            self.was_asked = True
            return True

    for call in (lambda: is_locked(tmp_path, fs=fs), lambda: LogDir.acquire(tmp_path, fs=fs).release()):
        idle = Idle()
        DESCRIPTORS.add(idle)
        DESCRIPTORS._refs.move_to_end(id(idle), last=False)
        fs.fail("open", "open_read", path=".lock", code=errno.EMFILE)
        call()
        assert idle.was_asked
