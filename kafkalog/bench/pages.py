"""How much of a log the page cache holds, and a log without it."""

from __future__ import annotations

import os

from kafkalog._core.residency import absent_runs
from kafkalog.util.fileio import OS, File
from kafkalog.util.system_calls import SYSTEM

__all__ = ["cached_share", "drop_pages"]

_MOST_RUNS = 1 << 20


def cached_share(directory: str) -> float | None:
    """The share of the bytes of a partition's files that is in memory; None where it cannot be told."""
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
    """Asks the system to forget what it holds of a partition's files; after a `sync`, for it keeps what is not on disk.

    Whether it did, `cached_share` tells: a file system in memory cannot.
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
    """The regular files, open to read; those that went away meanwhile are left out."""
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
