"""Small JSON files of a data directory, each replaced as a whole."""

from __future__ import annotations

import json
import os
from typing import ClassVar, Final, Generic, TypeVar

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

T = TypeVar("T")
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


def parse_number(data: dict[str, object], name: str, least: int, most: int) -> int:
    """Return a field that must be a number in this range. ValueError."""
    value = data.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {ascii(str(value)[:40])}")
    return value
