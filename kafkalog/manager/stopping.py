"""Closing all logs of the data directories, each directory separately (MGR-19, MGR-20).

    close        every log: flushed, its producer snapshot written, its files closed
    checkpoint   recovery points, log starts, high watermarks
    marker       only if all logs were loaded and every one closed; then the lock is released
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kafkalog.manager.checkpoints import write_high_watermarks, write_log_starts, write_recovery_points
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.side_by_side import side_by_side

_LOG: Final = logging.getLogger(__name__)


def close_all(directories: Sequence[DataDirectory], threads: int) -> list[Exception]:
    """Close all directories and return the errors, in the directories' order; those with an error get no marker."""
    online = [directory for directory in directories if directory.log_dir is not None]
    found = side_by_side(lambda one: _close_directory(one, threads), online, len(online), "kafkalog-close-dir")
    return [error for errors in found for error in errors]


def _close_directory(directory: DataDirectory, threads: int) -> list[Exception]:
    log_dir = directory.online_log_dir
    logs = directory.all_logs
    errors: list[Exception] = []
    try:
        closed = side_by_side(lambda log: close_log(log_dir, log), logs, threads, "kafkalog-close")
        errors += [error for error in closed if error is not None]
        if not errors:
            write_checkpoints(directory)
    except Exception as error:
        errors.append(error)
    try:
        if errors:
            _LOG.error("%s is not cleanly closed, the next start recovers it: %s", directory.path, errors[0])
            log_dir.withhold_marker()
        directory.log_dir = None
        log_dir.release()
    except Exception as error:
        errors.append(error)
    return errors


def discard_all(directories: Sequence[DataDirectory]) -> list[Exception]:
    """Close the files of all directories and write nothing, not even a marker; return the errors."""
    errors: list[Exception] = []
    for directory in directories:
        if directory.log_dir is not None:
            log_dir, directory.log_dir = directory.online_log_dir, None
            log_dir.withhold_marker()
            for close in (*(log.close_handlers for log in directory.all_logs), log_dir.release):
                try:
                    close()
                except Exception as error:  # the other files must be closed, and the lock released
                    errors.append(error)
    return errors


def write_checkpoints(directory: DataDirectory) -> None:
    """Write recovery points, log starts and high watermarks of a directory's logs. StorageError."""
    for write in (write_recovery_points, write_log_starts, write_high_watermarks):
        write(directory.path, directory.all_logs, fs=directory.fs)


def close_log(log_dir: LogDir, log: UnifiedLog) -> Exception | None:
    """Close a log and return its error; the directory then gets no marker."""
    failure: Exception | None = None
    try:
        log.close()
    except Exception as error:
        failure = error
    log_dir.partition_closed(log.name, failure is None)
    return failure
