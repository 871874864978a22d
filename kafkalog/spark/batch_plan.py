"""Plan of a batch read: its ranges of offsets, fixed when it is planned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kafkalog.errors import OffsetOutOfRange
from kafkalog.exchange.ranges import OffsetRange
from kafkalog.log.log import Log
from kafkalog.spark.damage import DataLoss, check_ends
from kafkalog.spark.file_systems import file_system
from kafkalog.spark.filters import Pruning
from kafkalog.spark.limits import check_order
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews, find_partitions
from kafkalog.spark.range_scan import known_topic_id
from kafkalog.spark.ranges import plan_ranges, whole_ranges
from kafkalog.spark.time_pruning import ranges_in_time
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.where import parse


def plan_batch(options: SourceOptions, pruning: Pruning | None = None) -> list[OffsetRange]:
    """Return the ranges of a batch read that `pruning` leaves.

    Raises as `find_partitions` and `resolve` do; OffsetOutOfRange for offsets that a partition does not have, unless
    `fail_on_data_loss` is False, which makes it a DataLoss warning; IllegalArgument for a start after its end;
    CorruptRecord for damage at the end of a log of which nothing is read, unless `on_damage` is "skip";
    IllegalArgument for a condition on decoded values that does not fit their types.
    """
    found = find_partitions(options.paths, options.subscription)
    if options.decoding and found:
        from kafkalog.spark.reading import condition_of  # imports pyarrow

        with Log(LogView(min(found.values()), fs=file_system(options)), None) as log:
            condition_of(log, options)  # raises here what every task would raise
    ids = {one: known_topic_id(path) for one, path in found.items()}  # before the offsets: tasks compare them
    with PartitionViews(found, options.isolation, file_system(options)) as views:
        starts, stops = views.resolve(options.starting, "starting"), views.resolve(options.ending, "ending")
        starts, stops = within_bounds(starts, stops, views, options.fail_on_data_loss)
        check_ends(views, {one: stop for one, stop in stops.items() if starts[one] == stop}, options)
        if options.where is not None:
            pruning = Pruning() if pruning is None else pruning
            pruning.apply_condition(parse(options.where).bounds())
        if pruning is None:
            return plan_ranges(views, whole_ranges(views, starts, stops, ids), options)
        wholes = whole_ranges(views, *pruning.narrowed(starts, stops), ids)
        return plan_ranges(views, ranges_in_time(views, wholes, pruning.times, options.time_ranges), options)


def within_bounds(
    starts: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    views: PartitionViews,
    fail_on_data_loss: bool,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the bounds, checked: start at or before end, both within the existing offsets.

    Missing offsets raise OffsetOutOfRange; without `fail_on_data_loss` they are left out with a DataLoss warning.
    """
    if fail_on_data_loss:
        check_order(starts, stops)
    new_starts, new_stops = dict(starts), dict(stops)
    for one in starts:
        earliest, latest = views.bounds(one)
        for offset, side in ((starts[one], "starting"), (stops[one], "ending")):
            if earliest <= offset <= latest:
                continue
            text = f"the {side} offset {offset} of {one} does not exist: it has {earliest} to {latest}"
            if fail_on_data_loss:
                raise OffsetOutOfRange(
                    text,
                    path=views.directories[one],
                    offset=offset,
                    hint="give an offset between them, or set failOnDataLoss to false to read the existing records",
                )
            warnings.warn(f"{text}; reading the existing records", DataLoss, stacklevel=2)
        new_starts[one] = min(max(starts[one], earliest), latest)
        new_stops[one] = min(max(stops[one], earliest), latest)
    check_order(new_starts, new_stops)
    return new_starts, new_stops
