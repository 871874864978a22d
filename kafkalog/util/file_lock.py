"""Locks of whole files between processes that use kafkalog: `flock`, which no broker looks at."""

from __future__ import annotations

import errno
import fcntl

from kafkalog.util.fileio import File, FileSystem


def open_locked(fs: FileSystem, path: str, mode: str) -> File | None:
    """Return the file, opened and locked exclusively until it is closed; None while another holder has the lock."""
    file = fs.open_file(path, mode)
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    return file
