"""An index file opened on first use: a log of many segments holds only the indexes in use in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from errno import ENOENT
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafkalog.errors import CorruptIndex, IllegalState, StorageError
from kafkalog.util.descriptors import INDEXES
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors
from kafkalog.util.waiting import check_may_wait

if TYPE_CHECKING:
    from kafkalog.storage.index.abstract_index import AbstractIndex

T = TypeVar("T", bound="AbstractIndex[Any]")

IN_USE: Final = 0
CLOSED: Final = 1
DELETED: Final = 2


class LazyIndex(Generic[T]):
    """One index of one segment, not opened (and its file not created) before `get`.

    An index that is not pinned may be dropped when all indexes take too much memory (`util/descriptors.py`). Its
    content is in its file, and the next `get` opens it again, with CorruptIndex if the file's length has changed.
    Current users keep the dropped one.

    Threads: the first `get`, and rename, close and delete, take one lock, so that they never see a half-opened index
    (KAFKA-9156); a `get` after the first is one attribute load.
    """

    __slots__ = (
        "__weakref__", "_fs", "_length", "_lock", "_opener", "_state", "_was_opened", "index", "is_pinned", "path",
        "used",
    )  # fmt: skip

    def __init__(self, path: str, opener: Callable[[str], T], fs: FileSystem) -> None:
        self.path = path
        self.index: T | None = None
        self.used = False  # never updated, since `get` is one load; the index opened first is dropped first
        self.is_pinned = False  # guarded by self._lock
        self._opener = opener
        self._fs = fs
        self._state = IN_USE  # guarded by self._lock
        self._length = -1  # that of the file when the index was dropped; guarded by self._lock
        self._was_opened = False
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the index; the first call opens it (and creates a missing file).

        IllegalState after it was closed, StorageError (ENOENT) after its file was unlinked, CorruptIndex if another
        process truncated the file of a dropped index.
        """
        index = self.index
        if index is not None:
            return index
        check_may_wait()
        INDEXES.make_room()
        with self._lock:
            index = self.index
            if index is None:
                if self._state == DELETED:
                    raise StorageError("the index was deleted", errno=ENOENT, path=self.path)
                if self._state == CLOSED:
                    raise IllegalState("the index is closed", path=self.path)
                index = self._opener(self.path)
                if self._length not in (-1, index.length):
                    index.close_handler()
                    raise self._other_length(index.length)
                self.index = index
                self._was_opened = True
                if not self.is_pinned:
                    INDEXES.add(self, index.memory_bytes)
            return index

    def _other_length(self, length: int) -> CorruptIndex:
        message = f"the index was {self._length} bytes long and is now {length}: another process has changed it"
        hint = "delete the file and open the log again: it is rebuilt from the data"
        return CorruptIndex(message, path=self.path, hint=hint)

    def make(self) -> None:
        """Create and open the index if its file is missing."""
        with os_errors("check for the index", self.path):
            missing = self.index is None and not self._fs.exists(self.path)
        if missing:
            self.get()

    @property
    def is_open(self) -> bool:
        """True while the index is open."""
        return self.index is not None

    def pin(self) -> None:
        """Keep the index in memory once it is open, since it is about to be written."""
        with self._lock:
            self.is_pinned = True
            INDEXES.discard(self)

    def unpin(self) -> None:
        """Allow the index to be dropped; its file holds all entries."""
        with self._lock:
            if self.is_pinned:
                self.is_pinned = False
                index = self.index
                if index is not None:
                    INDEXES.add(self, index.memory_bytes)

    def try_close(self) -> bool:
        """Drop the index; return False if it is pinned, in use, or differs from its file."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            index = self.index
            if self._state != CLOSED and index is not None:
                if self.is_pinned or index.length != index.size_in_bytes:
                    return False
                self._length = index.length
                self.index = None
            return True
        finally:
            self._lock.release()

    def flush(self) -> None:
        """Sync the file to disk, also of a dropped index; do nothing if it was never opened."""
        index = self.index
        if index is not None:
            index.flush()
        elif self._was_opened and self._state == IN_USE:
            with os_errors("sync the index", self.path), self._fs.open_file(self.path, "rw") as file:
                file.datasync()

    def rename_to(self, path: str) -> None:
        """Rename the file, if it exists (SEG-27); an open index stays usable."""
        with self._lock:
            if self.index is not None:
                self.index.rename_to(path)
            else:
                with os_errors(f"rename to {path}", self.path), suppress(FileNotFoundError):
                    self._fs.rename(self.path, path)
            self.path = path

    def relocate(self, path: str) -> None:
        """Set the file's path after its directory was renamed."""
        with self._lock:
            if self.index is not None:
                self.index.relocate(path)
            self.path = path

    def unlink(self) -> bool:
        """Delete the file and return True if it existed; an open index stays usable, a new one is not opened."""
        with self._lock:
            self._state = self._state or DELETED
            return self._unlinked()

    def delete_if_exists(self) -> bool:
        """Close the index and delete its file; return True if the file existed."""
        with self._lock:
            self._state = CLOSED
            return self._unlinked() if self.index is None else self.index.delete_if_exists()

    def _unlinked(self) -> bool:
        with os_errors("delete the index", self.path):
            return self._fs.unlink_if_exists(self.path)

    def close(self) -> None:
        """Trim and close the index, if it is open. A second call does nothing."""
        with self._lock:
            self._state = CLOSED
            if self.index is not None:
                self.index.close()

    def close_handler(self) -> None:
        """Release memory and file without writing anything."""
        with self._lock:
            self._state = CLOSED
            if self.index is not None:
                self.index.close_handler()
