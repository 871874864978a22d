"""The file layer: whole reads and writes, files that go away under us, atomic replacement."""

import errno
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from tests.descriptors import open_descriptors
from tests.faults import FaultFS, each_failure
from tests.unprivileged import plain_directory, unprivileged


def test_modes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.raises(FileNotFoundError):
        OS.open_file(path, "r")
    with pytest.raises(FileNotFoundError):
        OS.open_file(path, "rw")
    with OS.open_file(path, "create") as file:
        assert file.pwrite(b"abc", 0) == 3
    with OS.open_file(path, "create") as file:
        assert file.pread(10, 0) == b"abc"
    with pytest.raises(FileExistsError):
        OS.open_file(path, "exclusive")
    with OS.open_file(path, "r") as file, pytest.raises(OSError) as caught:
        file.pwrite(b"x", 0)
    assert caught.value.errno == errno.EBADF
    assert path.read_bytes() == b"abc"


def test_only_regular_files(tmp_path: Path) -> None:
    """A pipe under a file's name would block its reader for ever: it is refused at once."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        OS.open_file(tmp_path / "pipe", "r")
    with pytest.raises(IsADirectoryError):
        OS.open_file(tmp_path, "r")
    before = open_descriptors()
    with pytest.raises(OSError):
        OS.open_file("/dev/null", "rw")
    assert open_descriptors() == before


def test_pread_ends_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with OS.open_file(tmp_path / "f", "r") as file:
        assert file.pread(4, 3) == b"3456"
        assert file.pread(100, 8) == b"89"
        assert file.pread(5, 10) == b""
        assert file.pread(0, 0) == b""
        buffer = bytearray(b"....................")
        assert file.pread_into(memoryview(buffer)[2:], 4) == 6
        assert buffer == b"..456789............"


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_short_writes_go_on_until_all_is_written(tmp_path: Path, most: int) -> None:
    """FILE-15 for the layer below: no gap, whatever one call takes."""
    fs = FaultFS()
    fs.short_writes(most)
    data = bytes(range(100))
    with fs.open_file(tmp_path / "f", "create") as file:
        assert file.pwrite(data, 5) == 100
        assert file.pwrite(memoryview(bytearray(data)), 105) == 100
    assert (tmp_path / "f").read_bytes() == bytes(5) + data + data
    assert len(fs.named("pwrite")) == 2 * -(-100 // most)


def test_a_write_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    class Full(FileSystem):
        pwrite = staticmethod(lambda fd, data, position: 0)

    with Full().open_file(tmp_path / "f", "create") as file, pytest.raises(OSError, match="no more bytes"):
        file.pwrite(b"abc", 0)


def test_short_reads_go_on(tmp_path: Path) -> None:
    class Slow(FileSystem):
        pread = staticmethod(lambda fd, size, position: os.pread(fd, min(size, 3), position))

    (tmp_path / "f").write_bytes(bytes(range(50)))
    with Slow().open_file(tmp_path / "f", "r") as file:
        assert file.pread(50, 0) == bytes(range(50))
        assert file.pread(60, 40) == bytes(range(40, 50))


def test_signals_during_a_write_leave_no_gap(tmp_path: Path) -> None:
    """FILE-15: a signal handled in the middle of a large write does not cut it."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals go to the main thread")
    seen = []
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        data = os.urandom(32 << 20)
        with OS.open_file(tmp_path / "f", "create") as file:
            file.pwrite(data, 0)
            while not seen:
                file.pwrite(data, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert seen
    assert (tmp_path / "f").read_bytes() == data


def test_truncate_allocate_size_sync(tmp_path: Path) -> None:
    with OS.open_file(tmp_path / "f", "create") as file:
        file.allocate(0, 100_000)
        assert file.size() == 100_000
        assert file.stat().st_blocks * 512 >= 100_000
        file.allocate(5, 0)
        file.truncate(10)
        assert file.size() == 10
        file.sync()
        file.datasync()


def test_close_is_final_and_may_be_repeated(tmp_path: Path) -> None:
    file = OS.open_file(tmp_path / "f", "create")
    fd = file.fileno()
    assert fd >= 0 and not file.closed and f"fd {fd}" in repr(file)
    file.close()
    file.close()
    assert file.closed and file.fileno() == -1 and "closed" in repr(file)
    for call in (lambda: file.pread(1, 0), lambda: file.pwrite(b"x", 0), file.size, file.sync):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_the_last_reference_closes_the_descriptor(tmp_path: Path) -> None:
    file = OS.open_file(tmp_path / "f", "create")
    fd = file.fileno()
    del file
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_descriptors_do_not_reach_a_child_program(tmp_path: Path) -> None:
    with OS.open_file(tmp_path / "f", "create") as file:
        assert not os.get_inheritable(file.fileno())


def test_read_file_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert OS.read_file(tmp_path / "f", 5) == b"12345"
    with pytest.raises(OSError) as caught:
        OS.read_file(tmp_path / "f", 4)
    assert caught.value.errno == errno.EFBIG


def test_exists_and_unlink(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert OS.exists(tmp_path / "f") and not OS.exists(tmp_path / "g") and not OS.exists(tmp_path / "f" / "g")
    assert OS.unlink_if_exists(tmp_path / "f")
    assert not OS.unlink_if_exists(tmp_path / "f")


@pytest.mark.parametrize("name", ["n" * 300, "n\0"], ids=["too long", "NUL"])
def test_what_can_be_no_name_is_not_there(tmp_path: Path, name: str) -> None:
    """Checkpoints are asked for the directories of their partitions, and may say anything."""
    assert not OS.exists(tmp_path / name)


def test_exists_does_not_hide_missing_permission() -> None:
    with plain_directory() as directory:
        (directory / "d").mkdir()
        (directory / "d" / "f").touch()
        os.chmod(directory / "d", 0)
        with unprivileged(), pytest.raises(PermissionError):
            OS.exists(directory / "d" / "f")
        os.chmod(directory / "d", 0o700)


def test_atomic_write_replaces_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    atomic_write(OS, path, b"a long first content")
    atomic_write(OS, path, b"sh", b"", memoryview(b"ort"))
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["f"]


def test_atomic_write_ignores_a_stale_temporary(tmp_path: Path) -> None:
    """CKPT-4: what a crash left beside the file does not get into it."""
    (tmp_path / "f.tmp").write_bytes(b"left by a crash, and longer than the new content")
    atomic_write(OS, tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"


def test_atomic_write_syncs_before_the_rename_and_the_directory_after(tmp_path: Path) -> None:
    fs = FaultFS()
    atomic_write(fs, tmp_path / "f", b"new")
    order = [(call.op, call.path) for call in fs.named("pwrite", "fsync", "rename")]
    temporary = str(tmp_path / "f.tmp")
    assert order == [
        ("pwrite", temporary), ("fsync", temporary), ("rename", temporary), ("fsync", str(tmp_path)),
    ]  # fmt: skip


def test_a_shared_file_is_written_by_two_threads_at_once(tmp_path: Path) -> None:
    path = tmp_path / "f"

    class Between(FileSystem):
        """Another thread writes the file just before the first one renames its own."""

        def rename(self, old: str, new: str) -> None:  # type: ignore[override]
            thread = threading.Thread(target=atomic_write, args=(OS, path, b"theirs"), kwargs={"shared": True})
            thread.start()
            thread.join()
            assert path.read_bytes() == b"theirs"
            OS.rename(old, new)

    atomic_write(Between(), path, b"ours", shared=True)
    assert path.read_bytes() == b"ours" and os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_atomic_write_failing_at_any_call_leaves_old_or_new(tmp_path: Path, code: int) -> None:
    """CKPT-4 with every call failing in turn; a failure before the rename leaves no temporary either."""
    path = tmp_path / "f"
    for nth in each_failure():
        path.write_bytes(b"old")
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, code=code, partial=1)
        try:
            atomic_write(fs, path, b"new")
        except OSError as error:
            assert error.errno == code
            assert path.read_bytes() in (b"old", b"new")
            assert os.listdir(tmp_path) == ["f"]
            assert path.read_bytes() == b"old" or fs.named("rename")
        if not rule.fired:
            assert nth > 5
            assert path.read_bytes() == b"new"
            break


def test_an_interrupt_leaves_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    fs = FaultFS()
    fs.fail("fsync", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        atomic_write(fs, tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_faults_name_calls_and_paths(tmp_path: Path) -> None:
    """The tests' own tool: rules count only what they match, and heal() ends them."""
    fs = FaultFS()
    fs.fail("pwrite", path="a.log", nth=2, times=1, code=errno.EIO, partial=2)
    a, b = (fs.open_file(tmp_path / name, "create") for name in ("a.log", "b.log"))
    b.pwrite(b"xxxx", 0)
    a.pwrite(b"xxxx", 0)
    b.pwrite(b"xxxx", 0)
    with pytest.raises(OSError):
        a.pwrite(b"yyyy", 4)
    assert (tmp_path / "a.log").read_bytes() == b"xxxxyy"
    a.pwrite(b"zz", 4)
    fs.fail("fsync")
    with pytest.raises(OSError):
        b.sync()
    fs.heal()
    b.sync()
    with pytest.raises(AssertionError):
        fs.fail("no such call")
    a.close()
    b.close()


@pytest.mark.parametrize("call", ["listdir", "scandir"])
def test_a_directory_is_listed_where_idle_files_can_be_closed_for_it(tmp_path: Path, call: str) -> None:
    (tmp_path / "one").touch()
    fs = FaultFS()
    fs.fail(call, code=errno.EMFILE)

    class Idle:
        used = False

        def try_close(self) -> bool:
            fs.heal()
            return True

    idle = Idle()
    DESCRIPTORS.add(idle)
    DESCRIPTORS._refs.move_to_end(id(idle), last=False)
    if call == "listdir":
        assert fs.names(tmp_path) == ["one"]
    else:
        with fs.entries(tmp_path) as entries:
            assert [entry.name for entry in entries] == ["one"]


def test_directories_above_are_made_too_and_each_is_on_disk(tmp_path: Path) -> None:
    fs = FaultFS()
    make_directories(fs, str(tmp_path / "a" / "b"))
    make_directories(fs, str(tmp_path / "a" / "b"))
    assert [call.path for call in fs.named("mkdir")] == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert [call.path for call in fs.named("fsync")] == [str(tmp_path), str(tmp_path / "a")]


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_atomic_write_writes_through_no_link(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    """A directory from elsewhere may hold a link by the temporary's name: what it leads to is not ours."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"of another")
    (tmp_path / "d").mkdir()
    link(precious, tmp_path / "d" / "f.tmp")
    atomic_write(OS, tmp_path / "d" / "f", b"new")
    assert precious.read_bytes() == b"of another"
    assert (tmp_path / "d" / "f").read_bytes() == b"new" and not (tmp_path / "d" / "f").is_symlink()
    assert os.listdir(tmp_path / "d") == ["f"]


def test_read_file_asks_for_no_more_than_there_is(tmp_path: Path) -> None:
    """The buffer of a read is allocated first: the limit may be a gigabyte, the file 34 bytes."""
    (tmp_path / "f").write_bytes(bytes(34))
    fs = FaultFS()
    assert fs.read_file(tmp_path / "f", 1 << 30) == bytes(34)
    assert [call.args[0] for call in fs.named("pread")] == [34]
