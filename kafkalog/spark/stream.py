"""A stream in Spark's interface from 4.2 on, where a source limits its micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkalog.spark.offsets import offsets_to_dict
from kafkalog.spark.stream_base import BaseStreamReader


class StreamReader(BaseStreamReader, SupportsTriggerAvailableNow):
    """A stream whose micro-batches have the options' limits, and which can end at what is there."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the options' limit. Spark has none with two bounds: `next_end` reads the options itself."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> Mapping[str, object]:
        """Return the end of the next micro-batch; `start` itself if nothing, or too little, is new."""
        return self.next_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at what is readable now."""
        standings = self._partitions().look(force=True)
        self._target = {one: standing.latest for one, standing in standings.items()}

    def reportLatestOffset(self) -> Mapping[str, object] | None:
        """Return the end of the log at the last trigger, without limits; None before the first trigger."""
        return offsets_to_dict(self._latest) if self._latest else None
