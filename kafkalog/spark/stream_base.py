"""A stream, apart from the limits of its micro-batches: its start and ends, their ranges, their records.

Spark keeps one reader in its own process while a query runs, and asks it for the next offsets; tasks get copies that
only `read`. So a reader opens its view of the directories on first use and never pickles it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkalog.errors import OffsetOutOfRange
from kafkalog.exchange.ranges import bytes_between
from kafkalog.spark.admission import TriggerDelay, admitted
from kafkalog.spark.damage import DataLoss, check_ends
from kafkalog.spark.live_partitions import LivePartitions
from kafkalog.spark.offsets import offsets_from_dict, offsets_to_dict
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import find_partitions
from kafkalog.spark.range_scan import LOST_HINT
from kafkalog.spark.ranges import bundled, plan_ranges, whole_ranges
from kafkalog.spark.reach import Loss, Reach, Standing, reachable, replayed
from kafkalog.spark.reading import arrow_batches
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.spark.typed_columns import TypedColumns

LOSS_CHECKS: Final = 3
"""Looks that must show a loss before it is reported: a partition that is moved or replaced is briefly missing."""
BETWEEN_CHECKS_MS: Final = 100
_START_HINT: Final = "give an offset between them, or set failOnDataLoss to false to begin at the nearest one"
_Standings = dict[TopicPartition, Standing]


class BaseStreamReader(DataSourceStreamReader):
    """Offsets and records of a stream. Offsets are those of the Kafka source: `{"topic":{"0":23}}`.

    A subclass answers a version of PySpark with `next_end`. Lost records raise an error that names them or, by
    `failOnDataLoss`, cause a DataLoss warning. Only one thread may use it.
    """

    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[str, ...],
        typed: TypedColumns | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        self.columns = columns
        self.typed = typed
        self._clock = clock
        self._live: LivePartitions | None = None
        self._target: dict[TopicPartition, int] | None = None  # where Trigger.AvailableNow ends
        self._last_batch_ms: int | None = None  # monotonic: time of the last batch
        self._latest: dict[TopicPartition, int] | None = None

    def __reduce__(self) -> tuple[type[BaseStreamReader], tuple[Any, ...]]:
        """Pickle the options and the columns alone, for a task's copy."""
        return type(self), (self.options, self.columns, self.typed)

    # Offsets

    def initialOffset(self) -> Mapping[str, object]:
        """Return the start of a query without a checkpoint. Raises the errors of `plan_batch`."""
        options = self.options
        find_partitions(options.paths, options.subscription)  # a topic that never existed is a mistake
        live = self._partitions()
        live.look(force=True)
        views = live.views
        starts = views.resolve(options.starting, "starting", live.standings)
        nearest = {
            one: min(max(offset, views.earliest(one)), live.standings[one].log_end) for one, offset in starts.items()
        }
        lost = [_missing_start(one, starts[one], live.standings[one]) for one in starts if starts[one] != nearest[one]]
        self._report(lost, _START_HINT)
        check_ends(views, nearest, options)  # no task reads a log that ends where the query begins
        return offsets_to_dict(nearest)

    def next_end(self, start: Mapping[str, object], *, limited: bool) -> Mapping[str, object]:
        """Return the end of the next micro-batch; `start` itself if nothing, or too little, is new."""
        begin = offsets_from_dict(start)
        standings, found = self._checked(lambda now: reachable(begin, now, self._recreated(begin, now)), begin)
        self._latest = {one: standing.latest for one, standing in standings.items()}
        now_ms = self._clock.monotonic_ms()
        admission = admitted(
            found.begins,
            found.ends,
            most=self.options.max_offsets_per_trigger if limited else None,
            delay=self._delay() if limited else None,
            now_ms=now_ms,
            last_ms=self._last_batch_ms,
        )
        if admission.starts_delay:
            self._last_batch_ms = now_ms
        if admission.ends is not None:  # else the next trigger must notice it again
            for loss in found.losses:
                self._partitions().accept_recreated(loss.partition)
        # without any partition the known offsets are kept, in case the partitions return
        return start if not admission.ends or admission.ends == begin else offsets_to_dict(admission.ends)

    def _delay(self) -> TriggerDelay | None:
        """Return the delay of small batches; None for a query that ends with the existing records."""
        if self.options.min_offsets_per_trigger is None or self._target is not None:
            return None
        return TriggerDelay(self.options.min_offsets_per_trigger, self.options.max_trigger_delay_ms)

    # Micro-batches

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch, either a new one or one that is planned again after a restart."""
        if start == end:
            return []
        begin, until = offsets_from_dict(start), offsets_from_dict(end)
        _, found = self._checked(lambda standings: replayed(begin, until, standings), {**begin, **until}, look=False)
        live, options = self._partitions(), self.options
        views = live.views
        ranges = plan_ranges(views, whole_ranges(views, found.begins, found.ends, live.topic_ids()), options)
        if options.min_partitions or options.max_records_per_partition:
            return [InputPartition((one,)) for one in ranges]  # as many tasks as requested
        return [
            InputPartition(bundle)
            for bundle in bundled(ranges, lambda one: bytes_between(views[one.topic_partition], one.start, one.stop))
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of a task's ranges, one range after another."""
        checkpoints = CheckpointCache()
        for one in partition.value:
            yield from arrow_batches(
                one, self.columns, self.options, checkpoints=checkpoints, typed=self.typed
            )  # fmt: skip

    def stop(self) -> None:
        """Close the files."""
        if self._live is not None:
            self._live.close()
            self._live = None

    # Looking

    def _partitions(self) -> LivePartitions:
        if self._live is None:
            self._live = LivePartitions(self.options, clock=self._clock)
        return self._live

    def _checked(
        self, of: Callable[[_Standings], Reach], known: dict[TopicPartition, int], *, look: bool = True
    ) -> tuple[_Standings, Reach]:
        """Return the existing partitions and the result of `of` for them; report losses that repeated looks confirm.

        Without `look` the result of the last look is used if it shows no loss.
        """
        live = self._partitions()
        standings = self._bounded(live.look() if look else live.standings, known)
        found = of(standings)
        for _ in range(LOSS_CHECKS - 1):
            if not found.losses:
                break
            if look:
                self._clock.sleep(BETWEEN_CHECKS_MS)
            look = True
            standings = self._bounded(live.look(force=True), known)
            found = of(standings)
        self._report(found.losses)
        if look and self.options.fail_on_data_loss:
            live.check_named()
        return standings, found

    def _bounded(self, standings: _Standings, known: dict[TopicPartition, int]) -> _Standings:
        """Limit the partitions to where Trigger.AvailableNow ends; partitions that came later are left out."""
        if self._target is None:
            return dict(standings)
        ends = {**known, **self._target}
        return {
            one: standing._replace(latest=max(standing.earliest, min(standing.latest, ends[one])))
            for one, standing in standings.items()
            if one in ends
        }

    def _recreated(self, begin: dict[TopicPartition, int], standings: _Standings) -> set[TopicPartition]:
        live = self._partitions()
        return {one for one in begin if one in standings and live.is_recreated(one, begin[one])}

    def _report(self, losses: Sequence[Loss], hint: str = LOST_HINT) -> None:
        if not losses:
            return
        shown = "; ".join(loss.text for loss in losses[:8])
        more = f"; and {len(losses) - 8} more" if len(losses) > 8 else ""
        if self.options.fail_on_data_loss:
            directory = self._partitions().views.directories.get(losses[0].partition)
            raise OffsetOutOfRange(f"{shown}{more}", path=directory, offset=losses[0].offset, hint=hint)
        warnings.warn(f"{shown}{more}; reading the existing records", DataLoss, stacklevel=2)


def _missing_start(one: TopicPartition, offset: int, standing: Standing) -> Loss:
    text = f"the starting offset {offset} of {one} does not exist: it has {standing.earliest} to {standing.latest}"
    return Loss(one, text, offset)
