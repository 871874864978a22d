"""`kafkalog.quorum.json`: the term of a replica set, its leader, and this node's vote.

The file lies in the first data directory, and is replaced as a whole and synced before an answer reports its content: a
node that forgot its vote could give it twice. An unreadable file aborts the start.
"""

from __future__ import annotations

import json
import os
from typing import Final, NamedTuple

from kafkalog.config.keys import MAX_INT
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write

QUORUM_FILE: Final = "kafkalog.quorum.json"
VERSION: Final = 1
NOBODY: Final = -1
_MAX_FILE_BYTES: Final = 1 << 16
_HINT: Final = "bring the file back as it was; without it this node may vote a second time in a term"


class QuorumState(NamedTuple):
    """A node's view of its set: the term, the node that leads in it, and the node it voted for; -1: none."""

    term: int
    leader: int = NOBODY
    voted_for: int = NOBODY


def format_state(state: QuorumState) -> bytes:
    """Return the file's content: JSON with a version and a final newline."""
    return (json.dumps({"version": VERSION, **state._asdict()}) + "\n").encode()


def parse_state(content: bytes) -> QuorumState:
    """Parse the file's content. ValueError names the fault."""
    data = json.loads(content.decode())
    if not isinstance(data, dict) or type(data.get("version")) is not int or data["version"] != VERSION:
        raise ValueError(f"it is no object with version {VERSION}")
    return QuorumState(
        *(_number(data, name, least) for name, least in (("term", 0), ("leader", -1), ("voted_for", -1)))
    )


def _number(data: dict[str, object], name: str, least: int) -> int:
    value = data.get(name)
    if type(value) is not int or not least <= value <= MAX_INT:
        raise ValueError(f"{name} is {ascii(str(value)[:40])}")
    return value


class QuorumFile:
    """The file of a data directory. Both calls wait for the disk."""

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.path.join(os.fspath(directory), QUORUM_FILE)
        self._fs = fs

    def read(self) -> QuorumState | None:
        """Return the stored state, or None if the file is missing. CorruptCheckpoint, StorageError."""
        try:
            content = self._fs.read_file(self.path, _MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.from_os(error, "read the term of the replica set", path=self.path) from error
        except ValueError as error:
            raise self._corrupt(error) from None
        try:
            return parse_state(content)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(error) from None

    def write(self, state: QuorumState) -> None:
        """Write the state to disk. StorageError: the old one remains."""
        try:
            atomic_write(self._fs, self.path, format_state(state))
        except OSError as error:
            raise StorageError.from_os(error, "write the term of the replica set", path=self.path) from error

    def _corrupt(self, error: Exception) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"the term of the replica set is damaged: {error}", path=self.path, hint=_HINT)
