"""Reports on what a read leaves out: damaged bytes, and deleted records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import CorruptRecord
from kafkalog.exchange.ranges import OffsetRange
from kafkalog.reading.chunks import check_tail, check_transactions
from kafkalog.reading.source import isolation_of
from kafkalog.util.fileio import OS, atomic_write
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.spark.options import SourceOptions
    from kafkalog.spark.partitions import PartitionViews
    from kafkalog.storage.damage import Skipped
    from kafkalog.types import TopicPartition

SKIP_HINT: Final = "set onDamage to skip to read the sound records after it; a replica or a backup may have the others"


class DataLoss(UserWarning):
    """Records to be read are missing, and the read continues without them: `failOnDataLoss` is false."""


def report_to(directory: str | None, wanted: OffsetRange, skipped: Sequence[Skipped]) -> None:
    """Write what a task left out as a file of JSON lines, named for its range; write nothing if nothing was left out.

    A task that runs again replaces its file with the same content. Raises StorageError.
    """
    if directory is None or not skipped:
        return
    name = f"{wanted.topic_partition}.{wanted.start}-{wanted.stop}.json"
    head = {"topic": wanted.topic, "partition": wanted.partition}
    lines = [json.dumps({**head, **_row(one)}) + "\n" for one in skipped]
    with os_errors("write the report on damage", directory):
        os.makedirs(directory, exist_ok=True)
        atomic_write(OS, os.path.join(directory, name), "".join(lines).encode(), shared=True)


def damage_at_ends(
    views: PartitionViews, ends: Mapping[TopicPartition, int], options: SourceOptions
) -> Iterator[tuple[list[Skipped], CorruptRecord | None]]:
    """Yield the damage at ends of logs up to which no task reads: the pieces left out, or the error.

    Pieces left out are reported as a task reports them.
    """
    for one, end in ends.items():
        skipped: list[Skipped] = []
        try:
            check_tail(views[one], end, skipped if options.on_damage == "skip" else None)
            if isolation_of(options.isolation) == "committed" and options.on_damage != "skip":
                check_transactions(views[one], end)
        except CorruptRecord as error:
            yield [], error
        if skipped:
            report_to(options.corrupt_report, OffsetRange(*one, views.directories[one], end, end), skipped)
            yield skipped, None


def check_ends(views: PartitionViews, ends: Mapping[TopicPartition, int], options: SourceOptions) -> None:
    """Raise the first damage of `damage_at_ends`."""
    for _, damage in damage_at_ends(views, ends, options):
        if damage is not None:
            damage.hint = SKIP_HINT
            raise damage


def _row(one: Skipped) -> dict[str, object]:
    return {
        "file": one.path,
        "position": one.position,
        "bytes": one.size_bytes,
        "offset": one.offset,
        "next_offset": one.next_offset,
        "reason": one.reason,
    }
