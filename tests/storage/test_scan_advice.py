"""A scan drops what it brought into the page cache, and leaves what was there."""

import os
from pathlib import Path

import pytest

from kafkalog.storage.scan_advice import DROP_BYTES, ScanAdvice
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.page_cache import drop_pages, resident_bytes

SIZE = 3 * DROP_BYTES + 12345

pytestmark = pytest.mark.on_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "cold"
    with made.open("wb") as file:
        file.write(os.urandom(1 << 16) * (SIZE >> 16) + b"x" * (SIZE & 0xFFFF))
        file.flush()
        os.fsync(file.fileno())
    return made


def drop_from_cache(path: Path) -> None:
    """Takes the file out of the page cache; skips where the file system does not."""
    with path.open("rb") as file:
        drop_pages(file.fileno(), SIZE)


def scan(path: Path, fs: FaultFS) -> int:
    """Reads the file with advice; returns the bytes of it that are in memory afterwards."""
    with fs.open_file(path, "r") as file:
        advice = ScanAdvice(file, SIZE, fs)
        buffer = bytearray(1 << 18)
        for at in range(0, SIZE, len(buffer)):
            file.pread_into(buffer, at)
            advice.passed(min(at + len(buffer), SIZE))
        advice.done(SIZE)
        return resident_bytes(file.fileno(), SIZE)


def test_a_cold_file_is_cold_again_afterwards(path: Path) -> None:
    drop_from_cache(path)
    fs = FaultFS()
    assert scan(path, fs) < 1 << 20
    advised = [call.args[-1] for call in fs.named("advise")]
    assert advised[0] == os.POSIX_FADV_SEQUENTIAL and advised.count(os.POSIX_FADV_DONTNEED) >= 3


def test_pages_that_were_in_memory_stay(path: Path) -> None:
    drop_from_cache(path)
    tail = SIZE - DROP_BYTES
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.seek(tail)
        file.read()
    assert scan(path, FaultFS()) >= DROP_BYTES - (1 << 16)


def test_a_warm_file_gets_no_advice(path: Path) -> None:
    path.read_bytes()
    fs = FaultFS()
    assert scan(path, fs) == SIZE and not fs.named("advise")


def test_advice_that_is_refused_is_no_error(path: Path) -> None:
    drop_from_cache(path)
    fs = FaultFS()
    fs.fail("advise", code=22)
    assert scan(path, fs) > 0


def test_residency_of_a_file_that_was_cut(path: Path) -> None:
    """Pages are asked for and never touched: beyond the end of a file there is nothing, and no signal."""
    with OS.open_file(path, "r") as file:
        os.truncate(path, 100)
        assert resident_bytes(file.fileno(), 0) == 0
        assert resident_bytes(file.fileno(), SIZE) <= 1 << 16
