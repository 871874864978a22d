"""Noting the times of closed segments in the background."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from kafkalog.sidecars.background import SidecarBuilder
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.time_ranges.ranges import TimeRanges

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog


class TimeRangesBuilder(SidecarBuilder):
    """Notes the times of the closed segments that have none, in `store`; None is beside the segments."""

    noun = "time ranges"
    logger = logging.getLogger(__name__)

    def __init__(self, store: str | os.PathLike[str] | None) -> None:
        super().__init__(lambda log: None)
        self._store = store

    def build(self, log: UnifiedLog, known: dict[int, Any]) -> bool:
        """Note the missing times of a log; return False while the file of a segment may still be changed unnoticed."""
        ranges = TimeRanges(log, TimeRangesPlace(log.path, self._store, log.fs))
        ranges.build(until=self.is_stopping, waits=True)
        return not ranges.has_unsettled
