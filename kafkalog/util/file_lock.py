"""Locks of whole files between processes of kafkalog (`flock`); a data directory is locked by `manager/log_dir.py`."""

from __future__ import annotations

import errno
import fcntl

from kafkalog.util.fileio import File, FileSystem


def open_locked(fs: FileSystem, path: str, mode: str, *, shared: bool = False) -> File | None:
    """Return the file, opened and locked until it is closed, exclusively or `shared`; None while another one has it."""
    file = fs.open_file(path, mode)
    try:
        fcntl.flock(file.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    return file
