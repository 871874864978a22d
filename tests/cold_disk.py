"""A file system whose data is not in memory: each read of it waits at a gate."""

from __future__ import annotations

import os
import threading
from typing import Any

from kafkalog.util.fileio import FileSystem
from kafkalog.util.system_calls import READ_IN_MEMORY
from tests.gates import PATIENCE_S


class ColdDisk(FileSystem):
    """While `is_cold`, opening and reading a file of the directory `name` waits for `warm_up`.

    A call of the thread that began the cold time does not wait, since nothing could end its wait: it is noted in
    `in_loop`, and `has_waited` is set by one in another thread.
    """

    def __init__(self, name: str) -> None:
        self.in_loop: list[str] = []
        self.has_waited = threading.Event()
        self.is_cold = False
        self._name = name
        self._loop = 0
        self._is_warm = threading.Event()

    def cool_down(self) -> None:
        self._loop = threading.get_ident()
        self.is_cold = True

    def warm_up(self) -> None:
        self.is_cold = False
        self._is_warm.set()

    def _wait(self, call: str, path: str) -> None:
        if not self.is_cold or os.path.basename(os.path.dirname(path)) != self._name:
            return
        if threading.get_ident() == self._loop:
            self.in_loop.append(f"{call} {os.path.basename(path)}")
            return
        self.has_waited.set()
        assert self._is_warm.wait(PATIENCE_S), "the disk stayed cold"

    def open(self, path: Any, *args: Any, **named: Any) -> int:  # type: ignore[override]
        self._wait("open", os.fspath(path))
        return os.open(path, *args, **named)

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        self._wait("pread", _path_of(fd))
        return os.pread(fd, size, position)

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:  # type: ignore[override]
        path = _path_of(fd)
        if flags != READ_IN_MEMORY:
            self._wait("preadv", path)
        elif self.is_cold and os.path.basename(os.path.dirname(path)) == self._name:
            raise BlockingIOError
        return os.preadv(fd, buffers, position, flags)


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
