"""Building sidecars in the background: of a log that is opened by itself, and of all logs of a store."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog

PERIOD_MS: Final = 5_000
"""Time between two runs, of which one that finds nothing new reads nothing, and until a failure is tried again."""


class SidecarBuilder(ABC):
    """Builds the sidecars that logs lack: each run looks at those with other segments than in the run before.

    `built` is called with each log that was looked at. A failure is logged once, and the segment goes without; one that
    may pass, such as a full disk, is tried again in the next run. Threads: one at a time runs; any may stop it.
    """

    noun: ClassVar[str]
    logger: ClassVar[logging.Logger]

    def __init__(self, built: Callable[[UnifiedLog], object]) -> None:
        self._built = built
        self._seen: dict[str, Any] = {}
        self._known: dict[str, dict[int, Any]] = {}
        self._failures: dict[str, str] = {}
        self._is_stopping = False
        self.at_stop: Callable[[], object] = lambda: None
        """Called by `stop`."""

    @abstractmethod
    def build(self, log: UnifiedLog, known: dict[int, Any]) -> bool:
        """Build the missing sidecars of a log; return False if some can be built later.

        `known` is kept for the next run.
        """

    def run(self, logs: Iterable[UnifiedLog]) -> bool:
        """Build the missing sidecars of all logs there are; return False if some can be built later."""
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
            if self._try(log):
                self._seen[path] = segments
            else:
                is_done = False
            self._built(log)
        return is_done

    def _try(self, log: UnifiedLog) -> bool:
        try:
            is_done = self.build(log, self._known.setdefault(log.path, {}))
        except (KafkalogError, OSError, ValueError, MemoryError) as error:
            if self._failures.get(log.path) != str(error):
                self._failures[log.path] = str(error)
                self.logger.warning("cannot build the %s of %s in the background: %s", self.noun, log.path, error)
            return not isinstance(error, (OSError, MemoryError))
        self._failures.pop(log.path, None)
        return is_done

    def is_stopping(self) -> bool:
        """Return True once `stop` was called."""
        return self._is_stopping

    def stop(self) -> None:
        """End a run after the segment that it reads, and begin no other."""
        self._is_stopping = True
        self.at_stop()
