"""Building key indexes in the background: of a log that is opened by itself, and of all logs of a store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.keys.manage import build_indexes
from kafkalog.keys.place import KeyIndexPlace

if TYPE_CHECKING:
    from kafkalog.keys.manage import Known
    from kafkalog.storage.log import UnifiedLog

_LOG: Final = logging.getLogger(__name__)
PERIOD_MS: Final = 5_000
"""Time between two runs, of which one that finds nothing new reads nothing, and until a failure is tried again."""


class IndexBuilder:
    """Builds the key indexes that logs lack: each run looks at those with other segments than in the run before.

    The indexes lie in `store`, None for beside the segments. `built` is called with each log that was looked at. A
    failure is logged once, and the segment is searched; one that may pass, such as a full disk, is tried again in the
    next run. Threads: one at a time runs; any may stop it.
    """

    def __init__(self, store: str | os.PathLike[str] | None, built: Callable[[UnifiedLog], object]) -> None:
        self._store = store
        self._built = built
        self._seen: dict[str, Any] = {}
        self._known: dict[str, Known] = {}
        self._failures: dict[str, str] = {}
        self._is_stopping = False

    def run(self, logs: Iterable[UnifiedLog]) -> bool:
        """Build the missing indexes of all logs there are; return False after a failure that may pass."""
        by_path = {log.path: log for log in logs}
        for kept in (self._seen, self._known, self._failures):
            for path in kept.keys() - by_path.keys():
                del kept[path]
        is_done = True
        for path, log in by_path.items():
            segments = log.segments
            if self._is_stopping:
                break
            if self._seen.get(path) is segments or len(segments) == 1:
                continue
            if self._build(log):
                self._seen[path] = segments
            else:
                is_done = False
            self._built(log)
        return is_done

    def _build(self, log: UnifiedLog) -> bool:
        """Build the indexes of a log; return False after a failure that may pass."""
        place, known = KeyIndexPlace(log.path, self._store, log.fs), self._known.setdefault(log.path, {})
        try:
            build_indexes(log, place, until=lambda: self._is_stopping, known=known)
        except (KafkalogError, OSError, ValueError, MemoryError) as error:
            if self._failures.get(log.path) != str(error):
                self._failures[log.path] = str(error)
                _LOG.warning("cannot build the key indexes of %s in the background: %s", log.path, error)
            return not isinstance(error, (OSError, MemoryError))
        self._failures.pop(log.path, None)
        return True

    def stop(self) -> None:
        """End a run after the segment that it reads, and begin no other."""
        self._is_stopping = True
