"""Syncs of the same files, one at a time: the system reports data that it could not write to one of them only."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from errno import ENOENT
from typing import Final

from kafkalog.util.descriptors import TOO_MANY_FILES

_NOTHING_LOST: Final = TOO_MANY_FILES | {ENOENT}  # the file could not be opened


class SerialSync:
    """Runs one sync at a time; after a failed one, every later one raises its error.

    Of two threads that sync a file at once, Linux reports a failed write to the first that asks, and success to the
    other, whose records are lost as well. A later sync succeeds, too.

    Threads: any. The lock is reentrant, since a signal handler may flush while the main thread does.
    """

    __slots__ = ("_failure", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._failure: OSError | None = None  # guarded by self._lock

    def run(self, sync: Callable[[], None]) -> None:
        """Call `sync` after those in progress; raise the error of the first that failed."""
        with self._lock:
            if self._failure is not None:
                raise copy.copy(self._failure)
            try:
                sync()
            except OSError as error:
                if error.errno not in _NOTHING_LOST:
                    self._failure = copy.copy(error)  # without the traceback, which holds open files
                raise
