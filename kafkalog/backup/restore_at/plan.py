"""Plans of a restore at a moment: where each partition is cut, decided by its times before a byte is copied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from kafkalog.backup.create import COPIED_FIRST
from kafkalog.backup.damage import DAMAGED
from kafkalog.backup.manifest import Manifest, StoredPartition
from kafkalog.backup.restore_at.batches import first_batch
from kafkalog.errors import CorruptRecord, IllegalArgument
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.verify.checkpoints import LOST_END_HINT
from kafkalog.util.fileio import FileSystem
from kafkalog.util.times import Time, text_ms, time_text, to_ms

By = Literal["append", "time"]
_TIERED: Final = "__remote_log_metadata"
BROKERS_TOPICS: Final = COPIED_FIRST | {_TIERED}
"""Topics whose records have a broker's time: they are always cut in append order."""
_LARGEST_MS: Final = 253_402_300_799_999  # the end of the year 9999


class Moment(NamedTuple):
    """The time (ms since 1970) that a restore goes back to, and the rule by which later records are left out."""

    at_ms: int
    by: By

    @classmethod
    def of(cls, at: Time, by: str) -> Moment:
        """Return the moment of a time and a rule; IllegalArgument if one of them is invalid."""
        at_ms = text_ms(at) if isinstance(at, str) else to_ms(at)
        if not 0 <= at_ms <= _LARGEST_MS:
            raise IllegalArgument(f"{at_ms} ms since 1970 is not a moment of a log", hint="give a year up to 9999")
        if by not in ("append", "time"):
            raise IllegalArgument(f"by is {by!r}", hint='use "append" (up to the first later record) or "time"')
        return cls(at_ms, "append" if by == "append" else "time")


class PartitionPlan(NamedTuple):
    """A partition's state at the moment.

    Whole batches below the offset `begin` stay. `later` is the first record after the moment in append order, None if
    there is none; then `begin` is the log end. `later_ms` is its time. `is_empty` if no record comes before it.
    `has_open` if the log ends inside a transaction.
    """

    stored: StoredPartition
    by: By
    begin: int
    later: int | None = None
    later_ms: int = -1
    is_empty: bool = False
    has_open: bool = False

    @property
    def is_untouched(self) -> bool:
        """True if the partition stays as it was stored."""
        return self.later is None and not self.has_open


def plan_partitions(backup: str, manifest: Manifest, moment: Moment, fs: FileSystem) -> list[PartitionPlan]:
    """Plan all partitions of the backup in the directory `backup` that have records.

    IllegalArgument if no record is as old as the moment; CorruptRecord, StorageError.
    """
    plans = []
    for stored in manifest.partitions:
        if stored.segments:
            name = manifest.directories[stored.directory].name
            by: By = "append" if stored.topic in BROKERS_TOPICS else moment.by
            path = os.path.join(backup, name, str(stored.topic_partition))
            plan = _plan_partition(stored, path, moment.at_ms, by, fs)
            if plan.later is None or by == "time":
                _refuse_lost_end(manifest, stored)
            plans.append(plan)
    if moment.by == "append":
        check_has_records(plans, [one.is_empty for one in plans], moment, manifest)
    return plans


def _plan_partition(stored: StoredPartition, path: str, at_ms: int, by: By, fs: FileSystem) -> PartitionPlan:
    with LogView(path, fs=fs) as view:
        if (damage := view.tail_damage) is not None:
            raise damage
        has_open = bool(view.open_transactions)
        found = view.offset_for_time(at_ms + 1)
        if found is None:
            return PartitionPlan(stored, by, view.log_end_offset, has_open=has_open)
        begin, _ = first_batch(view, found.offset)
        first, offsets = first_batch(view, view.log_start_offset)
        earlier = [one for one in offsets if view.log_start_offset <= one < found.offset]
        is_empty = first == begin and not earlier
        return PartitionPlan(stored, by, begin, found.offset, found.timestamp, is_empty, has_open)


def _refuse_lost_end(manifest: Manifest, stored: StoredPartition) -> None:
    """Raise CorruptRecord if the log had lost its end when it was copied: records up to the moment may be missing."""
    directory = manifest.directories[stored.directory]
    start = f"{DAMAGED}{directory.name}/{stored.topic_partition}: "
    for note in manifest.notes:
        if note.startswith(start):
            raise CorruptRecord(
                note.removeprefix(start), path=os.path.join(directory.source, str(stored.topic_partition)),
                offset=stored.end_offset, hint=f"{LOST_END_HINT}; a restore without a moment omits what is missing",
            )  # fmt: skip


def check_has_records(
    plans: Iterable[PartitionPlan], empty: Iterable[bool], moment: Moment, manifest: Manifest
) -> None:
    """Raise IllegalArgument if every partition of a client's topic is `empty` at the moment."""
    found = [(one, is_empty) for one, is_empty in zip(plans, empty, strict=True)
             if one.stored.topic not in BROKERS_TOPICS and one.later is not None]  # fmt: skip
    has_older = any(one.later is None and one.stored.end_offset > one.stored.start_offset for one in plans)
    if found and not has_older and all(is_empty for _, is_empty in found):
        oldest = min(one.later_ms for one, _ in found)
        raise IllegalArgument(
            f"no record is as old as {time_text(moment.at_ms)}",
            hint=f"the oldest moment is {time_text(oldest)}, the newest {time_text(manifest.created_ms)}",
        )


def notes_of(plans: Sequence[PartitionPlan], at_ms: int) -> list[str]:
    """Return a note for each topic, or partition, that was empty at the moment, or whose records then are gone.

    Segments that were tiered, or deleted in the store, after the moment have one together.
    """
    notes = []
    by_topic: dict[str, list[PartitionPlan]] = {}
    for plan in plans:
        by_topic.setdefault(plan.stored.topic, []).append(plan)
    for topic, found in by_topic.items():
        later = [plan.later_ms for plan in found if plan.later is not None]
        if topic == _TIERED and later:
            notes.append(
                f"{topic}: cut before {time_text(min(later))}: segments that were tiered since then are unknown, and "
                "records that only these have are missing; those deleted from the store since then are named"
            )
        empty = [plan for plan in found if plan.is_empty and plan.by == "append"]
        if topic in BROKERS_TOPICS or not empty:
            continue
        if len(empty) == len(found):
            first = time_text(min(plan.later_ms for plan in empty))
            notes.append(f"{topic}: kept without records, since none is older than {first}")
            continue
        for plan in empty:
            notes.append(
                f"{plan.stored.topic_partition}: kept without records from offset {plan.stored.start_offset} on, since "
                f"none is older than {time_text(plan.later_ms)}"
            )
    return notes

