"""FileRecords on a file system that fails: nothing that was there is lost, and the error says which file."""

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.storage.file_records import FileRecords
from tests.builder import batch
from tests.descriptors import open_descriptors
from tests.faults import FaultFS, each_failure
from tests.tiny_disk import run_on_tiny_disk
from tests.unprivileged import plain_directory, unprivileged

ONE, TWO, LONG = batch([b"one"]), batch([b"two"], base_offset=1), batch([b"x" * 3000], base_offset=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


@pytest.mark.parametrize("most", [1, 7, 60, 200])
def test_short_writes_are_looped(path: Path, most: int) -> None:
    """FILE-15: all bytes are written, in their places."""
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.short_writes(most)
    assert records.append(LONG) == len(LONG)
    assert records.append(memoryview(bytearray(TWO))) == len(TWO)
    assert path.read_bytes() == ONE + LONG + TWO
    assert records.size == len(ONE + LONG + TWO)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("partial", [0, 1, 61, 5000])
def test_a_failed_write_leaves_the_old_file(path: Path, code: int, partial: int) -> None:
    """FILE-15: the part that got in is cut away; the next append goes where this one would have."""
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.fail("pwrite", times=1, code=code, partial=partial)
    with pytest.raises(StorageError) as caught:
        records.append(LONG)
    error = caught.value
    assert (error.errno, error.path, error.position) == (code, str(path), len(ONE))
    assert error.hint
    assert records.size == len(ONE)
    assert path.read_bytes() == ONE
    records.append(TWO)
    assert path.read_bytes() == ONE + TWO


@pytest.mark.parametrize("most", [0, 1000])
def test_a_full_disk_at_every_call_of_an_append(path: Path, most: int) -> None:
    """ENOSPC at the first, second, third ... call: size and content are the old ones, then it goes on."""
    for nth in each_failure():
        path.unlink(missing_ok=True)
        fs = FaultFS()
        records = FileRecords.open(path, fs=fs)
        records.append(ONE)
        fs.short_writes(most)
        rule = fs.fail(nth=nth, times=1, partial=10)
        try:
            records.append(LONG)
        except StorageError as error:
            assert error.errno == errno.ENOSPC
            assert (records.size, path.read_bytes()) == (len(ONE), ONE)
        fs.heal()
        if not rule.fired:
            assert nth == (4 if most else 1) + 1
            break
        records.append(TWO)
        records.close()
        assert path.read_bytes() == ONE + TWO


def test_a_failed_write_that_cannot_be_cut_is_cut_by_the_next(path: Path) -> None:
    """The disk fails twice: reads end at the old size, and no byte of the failed append survives the next one."""
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.fail("pwrite", code=errno.EIO, partial=3000)
    fs.fail("ftruncate", code=errno.EIO)
    with pytest.raises(StorageError):
        records.append(LONG)
    assert path.read_bytes() == ONE + LONG[:3000]
    assert records.read(0, 10**6) == ONE
    with pytest.raises(StorageError):
        records.append(TWO)
    fs.heal()
    records.append(TWO)
    assert path.read_bytes() == ONE + TWO
    records.append(ONE)
    assert path.read_bytes() == ONE + TWO + ONE


def test_what_could_not_be_cut_goes_at_close(path: Path) -> None:
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.fail("pwrite", "ftruncate", code=errno.EIO, partial=3000)
    with pytest.raises(StorageError):
        records.append(LONG)
    fs.heal()
    records.close()
    assert path.read_bytes() == ONE


def test_an_interrupt_in_an_append_leaves_the_old_file(path: Path) -> None:
    """Ctrl-C while the write goes on: all of it or nothing."""
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.short_writes(100)
    fs.fail("pwrite", nth=3, times=1, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        records.append(LONG)
    assert (records.size, path.read_bytes()) == (len(ONE), ONE)
    records.append(TWO)
    assert path.read_bytes() == ONE + TWO


def test_a_full_disk_while_preallocating_leaves_an_empty_file(path: Path) -> None:
    fs = FaultFS()
    fs.fail("posix_fallocate")
    before = open_descriptors()
    with pytest.raises(StorageError) as caught:
        FileRecords.open(path, fs=fs, preallocated_bytes=1 << 20)
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b""
    del caught
    assert open_descriptors() == before
    fs.heal()
    assert FileRecords.open(path, fs=fs, preallocated_bytes=1 << 20).size == 0


@pytest.mark.parametrize("op", ["fdatasync", "ftruncate", "fstat", "pread", "rename", "unlink"])
def test_other_calls_that_fail(path: Path, op: str) -> None:
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.fail(op, code=errno.EIO)
    call = {
        "fdatasync": records.flush,
        "ftruncate": lambda: records.truncate_to(0),
        "fstat": records.last_modified_ms,
        "pread": lambda: records.search_for_offset(0),
        "rename": lambda: records.rename_to(f"{path}.deleted"),
        "unlink": records.delete_if_exists,
    }[op]
    with pytest.raises(StorageError) as caught:
        call()
    assert (caught.value.errno, caught.value.path) == (errno.EIO, str(path))
    assert path.read_bytes() == ONE
    assert records.size == len(ONE)


def test_reads_that_fail(path: Path) -> None:
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(ONE)
    fs.fail("pread", "preadv", code=errno.EIO)
    piece = records.slice(0, 50)
    for call in (
        lambda: records.read(5, 9),
        piece.read,
        lambda: piece.read_into(bytearray(5)),
        lambda: list(piece.tables()),
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert (caught.value.errno, caught.value.path) == (errno.EIO, str(path))
        assert caught.value.position in (0, 5)


def test_close_gives_the_descriptor_back_even_when_trimming_fails(path: Path) -> None:
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs, preallocated_bytes=4096)
    records.append(ONE)
    fd = records._fd
    fs.fail("ftruncate", code=errno.EIO)
    with pytest.raises(StorageError):
        records.close()
    assert records.closed
    with pytest.raises(OSError):
        os.fstat(fd)


def test_missing_wrong_kind_and_no_permission(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        FileRecords.open(tmp_path / "x.log", file_already_exists=True)
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(StorageError) as caught:
        FileRecords.open(tmp_path, mutable=False)
    assert caught.value.errno == errno.EISDIR
    with plain_directory() as directory:
        path = directory / "x.log"
        path.write_bytes(ONE)
        path.chmod(0o400)
        if os.geteuid() == 0:
            os.chown(path, os.stat(directory).st_uid, -1)
        with unprivileged():
            with pytest.raises(StorageError, match="permission") as caught:
                FileRecords.open(path, file_already_exists=True)
            assert (caught.value.errno, caught.value.path) == (errno.EACCES, str(path))
            assert FileRecords.open(path, mutable=False).read(0, 1000) == ONE
        assert path.read_bytes() == ONE
        assert isinstance(caught.value, KafkalogError)


FILL_IT = """
import errno, os
from kafkalog.errors import StorageError
from kafkalog.storage.file_records import FileRecords
data = bytes(range(256)) * 391  # not a divisor of the disk's size
records, whole = FileRecords.open("x.log"), 0
try:
    while True:
        records.append(data)
        whole += 1
except StorageError as error:
    assert error.errno == errno.ENOSPC, error
    assert error.path == "x.log" and "free space" in str(error)
assert whole > 3 and records.size == whole * len(data)
assert open("x.log", "rb").read() == data * whole
records.append(data[:1000])
os.truncate("x.log", 0)
print("survived")
"""


@pytest.mark.crash
def test_a_disk_that_really_fills_up() -> None:
    """A tmpfs of 1 MiB: the append that does not fit leaves nothing, a smaller one still fits."""
    done = run_on_tiny_disk(FILL_IT)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "survived", "")
