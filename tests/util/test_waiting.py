"""Reads that take only what is in memory, and locks that are taken only if they are free."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.guards import run_finalizer
from kafkalog.util.system_calls import READ_IN_MEMORY
from kafkalog.util.waiting import MustWait, at_once, check_may_wait, held, may_wait

Answer = Callable[[int, Any, int], int]


def file_with(path: Path, answer: Answer | None = None) -> File:
    """Return a file with "0123456789"; `answer` replaces the system's read of what is in memory."""

    class Memory(FileSystem):
        def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:  # type: ignore[override]
            assert flags == READ_IN_MEMORY
            return os.preadv(fd, buffers, position, flags) if answer is None else answer(fd, buffers, position)

    (path / "f").write_bytes(b"0123456789")
    return Memory().open_file(path / "f", "r")


def failing(code: int) -> Answer:
    def answer(fd: int, buffers: Any, position: int) -> int:
        raise OSError(code, os.strerror(code))

    return answer


def test_a_read_outside_of_at_once_may_wait(tmp_path: Path) -> None:
    with file_with(tmp_path, failing(errno.EAGAIN)) as file:
        assert file.pread_at_once(4, 2) == b"2345"


@pytest.mark.skipif(READ_IN_MEMORY is None, reason="this system has no such read")
def test_a_read_takes_what_is_in_memory(tmp_path: Path) -> None:
    with file_with(tmp_path) as file:
        assert at_once(file.pread_at_once, 4, 2) == b"2345"


@pytest.mark.skipif(READ_IN_MEMORY is None, reason="this system has no such read")
@pytest.mark.parametrize("answer", [failing(errno.EAGAIN), lambda fd, buffers, position: 3])
def test_a_read_of_data_that_is_not_all_in_memory_must_wait(tmp_path: Path, answer: Answer) -> None:
    with file_with(tmp_path, answer) as file, pytest.raises(MustWait):
        at_once(file.pread_at_once, 4, 2)


def test_data_counts_as_in_memory_if_the_file_system_cannot_tell(tmp_path: Path) -> None:
    with file_with(tmp_path, failing(errno.EOPNOTSUPP)) as file:
        assert at_once(file.pread_at_once, 4, 2) == b"2345"


@pytest.mark.skipif(READ_IN_MEMORY is None, reason="this system has no such read")
def test_a_failed_read_is_an_error(tmp_path: Path) -> None:
    with file_with(tmp_path, failing(errno.EIO)) as file, pytest.raises(OSError, match="error"):
        at_once(file.pread_at_once, 4, 2)


def test_only_at_once_forbids_a_wait() -> None:
    check_may_wait()
    with pytest.raises(MustWait):
        at_once(check_may_wait)
    check_may_wait()


def test_other_threads_may_wait_meanwhile() -> None:
    modes: list[bool] = []

    def ask() -> None:
        thread = threading.Thread(target=lambda: modes.append(may_wait()))
        thread.start()
        thread.join()

    at_once(ask)
    assert modes == [True]


def test_calls_within_calls_may_not_wait_either() -> None:
    def nested() -> None:
        at_once(lambda: None)
        check_may_wait()

    with pytest.raises(MustWait):
        at_once(nested)


def test_a_finalizer_may_wait() -> None:
    """A garbage collection within `at_once` may drop an unclosed log, whose closing opens files."""
    modes: list[bool] = []
    is_done = threading.Event()

    def close() -> None:
        modes.append(may_wait())
        is_done.set()

    at_once(run_finalizer, close)
    assert is_done.wait(60)
    assert modes == [True]


def test_a_lock_of_another_thread_must_be_waited_for() -> None:
    lock = threading.Lock()

    def use() -> None:
        with held(lock):
            assert lock.locked()

    at_once(use)
    assert not lock.locked()
    with lock, pytest.raises(MustWait):
        at_once(use)
