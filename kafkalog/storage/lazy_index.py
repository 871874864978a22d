"""An index file that is opened when it is first asked for: a log of many segments maps only those in use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kafkalog.errors import IllegalState, StorageError
from kafkalog.util.fileio import FileSystem


class IndexFile(Protocol):
    """What a lazily opened index can be told before or after it is open."""

    def rename_to(self, path: str) -> None: ...
    def delete_if_exists(self) -> bool: ...
    def close(self) -> None: ...
    def close_handler(self) -> None: ...


T = TypeVar("T", bound=IndexFile)


class LazyIndex(Generic[T]):
    """One index of one segment, not opened (and its file not made) before `get`.

    Threads: the first `get`, and rename, close and delete, take one lock, so that they never see a half-opened
    index (KAFKA-9156); a `get` after the first is one attribute load.
    """

    __slots__ = ("_closed", "_fs", "_lock", "_opener", "index", "path")

    def __init__(self, path: str, opener: Callable[[str], T], fs: FileSystem) -> None:
        self.path = path
        self.index: T | None = None
        self._opener = opener
        self._fs = fs
        self._closed = False  # guarded by self._lock
        self._lock = threading.Lock()

    def get(self) -> T:
        """The index, opened (the file made, if it is missing) by the first call; IllegalState once closed."""
        index = self.index
        if index is not None:
            return index
        with self._lock:
            if self.index is None:
                if self._closed:
                    raise IllegalState("the index is closed", path=self.path)
                self.index = self._opener(self.path)
            return self.index

    def make(self) -> None:
        """Return when the file is there; one that was missing is made, and the index open."""
        if self.index is None and not self._fs.exists(self.path):
            self.get()

    @property
    def is_open(self) -> bool:
        """True once `get` was called."""
        return self.index is not None

    def rename_to(self, path: str) -> None:
        """Rename the file. One that was never made stays unmade (SEG-27); an open index goes on working."""
        with self._lock:
            if self.index is not None:
                self.index.rename_to(path)
            else:
                try:
                    self._fs.rename(self.path, path)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise StorageError.from_os(error, f"rename to {path}", path=self.path) from error
            self.path = path

    def delete_if_exists(self) -> bool:
        """True when the file was there and is gone; the index is closed by it."""
        with self._lock:
            self._closed = True
            if self.index is not None:
                return self.index.delete_if_exists()
            try:
                return self._fs.unlink_if_exists(self.path)
            except OSError as error:
                raise StorageError.from_os(error, "delete the index", path=self.path) from error

    def close(self) -> None:
        """Trim and close the index, if it was opened. A second call does nothing."""
        with self._lock:
            self._closed = True
            if self.index is not None:
                self.index.close()

    def close_handler(self) -> None:
        """Give the mapping and the file back without writing anything."""
        with self._lock:
            self._closed = True
            if self.index is not None:
                self.index.close_handler()
