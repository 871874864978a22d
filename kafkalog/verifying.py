"""`kafkalog.verify`: of directories and files of this machine, and of those that a URL names (docs/remote.md)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.remote import is_url, locate_directories
from kafkalog.tools import verify as of_files
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.verify_report import Report
from kafkalog.tools.verify_segment import Progress
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
    """The report on data directories, partition directories and single files, or on URLs of such in one store.

    `deep` decodes every record too; `indexes_only` leaves checksums out and compares indexes with batch headers.
    `threads` is one for each core by default; `progress` is called with bytes as they are passed, from any thread.

    PartitionNotFound for a path that does not exist, NotAPartition for one that is nothing of Kafka's, IllegalArgument
    for a number of threads below 1, and for directories among URLs; MissingPackage, and StorageError where the store
    cannot be reached. What lies inside never raises: what cannot be read is a finding.

    >>> log.flush()
    >>> print(verify("data", deep=True))
    1 partition, 1 segment, 92 bytes, 1 batch, 2 records: sound
    """
    fs, places = _places(paths)
    return of_files.verify(
        places, deep=deep, indexes_only=indexes_only, threads=threads, progress=progress, fs=fs
    )  # fmt: skip


def total_bytes(paths: Path | Iterable[Path]) -> int:
    """The bytes of all segment files below, for a progress bar; what cannot be looked at counts nothing."""
    fs, places = _places(paths)
    return of_files.total_bytes(places, fs)


def _places(paths: Path | Iterable[Path]) -> tuple[FileSystem, list[str]]:
    given = path_list(paths)
    return locate_directories(given) if any(map(is_url, given)) else (OS, given)
