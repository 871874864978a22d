"""The topic id of a partition directory: `partition.metadata` (format.md §8, CKPT-8)."""

from __future__ import annotations

import base64
import os
import re
from errno import ENOENT
from typing import Final

from kafkalog.errors import CorruptCheckpoint, IllegalArgument, InconsistentTopicId, StorageError
from kafkalog.storage.names import PARTITION_METADATA
from kafkalog.util.checkpoint import whole_number
from kafkalog.util.fileio import FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

VERSION: Final = 0
ID_LENGTH: Final = 22
_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{{ID_LENGTH}}}")
MAX_FILE_BYTES: Final = 64 * 1024
_RESERVED: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
_HINT: Final = "move the file away: the next opening for writing creates it again"


def new_topic_id() -> str:
    """Return a new topic id: a random uuid in 22 characters of url-safe base64, not beginning with a dash."""
    from uuid import uuid4

    while True:
        raw = uuid4().bytes
        text = base64.urlsafe_b64encode(raw).decode()[:ID_LENGTH]
        if raw not in _RESERVED and not text.startswith("-"):
            return text


def check_topic_id(text: str) -> str:
    """Return the id as the reference writes it; IllegalArgument unless it is 22 characters of base64, not zero.

    The last character has four bits too many, which the reference ignores.
    """
    if not _ID.fullmatch(text):
        raise IllegalArgument(f"{ascii(text[:80])} is not a topic id: it must be 22 characters of url-safe base64")
    raw = base64.urlsafe_b64decode(text + "==")
    if raw == bytes(16):
        raise IllegalArgument("the topic id is zero")
    return base64.urlsafe_b64encode(raw).decode()[:ID_LENGTH]


def read_partition_metadata(fs: FileSystem, directory: str | os.PathLike[str]) -> str | None:
    """Return the topic id of a partition directory; None if the file is missing. Later lines are ignored.

    CorruptCheckpoint for a negative version, a zero id, or a malformed line.
    """
    path = os.path.join(directory, PARTITION_METADATA)
    content = read_if_present(path, MAX_FILE_BYTES, "read the topic id", fs)
    if content is None:
        return None
    lines = content.decode("utf-8", "replace").splitlines()
    try:
        if whole_number(_field(lines, 0, "version")) < 0:
            raise ValueError("the version is negative")
        return check_topic_id(_field(lines, 1, "topic_id"))
    except ValueError as error:
        reason = error.message if isinstance(error, IllegalArgument) else str(error)
        raise CorruptCheckpoint(f"malformed partition.metadata: {reason}", path=path, hint=_HINT) from None


def write_partition_metadata(fs: FileSystem, directory: str | os.PathLike[str], topic_id: str) -> None:
    """Write the topic id to a partition directory that has none, through a temporary file and a rename.

    InconsistentTopicId if another id exists. A missing directory is ignored, since its topic was deleted.
    StorageError if the file system fails.
    """
    topic_id = check_topic_id(topic_id)
    path = os.path.join(directory, PARTITION_METADATA)
    present = read_partition_metadata(fs, directory)
    if present == topic_id:
        return
    if present is not None:
        raise InconsistentTopicId(
            f"the partition belongs to topic id {present}, not {topic_id}",
            path=path,
            hint="the topic was deleted and created again: use the directory of the new one",
        )
    try:
        replace_topic_id(fs, directory, topic_id)
    except StorageError as error:
        if error.errno != ENOENT or fs.exists(directory):
            raise


def replace_topic_id(fs: FileSystem, directory: str | os.PathLike[str], topic_id: str) -> None:
    """Assign a partition directory to another topic; the caller has exclusive access to it. StorageError."""
    path = os.path.join(directory, PARTITION_METADATA)
    with os_errors("write the topic id", path):
        atomic_write(fs, path, format_partition_metadata(check_topic_id(topic_id)))


def format_partition_metadata(topic_id: str) -> bytes:
    """Return the file's content for a topic id."""
    return f"version: {VERSION}\ntopic_id: {topic_id}".encode()


def _field(lines: list[str], index: int, name: str) -> str:
    """Return the value of the line `<name>: <value>` at `index`; ValueError if the line is missing or different."""
    if index >= len(lines):
        raise ValueError(f"the line '{name}: ...' is missing")
    found, colon, value = lines[index].partition(":")
    if not colon or found.strip() != name:
        raise ValueError(f"line {index + 1} is {ascii(lines[index][:80])}, '{name}: ...' is expected")
    return value.strip()
