"""The sidecars of a store's logs: where they lie, and the jobs that build them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.log.open import with_sidecars
from kafkalog.manager.job import Job
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.sidecars.background import SidecarBuilder
    from kafkalog.storage.log import UnifiedLog

    Place = bool | str | os.PathLike[str]


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


class SidecarJob:
    """A job that builds the missing sidecars of a store's logs after the start and after each roll.

    Threads: as for a `Job`.
    """

    def __init__(self, name: str, builder: SidecarBuilder, logs: Callable[[], Iterable[UnifiedLog]]) -> None:
        from kafkalog.sidecars.background import PERIOD_MS

        self._builder = builder
        self.job = Job(name, lambda: self._builder.run(logs()), delay_ms=0, period_ms=PERIOD_MS)

    def stop(self) -> None:
        """End the job after the segment that it reads."""
        self._builder.stop()
        self.job.stop()


class KeyIndexJob(SidecarJob):
    """The job that builds key indexes; `built` is called with each log whose indexes were looked at."""

    def __init__(
        self, logs: Callable[[], Iterable[UnifiedLog]], place: Place, built: Callable[[UnifiedLog], object]
    ) -> None:
        from kafkalog.keys.background import IndexBuilder

        super().__init__("kafkalog-key-index", IndexBuilder(_store(place), built), logs)


class TimeRangesJob(SidecarJob):
    """The job that notes the times of closed segments."""

    def __init__(self, logs: Callable[[], Iterable[UnifiedLog]], place: Place) -> None:
        from kafkalog.time_ranges.background import TimeRangesBuilder

        super().__init__("kafkalog-time-ranges", TimeRangesBuilder(_store(place)), logs)


def _store(place: Place) -> str | os.PathLike[str] | None:
    return None if isinstance(place, bool) else place
