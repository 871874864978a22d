"""File calls that differ between systems, in the form of this system.

Linux has them all. macOS has no fdatasync, posix_fallocate or posix_fadvise. Its fsync leaves the data in the drive's
cache (fsync(2) there: F_FULLFSYNC does not), and its sendfile with a count of 0 sends the whole rest of the file. A
missing call fails like a file system that does not support it, so that callers handle a single case.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

CANNOT: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Error codes of a call that the system or the file system does not support."""
READ_IN_MEMORY: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
"""Flag of `preadv` for a read that takes only what is in memory; None if the system has none."""
_FICLONE: Final = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int)
_NO_FULL_SYNC: Final = CANNOT | {errno.ENOTTY}


class SystemCalls(NamedTuple):
    """The calls, with the arguments of their Linux namesakes; data survives a power loss after `fsync`, `fdatasync`.

    `clone(target, source)` makes the empty file `target` share the current blocks of `source` until either is written
    (FICLONE). `next_data(fd, position)` is the first byte from there on outside of holes (SEEK_DATA).
    `posix_fallocate`, `advise`, `clone` and `next_data` raise OSError (EOPNOTSUPP) if the system does not have them.
    """

    fsync: Callable[[int], None]
    fdatasync: Callable[[int], None]
    posix_fallocate: Callable[[int, int, int], None]
    advise: Callable[[int, int, int, int], None]
    sendfile: Callable[[int, int, int, int], int]
    clone: Callable[[int, int], object]
    next_data: Callable[[int, int], int]
    advice_sequential: int
    advice_dont_need: int


def calls_of(system: Any, control: Any, platform: str) -> SystemCalls:
    """Return the calls of `system` (os) and `control` (fcntl) on a `platform` (sys.platform), with substitutes."""
    full = getattr(control, "F_FULLFSYNC", None)
    fsync = system.fsync if full is None else _full_sync(control.fcntl, full, system.fsync)
    return SystemCalls(
        fsync=fsync,
        fdatasync=getattr(system, "fdatasync", fsync) if full is None else fsync,
        posix_fallocate=getattr(system, "posix_fallocate", _cannot),
        advise=getattr(system, "posix_fadvise", _cannot),
        sendfile=_sendfile_of_count(system.sendfile) if platform == "darwin" else getattr(system, "sendfile", _cannot),
        clone=_clone_by(control.ioctl) if platform == "linux" else _cannot,
        next_data=_next_data_by(system) if hasattr(system, "SEEK_DATA") else _cannot,
        advice_sequential=getattr(system, "POSIX_FADV_SEQUENTIAL", 0),
        advice_dont_need=getattr(system, "POSIX_FADV_DONTNEED", 0),
    )


def _next_data_by(system: Any) -> Callable[[int, int], int]:
    return lambda fd, position: system.lseek(fd, position, system.SEEK_DATA)


def _clone_by(ioctl: Callable[[int, int, int], object]) -> Callable[[int, int], object]:
    return lambda target, source: ioctl(target, _FICLONE, source)


def _full_sync(control: Callable[[int, int], int], command: int, fsync: Callable[[int], None]) -> Callable[[int], None]:
    """Return a sync that reaches the medium, or a plain one if the file system does not support that."""

    def full_sync(fd: int) -> None:
        try:
            control(fd, command)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
            fsync(fd)

    return full_sync


def _sendfile_of_count(sendfile: Callable[[int, int, int, int], int]) -> Callable[[int, int, int, int], int]:
    def send(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        return sendfile(out_fd, in_fd, offset, count) if count > 0 else 0

    return send


def _cannot(fd: int, *arguments: int) -> NoReturn:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


SYSTEM: Final = calls_of(os, fcntl, sys.platform)
"""Calls of the system that this process runs on."""


# Record locks

_LINUX_FLOCK: Final = ("hhqqi4x", ("type", "whence", "start", "length", "pid"))
_DARWIN_FLOCK: Final = ("qqihh", ("start", "length", "pid", "type", "whence"))


def pack_flock(values: Mapping[str, int], platform: str = sys.platform) -> bytes:
    """Return the system's `struct flock` with these values; missing ones are 0."""
    layout, names = _DARWIN_FLOCK if platform == "darwin" else _LINUX_FLOCK
    return struct.pack(layout, *(values.get(name, 0) for name in names))


def unpack_flock(data: bytes, platform: str = sys.platform) -> dict[str, int]:
    """Return the values of a `struct flock`: type, whence, start, length, pid; struct.error for a wrong size."""
    layout, names = _DARWIN_FLOCK if platform == "darwin" else _LINUX_FLOCK
    return dict(zip(names, struct.unpack(layout, data), strict=True))
