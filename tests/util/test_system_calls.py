"""Substitutes for missing system calls: syncs that reach the medium, unreserved space, ignored advice.

The systems are simulated: `calls_of` gets the calls of one, as the modules os and fcntl of macOS or of musl have them.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.preallocated_file import PreallocatedFile
from kafkalog.storage.scan_advice import ScanAdvice
from kafkalog.util.fileio import FileSystem
from kafkalog.util.system_calls import SystemCalls, calls_of, pack_flock, unpack_flock
from tests.faults import FaultFS

F_FULLFSYNC = 51  # sys/fcntl.h of macOS
CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


class Mac:
    """os and fcntl as macOS has them; the calls are noted, `refusal` is what F_FULLFSYNC answers."""

    def __init__(self, refusal: int = 0) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.refusal = refusal
        self.os = SimpleNamespace(fsync=self.note("fsync"), sendfile=self.note("sendfile"))
        self.fcntl = SimpleNamespace(fcntl=self.control, F_FULLFSYNC=F_FULLFSYNC)

    def note(self, name: str) -> Any:
        return lambda *arguments: self.called.append((name, *arguments)) or 7

    def control(self, fd: int, command: int) -> int:
        self.called.append(("fcntl", fd, command))
        if self.refusal:
            raise OSError(self.refusal, os.strerror(self.refusal))
        return 0

    def calls(self) -> SystemCalls:
        return calls_of(self.os, self.fcntl, "darwin")


@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
def test_a_sync_reaches_the_medium_where_fsync_does_not(name: str) -> None:
    mac = Mac()
    getattr(mac.calls(), name)(3)
    assert mac.called == [("fcntl", 3, F_FULLFSYNC)]


@pytest.mark.parametrize("refusal", CANNOT)
def test_a_file_system_without_full_syncs_gets_plain_ones(refusal: int) -> None:
    mac = Mac(refusal)
    mac.calls().fdatasync(3)
    assert mac.called == [("fcntl", 3, F_FULLFSYNC), ("fsync", 3)]


@pytest.mark.parametrize("failure", [errno.EIO, errno.ENOSPC, errno.EBADF])
def test_a_full_sync_that_failed_is_no_plain_one(failure: int) -> None:
    mac = Mac(failure)
    with pytest.raises(OSError) as caught:
        mac.calls().fsync(3)
    assert caught.value.errno == failure
    assert mac.called == [("fcntl", 3, F_FULLFSYNC)]


def test_without_fdatasync_and_full_syncs_fsync_stands_for_both() -> None:
    mac = Mac()
    calls = calls_of(mac.os, SimpleNamespace(), "freebsd14")
    calls.fdatasync(3)
    assert mac.called == [("fsync", 3)]


def test_sendfile_of_nothing_sends_nothing() -> None:
    mac = Mac()
    assert mac.calls().sendfile(4, 3, 100, 0) == 0
    assert mac.called == []
    assert mac.calls().sendfile(4, 3, 100, 8) == 7
    assert mac.called == [("sendfile", 4, 3, 100, 8)]


def test_linux_has_the_builtins_themselves() -> None:
    fs = FileSystem()
    assert (fs.fsync, fs.fdatasync, fs.sendfile) == (os.fsync, os.fdatasync, os.sendfile)
    assert (fs.posix_fallocate, fs.advise) == (os.posix_fallocate, os.posix_fadvise)


class MacFiles(FaultFS):
    """Real files, with the calls that macOS lacks answering as they do there."""

    def real(self, op: str) -> Callable[..., Any]:
        return getattr(Mac().calls(), op) if op in ("posix_fallocate", "advise") else super().real(op)


def without_fallocate(code: int) -> FaultFS:
    fs = FaultFS()
    fs.fail("posix_fallocate", code=code)
    return fs


def test_a_preallocated_segment_is_filled_where_space_cannot_be_reserved(tmp_path: Path) -> None:
    """FILE-9: musl says EOPNOTSUPP where the file system has no fallocate, macOS has no such call."""
    size = (1 << 20) + 4096
    for name, fs in (("a", MacFiles()), ("b", without_fallocate(errno.EOPNOTSUPP))):
        FileRecords.open(tmp_path / name, fs=fs, preallocated_bytes=size)
        assert (tmp_path / name).stat().st_size == size
        assert (tmp_path / name).stat().st_blocks * 512 >= size  # no hole


def test_a_full_disk_while_filling_leaves_an_empty_file(tmp_path: Path) -> None:
    fs = MacFiles()
    fs.fail("pwrite", nth=2)
    with pytest.raises(StorageError) as caught:
        FileRecords.open(tmp_path / "a", fs=fs, preallocated_bytes=3 << 20)
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "a").stat().st_size == 0


def test_an_index_goes_on_without_reserving(tmp_path: Path) -> None:
    file = PreallocatedFile(tmp_path / "index", "offset index", MacFiles())
    file.create()
    file.set_length(1 << 20)
    file.reserve(100)
    file.write(b"entry", 0)
    assert (tmp_path / "index").read_bytes()[:5] == b"entry"
    file.release()


def test_advice_is_left_out_where_nobody_takes_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (fs := MacFiles()).open_file(tmp_path / "file", "r") as file:
        file.expect_whole_read()
        ScanAdvice(file, 100_000, fs).done(100_000)
    with pytest.raises(OSError, match="supported"):
        Mac().calls().advise(3, 0, 0, 0)


numbers = st.integers(0, 2**31 - 1)


locks = st.fixed_dictionaries(
    {"type": st.integers(0, 3), "whence": st.integers(0, 2), "start": numbers, "pid": numbers}
)


@given(values=locks)
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_record_lock_comes_back_as_it_was(platform: str, values: dict[str, int]) -> None:
    packed = pack_flock(values, platform)
    assert unpack_flock(packed, platform) == {**values, "length": 0}
    assert len(packed) == {"linux": 32, "darwin": 24}[platform]
