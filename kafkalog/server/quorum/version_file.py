"""`kafkalog.metadata.json`: version of the topics, settings, users, ACLs and quotas of a node of a replica set.

A version is a leader's term and its number of changes in that term. A node's data is between two versions: it has all
of `complete`, and nothing newer than `begun`. The file lies beside the term's file, and is replaced as a whole and
synced before an answer reports it. An unreadable file aborts the start.
"""

from __future__ import annotations

import json
import os
from typing import Final, NamedTuple

from kafkalog.config.keys import MAX_INT, MAX_LONG
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write

VERSION_FILE: Final = "kafkalog.metadata.json"
VERSION: Final = 1
_MAX_FILE_BYTES: Final = 1 << 16
_HINT: Final = "bring the file back as it was; without it this node may vote for one that lacks what was acknowledged"

Version = tuple[int, int]
"""A leader's term and its number of changes. The larger version is newer."""
NONE: Final[Version] = (-1, 0)


class Versions(NamedTuple):
    """The node has all of `complete` and nothing newer than `begun`; a `complete` of NONE means unknown."""

    begun: Version = NONE
    complete: Version = NONE


def unknown(term: int) -> Versions:
    """Return the versions of a node that stores none yet: its data is of leaders up to this term."""
    return Versions((term, MAX_LONG), NONE)


def format_versions(versions: Versions) -> bytes:
    """Return the file's content: JSON with a format version and a final newline."""
    tree = {name: {"term": term, "changes": changes} for name, (term, changes) in versions._asdict().items()}
    return (json.dumps({"version": VERSION, **tree}) + "\n").encode()


def parse_versions(content: bytes) -> Versions:
    """Parse the file's content. ValueError names the fault."""
    data = json.loads(content.decode())
    if not isinstance(data, dict) or type(data.get("version")) is not int or data["version"] != VERSION:
        raise ValueError(f"it is no object with version {VERSION}")
    versions = Versions(_version(data, "begun"), _version(data, "complete"))
    if versions.complete > versions.begun:
        raise ValueError("what is complete has not begun")
    return versions


def _version(data: dict[str, object], name: str) -> Version:
    tree = data.get(name)
    if not isinstance(tree, dict):
        raise ValueError(f"{name} is no object")
    return _number(tree, "term", -1, MAX_INT), _number(tree, "changes", 0, MAX_LONG)


def _number(data: dict[str, object], name: str, least: int, most: int) -> int:
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
        """Return the stored versions, or None if the file is missing. CorruptCheckpoint, StorageError."""
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
        """Write the versions to disk. StorageError: the old ones remain."""
        try:
            atomic_write(self._fs, self.path, format_versions(versions))
        except OSError as error:
            raise StorageError.from_os(error, "write the version of the metadata", path=self.path) from error

    def _corrupt(self, error: Exception) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"the version of the metadata is damaged: {error}", path=self.path, hint=_HINT)
