"""Errors of the operating system as StorageErrors, and the calls that many modules make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.util.fileio import FileSystem


class os_errors:
    """A context that converts an OSError of its block to a StorageError that names the action and the file.

    It is a class since a generator takes several times as long to enter and to leave.
    """

    __slots__ = ("_action", "_path", "_position")

    def __init__(self, action: str, path: str | os.PathLike[str] | None = None, position: int | None = None) -> None:
        self._action = action
        self._path = path
        self._position = position

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, KafkalogError):
            raise StorageError.from_os(error, self._action, path=self._path, position=self._position) from error


def list_names(directory: str, fs: FileSystem) -> list[str]:
    """Return the names in a directory, sorted. StorageError."""
    with os_errors("list", directory):
        return sorted(fs.listdir(directory))


def walk(directory: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what `os.walk` yields; StorageError for a directory that cannot be read, which os.walk leaves out."""
    return os.walk(directory, onerror=_raise_unread)


def _raise_unread(error: OSError) -> NoReturn:
    raise StorageError.from_os(error, "read the directory") from error


def read_if_present(path: str, limit: int, action: str, fs: FileSystem) -> bytes | None:
    """Return the content of a file of at most `limit` bytes; None if there is none. StorageError names the action."""
    with os_errors(action, path):
        try:
            return fs.read_file(path, limit)
        except FileNotFoundError:
            return None
