"""What a clean looks at of a log: one that is open and may be written, or one that is only counted for a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from kafkalog._core.producer import ProducerState
from kafkalog.cleaner.choosing import Offsets
from kafkalog.config import LogConfig
from kafkalog.util.fileio import FileSystem


class CleanableLog(Protocol):
    """A log as the two readings of a clean need it. To write it a clean needs a `UnifiedLog`."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def state(self) -> Offsets: ...
    @property
    def segments(self) -> Any:
        """LogSegments, each with its records, indexes and aborted transactions."""

    @property
    def producers(self) -> Iterable[ProducerState]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    def being_cleaned(self) -> AbstractContextManager[int]:
        """A block in which nobody else cleans the log; gives what `check_unchanged` wants back."""

    def check_unchanged(self, segments: Any, cuts: int) -> None:
        """Return while the log has these segments; CleaningAborted."""


class Cleanable(Protocol):
    """A log, and from where to where its keys go into the map: `LogToClean`, or a `Part` of another log."""

    @property
    def log(self) -> CleanableLog: ...
    @property
    def first_dirty_offset(self) -> int: ...
    @property
    def first_uncleanable_offset(self) -> int:
        """Where a segment begins."""


class Part(NamedTuple):
    """The plainest `Cleanable`."""

    log: CleanableLog
    first_dirty_offset: int
    first_uncleanable_offset: int
