"""Pages of a file in memory, for tests that need a cold one."""

import os

import pytest

from kafkalog._core.bytes.residency import absent_runs
from tests.emulation import emulated


def resident_bytes(fd: int, size: int) -> int:
    """Return how many of the first `size` bytes are in memory; skip where an emulated processor cannot ask."""
    try:
        return size - sum(length for _, length in absent_runs(fd, size))
    except OSError as error:
        if emulated():
            pytest.skip(f"the emulated mincore knows no pages without access ({error})")
        raise


def drop_pages(fd: int, size: int) -> None:
    """Takes a file out of the page cache; skips where the file system does not."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_bytes(fd, size):
        pytest.skip("this file system keeps pages despite the advice")
