"""A stream in the interface of Spark 4.1, where a micro-batch has all that is available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from kafkalog.errors import IllegalArgument
from kafkalog.spark.offsets import offsets_to_dict
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.stream_base import BaseStreamReader


class UnlimitedStreamReader(BaseStreamReader):
    """A stream that Spark asks for its end without saying where it is: `partitions` compares the two.

    Trigger.AvailableNow needs nothing of it: Spark 4.1 asks once for the end, and reads up to it in one micro-batch.
    """

    _start: Mapping[str, object] | None = None
    """Not known after a restart, until a micro-batch is planned."""

    def initialOffset(self) -> Mapping[str, object]:
        """Return the start of a query without a checkpoint. Raises the errors of `plan_batch`."""
        self._start = super().initialOffset()
        return self._start

    def latestOffset(self) -> Mapping[str, object]:
        """Return the end of what is available."""
        if self._start is not None:
            return self.next_end(self._start, limited=False)
        standings = self._partitions().look(force=True)
        return offsets_to_dict({one: standing.latest for one, standing in standings.items()})

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch; losses between its ends are reported here."""
        found = super().partitions(start, end)
        self._start = end
        return found


def check_unlimited(options: SourceOptions) -> None:
    """Raise IllegalArgument for options that limit micro-batches."""
    given = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger, "minOffsetsPerTrigger": options.min_offsets_per_trigger
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise IllegalArgument(f"{name} needs PySpark 4.2 or newer", hint="pip install 'pyspark>=4.2'")
