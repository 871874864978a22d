"""Errors of the operating system as StorageErrors, and the calls that every tool makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog.errors import StorageError
from kafkalog.util.fileio import FileSystem


@contextmanager
def os_errors(action: str, path: str, position: int | None = None) -> Iterator[None]:
    """Convert an OSError of the block to a StorageError that names the action and the file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError.from_os(error, action, path=path, position=position) from error


def list_names(directory: str, fs: FileSystem) -> list[str]:
    """Return the names in a directory, sorted. StorageError."""
    with os_errors("list", directory):
        return sorted(fs.listdir(directory))
