"""Interfaces that a clean needs of a log: open for appending, or read-only for a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog._core.log.producer_state import ProducerState
from kafkalog.cleaner.choosing import Offsets
from kafkalog.config.topic import LogConfig
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.segment import LogSegment
    from kafkalog.storage.segments import LogSegments


class CleanableLog(Protocol):
    """A log as the two readings of a clean need it. Writing the result needs a `UnifiedLog`."""

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
    def segments(self) -> LogSegments[LogSegment]:
        """LogSegments, each with its records, indexes and aborted transactions."""

    @property
    def producers(self) -> Iterable[ProducerState]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    def being_cleaned(self) -> AbstractContextManager[int]:
        """Prevent other cleans of the log for the block; yield the value that `check_unchanged` expects."""

    def check_unchanged(self, segments: Sequence[LogSegment], truncations: int) -> None:
        """Raise CleaningAborted unless the log still has these segments."""


class CleanRange(NamedTuple):
    """A log and the range whose keys go into the map: `first_uncleanable_offset` is the base of a segment."""

    log: CleanableLog
    first_dirty_offset: int
    first_uncleanable_offset: int
