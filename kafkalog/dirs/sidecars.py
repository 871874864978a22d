"""The sidecars of a store's logs: where they lie, and the job that builds key indexes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.log.open import with_sidecars
from kafkalog.manager.job import Job
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from kafkalog.keys.manage import Known
    from kafkalog.log.log import Log
    from kafkalog.storage.log import UnifiedLog

    Place = bool | str | os.PathLike[str]

_LOG: Final = logging.getLogger(__name__)
PERIOD_MS: Final = 5_000
"""Time between two looks for rolled segments; one that finds none reads nothing."""


class Sidecars(NamedTuple):
    """The options `key_index` and `time_ranges` of `open_dirs`: False, True for beside the segments, or a directory."""

    key_index: Place = False
    time_ranges: Place = False

    def check(self, paths: Sequence[str], mode: str) -> None:
        """Raise IllegalArgument for True in mode "r", and for a place inside a data directory."""
        from kafkalog.keys.place import KeyIndexPlace
        from kafkalog.time_ranges.place import TimeRangesPlace

        for name, place in zip(self._fields, self, strict=True):
            if place is True and mode == "r":
                raise IllegalArgument(
                    f'{name} is True in mode "r", which never writes beside the segments', hint="name a directory"
                )
        for kind, place in ((KeyIndexPlace, self.key_index), (TimeRangesPlace, self.time_ranges)):
            if not isinstance(place, bool):
                for path in paths:
                    kind(os.path.join(path, "-"), place, OS)

    def given_to(self, log: Log) -> Log:
        """Return the log with the places of its sidecars set."""
        return with_sidecars(log, *self)


NO_SIDECARS: Final = Sidecars()


class KeyIndexJob:
    """A job that builds the missing key indexes of a store's logs after the start and after each roll.

    `built` is called with each log whose indexes were looked at. A failure is logged once, and the segment is searched;
    one that may pass, such as a full disk, is tried again. The run ends early once `stop` was called. Threads: as for
    a `Job`.
    """

    def __init__(
        self, logs: Callable[[], Iterable[UnifiedLog]], place: Place, built: Callable[[UnifiedLog], object]
    ) -> None:
        self.job = Job("kafkalog-key-index", self._run, delay_ms=0, period_ms=PERIOD_MS)
        self._logs = logs
        self._store = None if isinstance(place, bool) else place
        self._built = built
        self._seen: dict[str, Any] = {}
        self._known: dict[str, Known] = {}
        self._failures: dict[str, str] = {}
        self._is_stopping = False

    def _run(self) -> None:
        logs = {log.path: log for log in self._logs()}
        for kept in (self._seen, self._known, self._failures):
            for path in kept.keys() - logs.keys():
                del kept[path]
        for path, log in logs.items():
            segments = log.segments
            if self._is_stopping:
                return
            if self._seen.get(path) is segments or len(segments) == 1:
                continue
            if self._build(log):
                self._seen[path] = segments
            self._built(log)

    def _build(self, log: UnifiedLog) -> bool:
        """Build the indexes of a log; return False after a failure that may pass."""
        from kafkalog.keys.manage import build_indexes
        from kafkalog.keys.place import KeyIndexPlace

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
        """End the job after the segment that it reads."""
        self._is_stopping = True
        self.job.stop()
