"""Share of a log in the page cache, and dropping its pages."""

from __future__ import annotations

import os

from kafkalog._core.bytes.residency import absent_runs
from kafkalog.util.fileio import OS, File
from kafkalog.util.system_calls import SYSTEM

_MOST_RUNS = 1 << 20


def cached_share(directory: str) -> float | None:
    """Return the share of the bytes of a partition's files that is in memory; None if unknown."""
    size = absent = 0
    for file in _files(directory):
        with file:
            length = file.size()
            try:
                absent += sum(min(run, length - at) for at, run in absent_runs(file.fileno(), length, _MOST_RUNS))
            except OSError:
                return None
            size += length
    return 1 - absent / size if size else None


def drop_pages(directory: str, *, sync: bool) -> None:
    """Ask the system to drop cached pages of a partition's files, after a `sync`, since it keeps unsynced pages.

    `cached_share` shows the effect: a file system in memory cannot drop pages.
    """
    for file in _files(directory):
        with file:
            try:
                if sync:
                    file.sync()
                OS.advise(file.fileno(), 0, 0, SYSTEM.advice_dont_need)
            except OSError:
                continue


def _files(directory: str) -> list[File]:
    """Return the regular files, opened for reading, without files that were deleted meanwhile."""
    found = []
    try:
        for name in OS.names(directory):
            try:
                found.append(OS.open_file(os.path.join(directory, name), "r"))
            except OSError:
                continue
    except OSError:
        return []
    return found
