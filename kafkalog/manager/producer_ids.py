"""Which producer ids a data directory without a broker has given out: one number, in a file of its own.

A broker asks its controller for a block of ids; here the file is written before the first id of a block is given, so
that no id is given twice, whatever becomes of the process. The numbers of a broken block are lost, as there.
"""

from __future__ import annotations

import json
import os
from typing import Final

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.util.fileio import OS, FileSystem, atomic_write

PRODUCER_IDS_FILE: Final = "kafkalog.producer-ids.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 4096
MAX_PRODUCER_ID: Final = 2**63 - 1
_HINT: Final = "write the first producer id that no producer has into it, or move it away: then the logs are asked"


def read_next_producer_id(directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> int:
    """The first producer id that was not given out; 0 where there is no file. CorruptCheckpoint, StorageError."""
    path = os.path.join(os.fspath(directory), PRODUCER_IDS_FILE)
    try:
        content = fs.read_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError.from_os(error, "read the file of producer ids", path=path) from error
    try:
        data = json.loads(content)
        version, number = data["version"], data["next_producer_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CorruptCheckpoint("the file of producer ids is damaged", path=path, hint=_HINT) from None
    if type(version) is not int or version != VERSION:
        raise CorruptCheckpoint(f"version {version!r} of the file of producer ids is not known", path=path)
    if type(number) is not int or not 0 <= number <= MAX_PRODUCER_ID:
        raise CorruptCheckpoint(f"the file of producer ids says {number!r}", path=path, hint=_HINT)
    return number


def write_next_producer_id(directory: str | os.PathLike[str], number: int, *, fs: FileSystem = OS) -> None:
    """Says that ids below `number` may have been given out; on disk when this returns. StorageError."""
    path = os.path.join(os.fspath(directory), PRODUCER_IDS_FILE)
    content = json.dumps({"version": VERSION, "next_producer_id": number}) + "\n"
    try:
        atomic_write(fs, path, content.encode())
    except OSError as error:
        raise StorageError.from_os(error, "write the file of producer ids", path=path) from error
