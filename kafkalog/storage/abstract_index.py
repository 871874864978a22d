"""What the two index files of a segment share: entries, room, and what is safe to do to them."""

from __future__ import annotations

import logging
import os
from typing import Final

from kafkalog.errors import IllegalArgument, IllegalState, IndexOffsetOverflow, KafkalogError, LogClosed
from kafkalog.storage.preallocated_file import PreallocatedFile
from kafkalog.storage.segment_index import P, SegmentIndex
from kafkalog.util.fileio import OS, FileSystem

_LOG: Final = logging.getLogger(__name__)
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
Brought = tuple[int, int, int, int]
"""What a batch brings to both indexes: last offset, position, the largest time so far (-1: no entry), its offset."""


class AbstractIndex(SegmentIndex[P]):
    """An index file of one segment: sorted entries of `entry_size` bytes, then free room.

    A new file has its full length at once (format.md section 7: `max_index_size` rounded down to whole entries,
    sparse); an existing one keeps its length and holds floor(length / entry size) entries (IDX-13). Closing trims it.
    Look-ups go by a copy of the entries in memory, to which each append adds, so that nothing that happens to the file
    can kill the interpreter (`PreallocatedFile`) or change an answer. Where another process has cut or changed the file
    of an index that is written, `trim_to_valid_size`, and with it a roll and a close, writes the entries again and logs
    a warning.

    Threads: look-ups at any time, from any thread. Everything that changes the index needs the log's lock.
    """

    __slots__ = ("_file", "_read_only", "max_index_size")

    def __init__(
        self,
        path: str | os.PathLike[str],
        base_offset: int,
        max_index_size: int = -1,
        *,
        fs: FileSystem = OS,
        writable: bool = True,
    ) -> None:
        """Open the index at `path`, or create it (`writable` only).

        `max_index_size` in bytes counts for a new file and for `reset`. With writable=False the file is never changed
        (IDX-17) and its entries are a copy in memory. Errors: IllegalArgument for a new file without room for an entry
        (the file stays, with length 0: IDX-11), StorageError from the system, CorruptIndex over 2 GiB.
        """
        super().__init__(base_offset)
        self.max_index_size = max_index_size
        self._file = PreallocatedFile(path, self.kind, fs, writable)
        self._read_only = not writable
        try:
            if writable and self._file.create():
                self._set_first_length()
                self._attach(0)
            else:
                self._file.open()
                self._attach(self._file.length // self.entry_size)
                self._file.release()
        except BaseException:
            self.close_handler()
            raise

    def _recall(self) -> None:
        """Remember the last entry again, after the count changed."""
        raise NotImplementedError

    def _set_first_length(self) -> None:
        if self.max_index_size < self.entry_size:
            raise IllegalArgument(f"Invalid max index size: {self.max_index_size}", path=self.path)
        try:
            self._file.set_length(self._rounded(self.max_index_size))
        except BaseException:
            self._file.discard()
            raise

    def _attach(self, count: int) -> None:
        """Take the entries from the file as it now is."""
        buffer = self._file.content(count * self.entry_size)
        self._entries.attach(buffer, min(count, len(buffer) // self.entry_size))
        self._recall()

    # --- what it holds

    @property
    def path(self) -> str:  # type: ignore[override]
        """The file's present name."""
        return self._file.path

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that the entries take."""
        return self._entries.memory_bytes

    @property
    def max_entries(self) -> int:
        """How many entries the file's present length has room for."""
        return self._file.length // self.entry_size

    @property
    def is_full(self) -> bool:
        """True when no further entry may be appended (IDX-4)."""
        return self._entries.count >= self.max_entries

    @property
    def length(self) -> int:
        """The file's length in bytes, free room counted."""
        return self._file.length

    @property
    def size_in_bytes(self) -> int:
        """The bytes that entries fill."""
        return self._entries.count * self.entry_size

    @property
    def read_only(self) -> bool:
        """True when a write is an error: opened so, or since `make_read_only`."""
        return self._read_only

    @property
    def closed(self) -> bool:
        """True after `close`, `close_handler` or `delete_if_exists`."""
        return self._entries.closed

    def __repr__(self) -> str:
        state = "closed" if self._entries.closed else f"{self._entries.count} entries, {self.length} bytes"
        return f"<{type(self).__name__} {self.path} base offset {self.base_offset}, {state}>"

    def can_append_offset(self, offset: int) -> bool:
        """True when `offset` lies 0..2^31-1 above the base offset (IDX-6)."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def relative_offset(self, offset: int) -> int:
        """`offset` minus the base offset; IndexOffsetOverflow unless that is in 0..2^31-1 (IDX-6)."""
        relative = offset - self.base_offset
        if 0 <= relative <= MAX_RELATIVE_OFFSET:
            return relative
        raise IndexOffsetOverflow(
            f"Integer overflow for offset: {offset} (base offset {self.base_offset})",
            path=self.path,
            offset=offset,
            hint="roll a new segment: an index holds offsets up to 2^31 - 1 above its base offset",
        )

    # --- writing

    def reserve(self, extra_entries: int = 1) -> None:
        """Return when the next `extra_entries` entries have disk space, as far as the file's length goes.

        StorageError (ENOSPC) when there is none; nothing is changed then. Meant for before the log's own write.
        """
        if self._read_only:
            raise self._not_writable()
        end = (self._entries.count + extra_entries) * self.entry_size
        if end > self._file.reserved:
            self._file.reserve(end)

    def _append(self, entries: bytes, n: int) -> None:
        """Write whole entries from the n-th on, the one after the last, and count them."""
        file = self._file
        position = n * self.entry_size
        end = position + len(entries)
        if end > file.reserved:
            file.reserve(end)
        file.write(entries, position)
        self._entries.add(entries)

    def truncate(self) -> None:
        """Drop all entries; the file keeps its length and its bytes."""
        self.truncate_to_entries(0)

    def truncate_to(self, offset: int) -> None:
        """Keep the entries whose offset is lower than `offset` (IDX-8, TIDX-5); the file keeps its length."""
        self.truncate_to_entries(self._entries.count_below(offset))

    def truncate_to_entries(self, entries: int) -> None:
        """Keep the first `entries` entries, all where there are fewer; the file keeps its length and its bytes."""
        self._check_writable()
        if entries < 0:
            raise IllegalArgument(f"cannot keep {entries} entries", path=self.path)
        self._entries.count = min(entries, self._entries.count)
        self._recall()

    def reset(self) -> None:
        """Drop all entries and make the file as long as a new one would be (format.md section 14, B2).

        StorageError leaves length and entries as they were.
        """
        self._check_writable()
        self._set_length(self._rounded(max(self.max_index_size, 0)), 0)

    def refill(self, content: bytes) -> None:
        """Make `content`, whole entries in order, all that the file holds, without room behind them.

        StorageError leaves it without entries, which is harmless: what has none is made anew.
        """
        self._check_writable()
        self._set_length(len(content), 0)
        if content:
            self._file.reserve(len(content))
            self._file.write(content, 0)
            self._entries.attach(content, len(content) // self.entry_size)
            self._recall()

    def resize(self, size: int) -> bool:
        """True when the file got the length `size` rounded down to whole entries; False when it had it (IDX-10).

        The first entries stay, as many as fit. An index that has room after it takes appends again, if it was
        made read-only. StorageError leaves length and entries as they were.
        """
        self._check_writable()
        length = self._rounded(max(size, 0))
        return self._set_length(length, min(self._entries.count, length // self.entry_size))

    def _set_length(self, length: int, kept: int) -> bool:
        before = self._entries.count
        changed = length != self.length
        self._entries.count = kept  # from here on nobody looks at what is cut off
        if changed:
            try:
                self._file.set_length(length)
            except BaseException:
                self._entries.count = before
                raise
        self._recall()
        self._entries.fit()
        if length > kept * self.entry_size:
            self._read_only = False
        return changed

    def trim_to_valid_size(self) -> None:
        """Cut the file behind its last entry; first what another process has cut or changed is written again."""
        self._check_writable()
        size = self._entries.count * self.entry_size
        if not self._file.is_as_known or size != self._file.length:
            self._restore()
            self.resize(size)
            self._file.is_as_known = True

    def _restore(self) -> None:
        """Write the entries again where the file does not hold them."""
        entries = self._entries.packed_bytes(self._entries.count)
        if self._file.content(len(entries)) != entries:
            _LOG.warning("%s was cut or changed by another process: its entries are written again", self.path)
            self._file.write(entries, 0)

    def flush(self) -> None:
        """Return when entries and length are on disk."""
        self._check_open()
        self._file.sync()

    def make_read_only(self) -> None:
        """From now on an append is IllegalState: the segment was rolled. Frees the descriptor.

        A truncation may make the segment the active one again; then `resize` gives room and lifts this.
        """
        self._check_open()
        self._read_only = True
        self._file.release()

    # --- name and end

    def rename_to(self, path: str | os.PathLike[str]) -> None:
        """Give the file another name; look-ups go on meanwhile (IDX-15)."""
        self._file.rename(path)

    def relocate(self, path: str) -> None:
        """Know that the file's directory has another name."""
        self._file.path = path

    def close(self) -> None:
        """Trim the file to its entries and close it; afterwards any use is LogClosed. A second call does nothing.

        StorageError when the trim fails; the index is closed all the same. A file that is not ours is not touched.
        """
        try:
            if self._file.writable and not self._entries.closed:
                self.trim_to_valid_size()
        finally:
            self.close_handler()

    def close_handler(self) -> None:
        """Close without trimming; afterwards any use is LogClosed (IDX-16). A second call does nothing."""
        self._entries.close(self._closed_error)
        self._file.release()

    def delete_if_exists(self) -> bool:
        """True when the file was there and is deleted; the index is closed first (IDX-15)."""
        self.close_handler()
        return self._file.delete()

    # --- helpers

    def _rounded(self, size: int) -> int:
        return size // self.entry_size * self.entry_size

    def _check_open(self) -> None:
        if self._entries.closed:
            raise self._closed_error()

    def _check_writable(self) -> None:
        self._check_open()
        if not self._file.writable:
            raise self._not_writable()

    def _not_writable(self) -> KafkalogError:
        hint = "entries go to the index of the active segment"
        return IllegalState(f"the {self.kind} is read-only", path=self.path, hint=hint)

    def _closed_error(self) -> KafkalogError:
        return LogClosed(f"the {self.kind} is closed", path=self.path)
