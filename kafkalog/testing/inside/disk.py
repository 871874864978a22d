"""The file calls of a test's server: the disk can be full, and a temporary directory is never synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TestDisk(FileSystem):
    """The system's calls; while `is_full`, those that need space raise ENOSPC.

    Without `syncs`, data reaches only the page cache: it survives the server's `kill -9`, but no power loss.
    """

    __test__ = False

    def __init__(self, *, syncs: bool = True) -> None:
        self.is_full = False
        if not syncs:
            for name in ("fsync", "fdatasync"):
                setattr(self, name, _no_sync)

    def _check_room(self, path: str = "") -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path or None)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        """Open a file; a new one needs space."""
        if self.is_full and flags & os.O_CREAT and not os.path.exists(path):
            self._check_room(path)
        return os.open(path, flags, mode)

    def pwrite(self, fd: int, data: Buffer, offset: int) -> int:
        """Write at a position."""
        if self.is_full:
            self._check_room()
        return os.pwrite(fd, data, offset)

    def pwritev(  # type: ignore[override]
        self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0
    ) -> int:
        """Write several buffers at a position."""
        if self.is_full:
            self._check_room()
        return os.pwritev(fd, buffers, offset, flags)

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        """Reserve space."""
        self._check_room()
        os.posix_fallocate(fd, offset, length)

    def mkdir(self, path: str, mode: int = 0o777) -> None:  # type: ignore[override]
        """Create a directory."""
        self._check_room(path)
        os.mkdir(path, mode)


def _no_sync(fd: int) -> None:
    """Do nothing."""
