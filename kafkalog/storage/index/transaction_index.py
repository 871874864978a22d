"""The transaction index of a segment: appending, searching and truncating its aborted transactions.

Entries have 34 bytes each (format.md section 7), in the order of the last offsets. The first append creates the
file; a partial entry at its end, which a crash leaves, is cut off before the next one (TXN-6).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.storage.index.aborted_txns import (
    ENTRY_BYTES,
    LAST_OFFSET_AT,
    AbortedTxn,
    CollectedTxns,
    check_sanity,
    collect_aborted_txns,
    parse_aborted_txns,
)
from kafkalog.storage.lazy_file import ReopenedFile
from kafkalog.util.fileio import OS, File, FileSystem
from kafkalog.util.waiting import AT_ONCE

_PIECE_ENTRIES: Final = 4096


class TransactionIndex(ReopenedFile):
    """The aborted transactions of one segment.

    Threads: changes need the owner's lock; `collect` may run in parallel. StorageError from the system.
    """

    __slots__ = ("_count", "_last_offset", "base_offset")

    def __init__(self, path: str | os.PathLike[str], base_offset: int, *, fs: FileSystem = OS) -> None:
        super().__init__(path, "transaction index", fs)
        self.base_offset = base_offset
        self._count = -1  # not read yet
        self._last_offset = -1

    @property
    def count(self) -> int:
        """Number of complete entries in the file."""
        if self._count < 0:
            self._read_end()
        return self._count

    @property
    def last_offset(self) -> int:
        """Last offset of the last entry; -1 without one."""
        return self._last_offset if self.count else -1

    def _read_end(self) -> None:
        """Read the number of entries and the last offset from the file, if it exists."""
        try:
            file = self._opened()
            count = file.size() // ENTRY_BYTES
            self._last_offset = self._last_offset_of(file, count)
            self._count = count
        except FileNotFoundError:
            self._count, self._last_offset = 0, -1
        except OSError as error:
            raise self._failed("open", error) from error

    @staticmethod
    def _last_offset_of(file: File, count: int) -> int:
        if not count:
            return -1
        position = (count - 1) * ENTRY_BYTES + LAST_OFFSET_AT
        data = file.pread_at_once(8, position) if AT_ONCE else file.pread(8, position)
        return int.from_bytes(data, "big", signed=True) if len(data) == 8 else -1

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry behind the last complete one; IllegalArgument unless its last offset is higher (TXN-1)."""
        self.extend((entry,))

    def extend(self, entries: Sequence[AbortedTxn]) -> None:
        """Add entries in one write; IllegalArgument, without adding any, unless last offsets rise (TXN-1)."""
        count, last = self.count, self._last_offset
        for number, entry in enumerate(entries, count):
            if number and entry.last_offset <= last:
                raise IllegalArgument(
                    f"an aborted transaction that ends at {entry.last_offset} cannot follow one that ends at {last}",
                    path=self.path,
                    offset=entry.last_offset,
                )
            last = entry.last_offset
        try:
            file = self._opened("create")
            end = count * ENTRY_BYTES
            if file.size() != end:
                file.truncate(end)
            file.pwrite(b"".join(entry.packed() for entry in entries), end)
        except OSError as error:
            self._undo_append(count)
            raise self._failed("write", error) from error
        self._count = count + len(entries)
        self._last_offset = last

    def _undo_append(self, count: int) -> None:
        """Cut off the remains of a failed write: they may be an entry of a transaction that was not aborted."""
        if self._file is not None:
            with suppress(OSError):  # the log then fails to undo its own write and rejects further ones
                self._file.truncate(count * ENTRY_BYTES)

    def entries(self) -> list[AbortedTxn]:
        """Return all entries; FormatError for an unknown version (TXN-7)."""
        return list(self._from(0))

    def _from(self, number: int) -> Iterator[AbortedTxn]:
        """Yield entry `number` and those after it, reading the file in pieces."""
        count = self.count
        while number < count:
            size = min(count - number, _PIECE_ENTRIES) * ENTRY_BYTES
            try:
                data = self._opened().pread_at_once(size, number * ENTRY_BYTES)
            except OSError as error:
                raise self._failed("read", error) from error
            yield from parse_aborted_txns(data, self.path, number)
            if len(data) < size:  # truncated meanwhile
                return
            number += _PIECE_ENTRIES

    def collect(self, fetch_offset: int, upper_bound: int) -> CollectedTxns:
        """Return the transactions that overlap [fetch_offset, upper_bound), in marker order (TXN-2, TXN-3)."""
        if self.count == 0:
            return CollectedTxns([], False)
        entries = self._from(self._first_at_or_above(fetch_offset))
        return collect_aborted_txns(entries, fetch_offset, upper_bound)

    def _first_at_or_above(self, offset: int) -> int:
        """Return the number of the first entry whose last offset is at or above `offset`; last offsets rise."""
        low, high = 0, self.count
        try:
            file = self._opened() if high else None
            while file is not None and low < high:
                middle = (low + high) // 2
                if self._last_offset_of(file, middle + 1) < offset:
                    low = middle + 1
                else:
                    high = middle
        except OSError as error:
            raise self._failed("read", error) from error
        return low

    def sanity_check(self) -> None:
        """Raise CorruptIndex if an entry ends below the segment's base (TXN-5), FormatError for an unknown version."""
        check_sanity(self._from(0), self.base_offset, self.path)

    # The file

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions that end at or above `offset` (TXN-4)."""
        if self.count:
            self._cut(self._first_at_or_above(offset))

    def reset(self) -> None:
        """Remove all entries; an existing file becomes empty."""
        self._cut(0, always=True)

    def _cut(self, count: int, always: bool = False) -> None:
        if not always and count == self.count:
            return
        try:
            file = self._opened()
            file.truncate(count * ENTRY_BYTES)
            self._last_offset = self._last_offset_of(file, count)
        except FileNotFoundError:
            self._last_offset = -1
        except OSError as error:
            raise self._failed("truncate", error) from error
        self._count = count

    def flush(self) -> None:
        """Sync the entries to disk; create no file if there is none (TXN-8)."""
        if self._count > 0 or self._file is not None:
            try:
                self._opened().sync()
            except OSError as error:
                raise self._failed("sync", error) from error

    def rename_to(self, path: str) -> None:
        """Rename the file; later appends use the new name (TXN-8)."""
        try:
            self._fs.rename(self.path, path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed("rename", error) from error
        self.path = path

    def relocate(self, path: str) -> None:
        """Set the file's path after its directory was renamed."""
        self.path = path

    def delete_if_exists(self) -> bool:
        """Close and delete the file; return True if it existed."""
        try:
            self.close()
        finally:
            found = self.unlink()
        return found

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again. It is released even after a StorageError."""
        self._count = -1
        self.release()

    def __repr__(self) -> str:
        return f"<TransactionIndex {self.path}>"
