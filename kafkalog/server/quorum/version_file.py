"""`kafkalog.metadata.json`: how new the topics, settings, users, ACLs and quotas of a node of a replica set are.

A version is the term of a leader and how often it had changed them. What a node has is between two of them: it has all
of `complete`, and nothing that is newer than `begun`. The file lies beside that of the term, is replaced whole and
synced before an answer tells of it. A file that cannot be read ends the start.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, NamedTuple

from kafkalog.config_keys import MAX_INT, MAX_LONG
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write

VERSION_FILE: Final = "kafkalog.metadata.json"
VERSION: Final = 1
_MAX_FILE_BYTES: Final = 1 << 16
_HINT: Final = "bring the file back as it was; without it this node may vote for one that lacks what was acknowledged"

Version = tuple[int, int]
"""The term of a leader, and how often it had changed something. The larger one is newer."""
NONE: Final[Version] = (-1, 0)


class Versions(NamedTuple):
    """What is newer than `begun` is not here, and what `complete` has is; NONE as `complete`: nobody knows."""

    begun: Version = NONE
    complete: Version = NONE


def unknown(term: int) -> Versions:
    """Of a node that keeps no version yet: what it has is of leaders up to this term."""
    return Versions((term, MAX_LONG), NONE)


def format_versions(versions: Versions) -> bytes:
    """The file's content: JSON with a version of its own and a final newline."""
    tree = {name: {"term": term, "changes": changes} for name, (term, changes) in versions._asdict().items()}
    return (json.dumps({"version": VERSION, **tree}) + "\n").encode()


def parse_versions(content: bytes) -> Versions:
    """What a file's content says; ValueError says what is wrong in it."""
    data = json.loads(content.decode())
    if not isinstance(data, dict) or type(data.get("version")) is not int or data["version"] != VERSION:
        raise ValueError(f"it is no object with version {VERSION}")
    versions = Versions(_version(data, "begun"), _version(data, "complete"))
    if versions.complete > versions.begun:
        raise ValueError("what is complete has not begun")
    return versions


def _version(data: dict[str, Any], name: str) -> Version:
    tree = data.get(name)
    if not isinstance(tree, dict):
        raise ValueError(f"{name} is no object")
    return _number(tree, "term", -1, MAX_INT), _number(tree, "changes", 0, MAX_LONG)


def _number(data: dict[str, Any], name: str, least: int, most: int) -> int:
    value = data.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {ascii(str(value)[:40])}")
    return value


class VersionFile:
    """The file of a data directory. Both calls wait for the disk."""

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.path.join(os.fspath(directory), VERSION_FILE)
        self._fs = fs

    def read(self) -> Versions | None:
        """What the file says; None where there is none. CorruptCheckpoint, StorageError."""
        try:
            content = self._fs.read_file(self.path, _MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.from_os(error, "read the version of the metadata", path=self.path) from error
        except ValueError as error:
            raise self._corrupt(error) from None
        try:
            return parse_versions(content)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(error) from None

    def write(self, versions: Versions) -> None:
        """Return when the versions are on disk. StorageError: the old ones are there."""
        try:
            atomic_write(self._fs, self.path, format_versions(versions))
        except OSError as error:
            raise StorageError.from_os(error, "write the version of the metadata", path=self.path) from error

    def _corrupt(self, error: Exception) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"the version of the metadata is damaged: {error}", path=self.path, hint=_HINT)
