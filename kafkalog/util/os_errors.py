"""Errors of the operating system as StorageErrors, and the calls that many modules make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.util.fileio import FileSystem


@contextmanager
def os_errors(
    action: str, path: str | os.PathLike[str] | None = None, position: int | None = None
) -> Iterator[None]:
    """Convert an OSError of the block to a StorageError that names the action and the file."""
    try:
        yield
    except KafkalogError:
        raise
    except OSError as error:
        raise StorageError.from_os(error, action, path=path, position=position) from error


def list_names(directory: str, fs: FileSystem) -> list[str]:
    """Return the names in a directory, sorted. StorageError."""
    with os_errors("list", directory):
        return sorted(fs.listdir(directory))


def read_if_present(path: str, limit: int, action: str, fs: FileSystem) -> bytes | None:
    """Return the content of a file of at most `limit` bytes; None if there is none. StorageError names the action."""
    with os_errors(action, path):
        try:
            return fs.read_file(path, limit)
        except FileNotFoundError:
            return None
