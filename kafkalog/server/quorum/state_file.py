"""Small JSON files of data directories, each replaced as a whole; a copy in each directory survives an offline disk."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Generic, TypeVar

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
V = TypeVar("V", bound=tuple[object, ...])
VERSION: Final = 1
_MAX_FILE_BYTES: Final = 1 << 16


class StateFile(Generic[T]):
    """A file of a data directory. Both calls wait for the disk.

    A subclass gives the file's `name`, its `content` in words, a `hint` for damage, and the fields of a value.
    """

    name: ClassVar[str]
    content: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.path.join(os.fspath(directory), self.name)
        self._fs = fs

    def read(self) -> T | None:
        """Return the stored value, or None if the file is missing. CorruptCheckpoint, StorageError."""
        try:
            return self.parse(self._fs.read_file(self.path, _MAX_FILE_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.from_os(error, f"read {self.content}", path=self.path) from error
        except (ValueError, RecursionError) as error:
            raise CorruptCheckpoint(f"{self.content} is damaged: {error}", path=self.path, hint=self.hint) from None

    def write(self, value: T) -> None:
        """Write the value to disk. StorageError: the old one remains."""
        with os_errors(f"write {self.content}", self.path):
            atomic_write(self._fs, self.path, self.format(value))

    @classmethod
    def format(cls, value: T) -> bytes:
        """Return the file's content: JSON with a format version and a final newline."""
        return (json.dumps({"version": VERSION, **cls._fields(value)}) + "\n").encode()

    @classmethod
    def parse(cls, content: bytes) -> T:
        """Parse the file's content. ValueError names the fault."""
        data = json.loads(content.decode())
        if not isinstance(data, dict) or type(data.get("version")) is not int or data["version"] != VERSION:
            raise ValueError(f"not a JSON object of version {VERSION}")
        return cls._value(data)

    @staticmethod
    def _fields(value: T) -> dict[str, object]:
        raise NotImplementedError

    @staticmethod
    def _value(data: dict[str, object]) -> T:
        raise NotImplementedError


class StateFiles(Generic[V]):
    """Equal state files in all directories that are online. The calls wait for the disk.

    `directories` returns the paths now. Of different values, the largest is the newest: a directory that was offline
    has an older one.
    """

    def __init__(self, kind: type[StateFile[V]], directories: Callable[[], Iterable[str]], *, fs: FileSystem) -> None:
        self._kind = kind
        self._directories = directories
        self._fs = fs

    def _files(self) -> list[StateFile[V]]:
        return [self._kind(one, fs=self._fs) for one in self._directories()]

    def load(self) -> V | None:
        """Return the newest value, None if there is none, and write it where another one is. Errors as in `read`."""
        found = [one.read() for one in self._files()]
        newest = max((one for one in found if one is not None), default=None)
        if newest is not None and any(one != newest for one in found):
            self.write(newest)
        return newest

    def write(self, value: V) -> None:
        """Write the value to each directory. StorageError if none of them took it; others are logged."""
        failures: list[StorageError] = []
        files = self._files()
        for file in files:
            try:
                file.write(value)
            except StorageError as error:
                failures.append(error)
        if failures and len(failures) == len(files):
            raise failures[0]
        for one in failures:
            _LOG.warning("%s is only in the other data directories: %s", self._kind.content, one)


def parse_number(data: dict[str, object], name: str, least: int, most: int) -> int:
    """Return a field that must be a number in this range. ValueError."""
    value = data.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {ascii(str(value)[:40])}")
    return value
