"""The binary format of a transaction index: aborted transactions, and checks of them (format.md section 7)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafkalog.errors import CorruptIndex, FormatError
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

VERSION: Final = 0
ENTRY_BYTES: Final = 34
MAX_TXN_INDEX_BYTES: Final = 1 << 31
LAST_OFFSET_AT: Final = 18
_WRITTEN: Final = struct.Struct(">hqqqq")
_READ: Final = struct.Struct(">bxqqqq")  # Kafka before 4.4 reads only the first byte of the version
_HINT: Final = "the log has the same transactions; recovery rebuilds the index from it"


class AbortedTxn(NamedTuple):
    """One aborted transaction: last_offset is that of its ABORT marker, last_stable_offset the log's right after it."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def packed(self) -> bytes:
        """Return the entry as written: 34 bytes."""
        return _WRITTEN.pack(*self)


class CollectedTxns(NamedTuple):
    """Aborted transactions of a range; `is_complete` says that later segments hold none of it."""

    aborted: list[AbortedTxn]
    is_complete: bool


def read_aborted_txns(
    path: str | os.PathLike[str], *, fs: FileSystem = OS, limit: int = MAX_TXN_INDEX_BYTES, strict: bool = False
) -> list[AbortedTxn]:
    """Return the entries of a `.txnindex` file, in order; FormatError for an unknown version, as `parse_aborted_txns`.

    StorageError from the system, and (EFBIG) for a file of more than `limit` bytes.
    """
    with os_errors("read the transaction index", path):
        data = fs.read_file(path, limit)
    return parse_aborted_txns(data, os.fspath(path), strict=strict)


def parse_aborted_txns(
    data: bytes, path: str | None = None, first: int = 0, *, strict: bool = False
) -> list[AbortedTxn]:
    """Return the entries in the bytes of a transaction index; ignore a partial one at the end (TXN-6, TXN-7).

    `first` is the number of the first entry, for error messages. FormatError for an unknown version: of both its
    bytes with `strict`, as in Kafka 4.4, else of the first, as before. A reader and `verify` are strict,
    since another version may have another layout, and the log has the same transactions.
    """
    whole = len(data) - len(data) % ENTRY_BYTES
    entry_struct = _WRITTEN if strict else _READ
    found = [AbortedTxn(*fields) for fields in entry_struct.iter_unpack(memoryview(data)[:whole])]
    for number, entry in enumerate(found, first):
        if entry.version > VERSION or strict and entry.version != VERSION:
            raise FormatError(
                f"entry {number} has version {entry.version}; the highest known is {VERSION}",
                path=path,
                position=number * ENTRY_BYTES,
                hint="a newer release wrote it, or the file is damaged; the log has the same transactions",
            )
    return found


def collect_aborted_txns(entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound_offset: int) -> CollectedTxns:
    """Return the transactions that end at or after `fetch_offset` and begin before `upper_bound_offset` (TXN-2).

    The result is complete after an entry that was written when everything before the upper bound was decided.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return CollectedTxns(found, True)
    return CollectedTxns(found, False)


def check_sanity(entries: Iterable[AbortedTxn], base_offset: int, path: str | None = None) -> None:
    """Raise CorruptIndex for a transaction that ended before the segment began (TXN-5)."""
    for number, entry in enumerate(entries):
        if entry.last_offset < base_offset:
            raise CorruptIndex(
                f"the aborted transaction of producer {entry.producer_id} ends at {entry.last_offset}, "
                f"before the segment's first offset {base_offset}",
                path=path,
                position=number * ENTRY_BYTES,
                hint=_HINT,
            )


def check_believable(entries: Sequence[AbortedTxn], end_offset: int, path: str | None = None) -> None:
    """Raise CorruptIndex unless ends rise, each follows its beginning, and none is at or after `end_offset`.

    This is stricter than the reference: a reader of another process's files can judge the entries only by
    themselves. For example, an append behind a partial entry leaves all later ones misaligned.
    """
    last = -1
    for number, entry in enumerate(entries):
        if not (0 <= entry.first_offset < entry.last_offset < end_offset and last < entry.last_offset):
            raise CorruptIndex(
                f"entry {number}, offsets {entry.first_offset} to {entry.last_offset}, cannot be an aborted "
                f"transaction of a segment that ends at {end_offset}",
                path=path,
                position=number * ENTRY_BYTES,
                hint=_HINT,
            )
        last = entry.last_offset
