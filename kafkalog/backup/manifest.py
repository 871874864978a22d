"""Description of a backup: `kafkalog.backup.json`, one JSON document, and `SHA256SUMS` beside it.

The document has the partitions with their offsets, topics with their settings, committed offsets of groups, and each
file with its length, checksum and origin. Its content is not trusted: paths must stay inside the backup, numbers must
be numbers, and anything else is a CorruptBackup that says where.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import MAXYEAR, datetime
from typing import Any, Final, NamedTuple

from kafkalog.errors import CorruptBackup, KafkalogError
from kafkalog.storage.names import validate_partition, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import read_if_present

MANIFEST: Final = "kafkalog.backup.json"
SUMS: Final = "SHA256SUMS"
VERSION: Final = 1
SET_ASIDE: Final = ".backup"
"""Suffix of `meta.properties` in a backup, so that a broker started on a backup finds no directory of its own.

The controller of such a broker would not check the lock file before it writes.
"""
MAX_BYTES: Final = 1 << 30
"""Maximum size of a valid manifest in bytes; each file takes about 250 bytes in it."""
_FORMAT: Final = "kafkalog backup"
_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_DIRECTORY: Final = re.compile(r"dir[0-9]{1,4}")
_SUM: Final = re.compile(r"[0-9a-f]{64}")
_MAX: Final = 2**63 - 1
_HINT: Final = "use another backup: `kafkalog backup list` shows them"


class Identity(NamedTuple):
    """Values that identify an unchanged file: device, inode, length, and times in ns."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Return the identity of the file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class StoredFile(NamedTuple):
    """A file of a backup: its path in it with `/`, length, checksum, modification time, and its original's identity.

    `is_private`: only its owner may read it. `identity` is None if the original could change without showing it.
    """

    path: str
    size: int
    sha256: str
    mtime_ns: int
    is_private: bool = False
    identity: Identity | None = None


class StoredPartition(NamedTuple):
    """A partition of a backup: the number of its data directory there, and its offsets.

    `topic_id` is None if it has none, `high_watermark` if no checkpoint has it; `size` counts bytes of segment files.
    """

    topic: str
    partition: int
    directory: int
    topic_id: str | None
    start_offset: int
    end_offset: int
    high_watermark: int | None
    segments: int
    size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic and partition number."""
        return TopicPartition(self.topic, self.partition)


class StoredDirectory(NamedTuple):
    """A data directory of a backup: its name there, its origin, and its close state (clean or not)."""

    name: str
    source: str
    is_clean: bool


LACKS_GROUPS: Final = "the manifest lacks group offsets: "
"""Beginning of the note, before the reason, of a manifest whose `groups` are empty because they are damaged."""
Offsets = dict[str, dict[str, dict[int, int]]]
"""Committed offsets by group, topic and partition."""


class Manifest(NamedTuple):
    """Description of a backup; `topics` are settings by topic, `notes` irregularities found while copying.

    `redactions` counts how often records of it were redacted.
    """

    id: str
    created_ms: int
    writer: str
    directories: tuple[StoredDirectory, ...]
    partitions: tuple[StoredPartition, ...]
    topics: Mapping[str, Mapping[str, str]]
    groups: Offsets
    notes: tuple[str, ...]
    files: tuple[StoredFile, ...]
    redactions: int = 0

    @property
    def size(self) -> int:
        """Total size of its files in bytes; shared files count in each backup."""
        return sum(file.size for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's document, with a line for each file."""
    rest = {
        "format": _FORMAT,
        "version": VERSION,
        "id": manifest.id,
        "created_ms": manifest.created_ms,
        "writer": manifest.writer,
        "directories": [one._asdict() for one in manifest.directories],
        "partitions": [one._asdict() for one in manifest.partitions],
        "topics": {name: dict(settings) for name, settings in sorted(manifest.topics.items())},
        "groups": manifest.groups,
        "notes": list(manifest.notes),
    }
    if manifest.redactions:
        rest["redactions"] = manifest.redactions
    head = json.dumps(rest, indent=1).removesuffix("\n}")
    files = b",\n".join(file_line(file).rstrip() for file in manifest.files)
    return head.encode() + b',\n "files": [\n' + files + b"\n]\n}\n"


def file_line(file: StoredFile) -> bytes:
    """Return one file's document as a separate line."""
    return json.dumps(file._asdict(), separators=(",", ":")).encode() + b"\n"


def sums_of(files: tuple[StoredFile, ...], manifest_sum: str) -> bytes:
    """Return the lines that `sha256sum -c` reads, those of the manifest last."""
    lines = [f"{file.sha256}  {file.path}\n" for file in files]
    return "".join([*lines, f"{manifest_sum}  {MANIFEST}\n"]).encode()


def is_id(name: str) -> bool:
    """Return True if the name is a valid backup id: a time in UTC, before the last year that has one."""
    if _ID.fullmatch(name) is None:
        return False
    try:
        return datetime.strptime(name, ID_FORMAT).year < MAXYEAR
    except ValueError:
        return False


def is_sum(name: str) -> bool:
    """Return True if the name is a SHA-256 sum."""
    return _SUM.fullmatch(name) is not None


def read_manifest(directory: str, fs: FileSystem) -> Manifest:
    """Read the manifest of the backup in `directory`; CorruptBackup, StorageError."""
    path = os.path.join(directory, MANIFEST)
    content = read_if_present(path, MAX_BYTES, "read the backup's manifest", fs)
    if content is None:
        raise CorruptBackup("the backup has no manifest", path=path, hint=_HINT)
    return parse_manifest(content, path)


def parse_manifest(content: bytes, path: str) -> Manifest:
    """Parse a manifest; CorruptBackup if it is invalid."""
    try:
        return _manifest(json.loads(content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, KafkalogError) as error:
        raise CorruptBackup(f"the backup's manifest cannot be read: {error}", path=path, hint=_HINT) from None


def parse_file_line(line: bytes) -> StoredFile | None:
    """Parse a line of `file_line`; None for an invalid or truncated line."""
    try:
        return _file(json.loads(line))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, KafkalogError):
        return None


def _manifest(document: Any) -> Manifest:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']!r} is unknown")
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']!r} is not supported, {VERSION} is")
    if not is_id(_text(document["id"])):
        raise ValueError("its id is invalid")
    directories = tuple(_directory(one) for one in document["directories"])
    return Manifest(
        document["id"],
        _whole(document["created_ms"]),
        _text(document["writer"]),
        directories,
        tuple(_partition(one, len(directories)) for one in document["partitions"]),
        {validate_topic(name): _settings(found) for name, found in document["topics"].items()},
        {_text(group): _offsets(found) for group, found in document["groups"].items()},
        tuple(_text(note) for note in document["notes"]),
        tuple(_file(one) for one in document["files"]),
        _whole(document.get("redactions", 0)),
    )


def _directory(document: Mapping[str, object]) -> StoredDirectory:
    name = _text(document["name"])
    if _DIRECTORY.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a data directory of a backup")
    return StoredDirectory(name, _text(document["source"]), document["is_clean"] is True)


def _partition(document: Any, directories: int) -> StoredPartition:
    number = _whole(document["directory"])
    if number >= directories:
        raise ValueError(f"data directory {number} of {directories}")
    topic_id, mark = document["topic_id"], document["high_watermark"]
    return StoredPartition(
        validate_topic(document["topic"]),
        validate_partition(document["partition"]),
        number,
        None if topic_id is None else _text(topic_id),
        _whole(document["start_offset"]),
        _whole(document["end_offset"]),
        None if mark is None else _whole(mark),
        _whole(document["segments"]),
        _whole(document["size"]),
    )


def _settings(document: Mapping[object, object]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in document.items()}


def _offsets(document: Any) -> dict[str, dict[int, int]]:
    return {
        validate_topic(topic): {validate_partition(int(number)): _whole(at) for number, at in found.items()}
        for topic, found in document.items()
    }


def _file(document: Any) -> StoredFile:
    checksum = _text(document["sha256"])
    if not is_sum(checksum):
        raise ValueError(f"{checksum[:80]!r} is not a SHA-256 sum")
    identity = document["identity"]
    return StoredFile(
        safe_path(document["path"]),
        _whole(document["size"]),
        checksum,
        _whole(document["mtime_ns"]),
        document["is_private"] is True,
        None if identity is None else Identity(*(_whole(number, 2**64 - 1) for number in identity)),
    )


def safe_path(path: object) -> str:
    """Return the path if it leads to a file inside a data directory of the backup; ValueError otherwise."""
    parts = _text(path).split("/")
    is_plain = all(part not in ("", ".", "..") and part.isprintable() and "\\" not in part for part in parts)
    if not is_plain or not 2 <= len(parts) <= 3 or _DIRECTORY.fullmatch(parts[0]) is None:
        raise ValueError(f"{ascii(path)[:200]} is not a path in a backup")
    return str(path)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{ascii(value)[:80]} is not a string")
    return value


def _whole(value: object, most: int = _MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{ascii(value)[:80]} is not a number from 0 to {most}")
    return value
