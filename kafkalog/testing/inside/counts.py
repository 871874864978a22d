"""Counts of rules, shared by all nodes of a cluster: the n-th call is the n-th of the whole cluster.

The file has two 64-bit numbers for each rule, by its number: calls that matched, and calls that were changed. Each node
maps it; a lock of the file makes an update of several processes one step.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SLOTS: Final = 1 << 18
"""For the faults of a whole session of tests; the file is sparse."""
_ROW: Final = struct.Struct("=qq")


class RuleCounts:
    """The mapped file. Threads: reads may overlap with anything, `change` is for one thread of a process."""

    def __init__(self, path: str | Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._fd).st_size < SLOTS * _ROW.size:
                os.ftruncate(self._fd, SLOTS * _ROW.size)
            self._view = mmap.mmap(self._fd, SLOTS * _ROW.size)
        except BaseException:
            os.close(self._fd)
            raise

    def read(self, number: int) -> tuple[int, int]:
        """Return how many calls matched a rule, and how many of them it changed."""
        matched, fired = _ROW.unpack_from(self._view, number * _ROW.size)
        return matched, fired

    @contextmanager
    def change(self) -> Iterator[Callable[[int, int, int], None]]:
        """Let no other process change counts in the block; yield a function that sets matched and changed of a rule."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield self._write
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _write(self, number: int, matched: int, fired: int) -> None:
        _ROW.pack_into(self._view, number * _ROW.size, matched, fired)

    def close(self) -> None:
        """Unmap the file."""
        if self._fd >= 0:
            self._view.close()
            os.close(self._fd)
            self._fd = -1
