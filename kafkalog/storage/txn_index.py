"""The transaction index of a segment: its aborted transactions (format.md section 7)."""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

from kafkalog.errors import FormatError, StorageError
from kafkalog.util.fileio import OS, FileSystem

VERSION: Final = 0
ENTRY_BYTES: Final = 34
MAX_TXN_INDEX_BYTES: Final = 1 << 31
# the reference looks at the first byte of the version only
_ENTRY: Final = struct.Struct(">bxqqqq")


class AbortedTxn(NamedTuple):
    """One aborted transaction: last_offset is its ABORT marker's, last_stable_offset the log's right after it."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_aborted_txns(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> list[AbortedTxn]:
    """The entries of a `.txnindex` file, in order; StorageError, or FormatError for a version that is not known."""
    try:
        data = fs.read_file(path, MAX_TXN_INDEX_BYTES)
    except OSError as error:
        raise StorageError.from_os(error, "read the transaction index", path=path) from error
    return parse_aborted_txns(data, os.fspath(path))


def parse_aborted_txns(data: bytes, path: str | None = None) -> list[AbortedTxn]:
    """The entries of a transaction index's bytes; a partial one at the end is not looked at."""
    whole = len(data) - len(data) % ENTRY_BYTES
    found = [AbortedTxn(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[:whole])]
    for number, entry in enumerate(found):
        if entry.version > VERSION:
            raise FormatError(
                f"entry {number} has version {entry.version}, known is {VERSION}",
                path=path,
                position=number * ENTRY_BYTES,
                hint="a newer release wrote it, or the file is damaged; the log has the same transactions",
            )
    return found
