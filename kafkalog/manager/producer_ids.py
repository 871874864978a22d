"""The next producer id of a data directory without a broker: one number, in a separate file.

A broker asks its controller for a block of ids. Here the file is written before the first id of a block is assigned, so
that no id is assigned twice, even after a crash. The unused ids of a block are lost, as with a broker.
"""

from __future__ import annotations

import json
import os
from typing import Final

from kafkalog.errors import CorruptCheckpoint
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

PRODUCER_IDS_FILE: Final = "kafkalog.producer-ids.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 4096
MAX_PRODUCER_ID: Final = 2**63 - 1
_HINT: Final = "write the first unused producer id into it, or move it away: then the logs are searched"


def read_next_producer_id(directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> int:
    """Return the first unassigned producer id; 0 if there is no file. CorruptCheckpoint, StorageError."""
    path = os.path.join(os.fspath(directory), PRODUCER_IDS_FILE)
    content = read_if_present(path, MAX_FILE_BYTES, "read the producer id file", fs)
    if content is None:
        return 0
    try:
        data = json.loads(content)
        version, number = data["version"], data["next_producer_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CorruptCheckpoint("the producer id file is damaged", path=path, hint=_HINT) from None
    if type(version) is not int or version != VERSION:
        raise CorruptCheckpoint(f"version {version!r} of the producer id file is unknown", path=path)
    if type(number) is not int or not 0 <= number <= MAX_PRODUCER_ID:
        raise CorruptCheckpoint(f"the producer id file contains {number!r}", path=path, hint=_HINT)
    return number


def write_next_producer_id(directory: str | os.PathLike[str], number: int, *, fs: FileSystem = OS) -> None:
    """Write to disk that ids below `number` may have been assigned. StorageError."""
    path = os.path.join(os.fspath(directory), PRODUCER_IDS_FILE)
    content = json.dumps({"version": VERSION, "next_producer_id": number}) + "\n"
    with os_errors("write the producer id file", path):
        atomic_write(fs, path, content.encode())
