"""Common base of a segment's two index files: entries, capacity, and safe changes."""

from __future__ import annotations

import logging
import os
from typing import Final

from kafkalog.errors import IllegalArgument, IllegalState, IndexOffsetOverflow, KafkalogError, LogClosed
from kafkalog.storage.index.preallocated_file import PreallocatedFile
from kafkalog.storage.index.segment_index import P, SegmentIndex
from kafkalog.util.fileio import OS, FileSystem

_LOG: Final = logging.getLogger(__name__)
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
IndexEntry = tuple[int, int, int, int]
"""A batch's values for both indexes: last offset, position, largest time so far (-1: no entry), its offset."""


class AbstractIndex(SegmentIndex[P]):
    """An index file of one segment: sorted entries of `entry_size` bytes, then free space.

    A new file has its full length at once (format.md section 7: `max_index_size` rounded down to whole entries,
    sparse). An existing one keeps its length and holds floor(length / entry size) entries (IDX-13). Closing trims
    it. Look-ups use a copy of the entries in memory, which each append extends, so that no change of the file can
    crash the interpreter (`PreallocatedFile`) or change a result. If another process has truncated or changed the
    file of a writable index, `trim_to_valid_size`, and so a roll or a close, rewrites the entries and logs a
    warning. Mode "r" has no authority over the file, and follows it (`IndexView`).

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
    ) -> None:
        """Open the index at `path`, or create it.

        `max_index_size`, in bytes, applies to a new file and to `reset`. Errors: IllegalArgument for a new file
        without room for an entry (the file stays, with length 0: IDX-11), StorageError from the system, CorruptIndex
        over 2 GiB.
        """
        super().__init__(base_offset)
        self.max_index_size = max_index_size
        self._file = PreallocatedFile(path, self.kind, fs)
        self._read_only = False
        try:
            if self._file.create():
                self._set_first_length()
                self._attach(0)
            else:
                self._file.open()
                self._attach(self._file.length // self.entry_size)
                self._file.release()
        except BaseException:
            self.close_handler()
            raise

    def _refresh_last(self) -> None:
        """Refresh the cached last entry after the count changed."""
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
        """Load `count` entries from the current file."""
        buffer = self._file.content(count * self.entry_size)
        self._entries.attach(buffer, min(count, len(buffer) // self.entry_size))
        self._refresh_last()

    # --- properties

    @property
    def path(self) -> str:  # type: ignore[override]
        """Current name of the file."""
        return self._file.path

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory used by the entries."""
        return self._entries.memory_bytes

    @property
    def max_entries(self) -> int:
        """Number of entries that fit the file's current length."""
        return self._file.length // self.entry_size

    @property
    def is_full(self) -> bool:
        """True if no further entry can be appended (IDX-4)."""
        return self._entries.count >= self.max_entries

    @property
    def length(self) -> int:
        """Length of the file in bytes, including free space."""
        return self._file.length

    @property
    def size_in_bytes(self) -> int:
        """Bytes used by entries."""
        return self._entries.count * self.entry_size

    @property
    def read_only(self) -> bool:
        """True if appends raise an error, after `make_read_only`."""
        return self._read_only

    @property
    def closed(self) -> bool:
        """True after `close`, `close_handler` or `delete_if_exists`."""
        return self._entries.closed

    def __repr__(self) -> str:
        state = "closed" if self._entries.closed else f"{self._entries.count} entries, {self.length} bytes"
        return f"<{type(self).__name__} {self.path} base offset {self.base_offset}, {state}>"

    def can_append_offset(self, offset: int) -> bool:
        """Return True if `offset` is 0..2^31-1 above the base offset (IDX-6)."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def relative_offset(self, offset: int) -> int:
        """Return `offset` minus the base offset; raise IndexOffsetOverflow unless that is in 0..2^31-1 (IDX-6)."""
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
        """Reserve disk space for the next `extra_entries` entries, within the file's length.

        StorageError (ENOSPC) if there is none; nothing is changed then. Call it before the log's own write.
        """
        if self._read_only:
            raise self._not_writable()
        end = (self._entries.count + extra_entries) * self.entry_size
        if end > self._file.reserved:
            self._file.reserve(end)

    def _append(self, entries: bytes, n: int) -> None:
        """Write whole entries from index `n` on, which follows the last one, and count them."""
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
        """Keep the first `entries` entries, at most all; the file keeps its length and its bytes."""
        self._check_open()
        if entries < 0:
            raise IllegalArgument(f"cannot keep {entries} entries", path=self.path)
        self._entries.count = min(entries, self._entries.count)
        self._refresh_last()

    def reset(self) -> None:
        """Drop all entries and set the file to the length of a new one (format.md section 14, B2).

        A StorageError leaves length and entries unchanged.
        """
        self._check_open()
        self._set_length(self._rounded(max(self.max_index_size, 0)), 0)

    def refill(self, content: bytes) -> None:
        """Replace the file's content by `content`, whole entries in order, without free space.

        A StorageError leaves the index without entries, which is harmless: an empty index is rebuilt.
        """
        self._check_open()
        self._set_length(len(content), 0)
        if content:
            self._file.reserve(len(content))
            self._file.write(content, 0)
            self._entries.attach(content, len(content) // self.entry_size)
            self._refresh_last()

    def resize(self, size: int) -> bool:
        """Set the file's length to `size` rounded down to whole entries; return True if it changed (IDX-10).

        The first entries stay, as many as fit. A read-only index with free space after it accepts appends again. A
        StorageError leaves length and entries unchanged.
        """
        self._check_open()
        length = self._rounded(max(size, 0))
        return self._set_length(length, min(self._entries.count, length // self.entry_size))

    def _set_length(self, length: int, kept: int) -> bool:
        before = self._entries.count
        changed = length != self.length
        self._entries.count = kept  # from here on no reader uses the entries that are cut off
        if changed:
            try:
                self._file.set_length(length)
            except BaseException:
                self._entries.count = before
                raise
        self._refresh_last()
        self._entries.fit()
        if length > kept * self.entry_size:
            self._read_only = False
        return changed

    def trim_to_valid_size(self) -> None:
        """Cut the file behind its last entry; first rewrite entries that another process has cut or changed."""
        self._check_open()
        size = self._entries.count * self.entry_size
        if not self._file.is_as_known or size != self._file.length:
            self._restore()
            self.resize(size)
            self._file.is_as_known = True

    def _restore(self) -> None:
        """Rewrite the entries if the file does not hold them."""
        entries = self._entries.packed_bytes(self._entries.count)
        if self._file.content(len(entries)) != entries:
            _LOG.warning("rewriting the entries of %s: another process truncated or changed it", self.path)
            self._file.write(entries, 0)

    def flush(self) -> None:
        """Sync entries and length to disk."""
        self._check_open()
        self._file.sync()

    def make_read_only(self) -> None:
        """Make further appends raise IllegalState, since the segment was rolled. Close the descriptor.

        A truncation may make the segment active again; `resize` then adds free space and permits appends.
        """
        self._check_open()
        self._read_only = True
        self._file.release()

    # --- renaming and closing

    def rename_to(self, path: str | os.PathLike[str]) -> None:
        """Rename the file; look-ups continue meanwhile (IDX-15)."""
        self._file.rename(path)

    def relocate(self, path: str) -> None:
        """Set the file's path after its directory was renamed."""
        self._file.path = path

    def close(self) -> None:
        """Trim the file to its entries and close it; later use raises LogClosed. A second call does nothing.

        StorageError if trimming fails; the index is closed even then.
        """
        try:
            if not self._entries.closed:
                self.trim_to_valid_size()
        finally:
            self.close_handler()

    def close_handler(self) -> None:
        """Close without trimming; later use raises LogClosed (IDX-16). A second call does nothing."""
        self._entries.close(self._closed_error)
        self._file.release()

    def delete_if_exists(self) -> bool:
        """Close the index and delete its file; return True if the file existed (IDX-15)."""
        self.close_handler()
        return self._file.delete()

    # --- helpers

    def _rounded(self, size: int) -> int:
        return size // self.entry_size * self.entry_size

    def _check_open(self) -> None:
        if self._entries.closed:
            raise self._closed_error()

    def _not_writable(self) -> KafkalogError:
        hint = "only the index of the active segment accepts entries"
        return IllegalState(f"the {self.kind} is read-only", path=self.path, hint=hint)

    def _closed_error(self) -> KafkalogError:
        return LogClosed(f"the {self.kind} is closed", path=self.path)
