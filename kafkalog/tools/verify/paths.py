"""`kafkalog.verify`: verify directories and files of this machine, or at URLs (docs/remote.md)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.storage.remote import is_url, locate_directories
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.verify import directories as of_files
from kafkalog.tools.verify.report import Report
from kafkalog.tools.verify.segment import Progress
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["total_bytes", "verify"]


def verify(
    paths: Path | Iterable[Path],
    *,
    deep: bool = False,
    indexes_only: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check data directories, partition directories and files, or their URLs in one store; return a report.

    `deep` decodes every record too; `indexes_only` skips checksums and compares indexes with batch headers. `threads`
    is one for each core by default; `progress` is called with the bytes checked, from any thread.

    Raises PartitionNotFound for a missing path, NotAPartition for a path without files of Kafka, IllegalArgument for
    fewer than 1 thread, and for directories among URLs; MissingPackage; StorageError if the store cannot be reached.
    Damaged or unreadable data is a finding in the report and never raised.

    >>> log.flush()
    >>> print(verify("data", deep=True))
    1 partition, 1 segment, 92 bytes, 1 batch, 2 records: sound
    """
    fs, places = _places(paths)
    return of_files.verify(
        places, deep=deep, indexes_only=indexes_only, threads=threads, progress=progress, fs=fs
    )  # fmt: skip


def total_bytes(paths: Path | Iterable[Path]) -> int:
    """Return the bytes of all segment files below `paths`, for a progress bar; unreadable files count 0."""
    fs, places = _places(paths)
    return of_files.total_bytes(places, fs)


def _places(paths: Path | Iterable[Path]) -> tuple[FileSystem, list[str]]:
    given = path_list(paths)
    return locate_directories(given) if any(map(is_url, given)) else (OS, given)
