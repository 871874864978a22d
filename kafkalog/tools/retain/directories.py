"""`retain`: apply retention to data directories without a running broker; a dry run by default.

Each topic has its settings from the topics file or the broker's own metadata; one with unknown settings is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalog.tools.directories import Path
from kafkalog.tools.offline_partition import OfflinePlan
from kafkalog.tools.offline_survey import Kept, OfflineSurvey
from kafkalog.tools.retain.partition import DueSegment, delete_due, look
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.times import time_text

RETENTION: Final = frozenset({"retention.bytes", "retention.ms"})


@dataclass(frozen=True)
class RetainReport:
    """The segments that retention deletes, or has deleted if `applied`, and the skipped partitions."""

    due: tuple[DueSegment, ...]
    kept: tuple[Kept, ...]
    partitions: int
    applied: bool

    @property
    def size(self) -> int:
        """Bytes of data in the segments."""
        return sum(one.size for one in self.due)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line."""
        verb = "deleted" if self.applied else "delete"
        for one in self.due:
            yield f"{verb} {one.path} ({one.size} bytes, from offset {one.base_offset}): {_reason_text(one)}"
        for kept in self.kept:
            yield f"keep {kept.path}: {kept.why}"
        yield self.summary()

    def summary(self) -> str:
        """Return one line with the totals."""
        of = f"of {self.partitions} partition{'' if self.partitions == 1 else 's'}"
        if not self.due:
            return f"nothing to delete {of}"
        count = f"{len(self.due)} segment{'' if len(self.due) == 1 else 's'} {of}, {self.size} bytes"
        return f"{count} deleted" if self.applied else f"{count} to delete, nothing was changed: give --apply"

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: each segment, each partition kept, then the report."""
        for one in self.due:
            yield json.dumps({"type": "segment", **one._asdict()})
        for kept in self.kept:
            yield json.dumps({"type": "kept", **kept._asdict()})
        totals = {"type": "retain", "applied": self.applied, "segments": len(self.due), "bytes": self.size}
        yield json.dumps({**totals, "partitions": self.partitions})


def _reason_text(one: DueSegment) -> str:
    if one.reason == "time":
        return f"older than retention.ms: its newest record is from {time_text(one.largest_timestamp)}"
    return {"size": "more than retention.bytes", "log start": "below the log start"}[one.reason]


def retain(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    now_ms: int | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> RetainReport:
    """Report what retention deletes from data directories or partition directories; with `apply`, delete it.

    `topics` names those to include (none: all). `settings` are topic settings that override the topics' own, such as
    retention.ms; `store` are broker settings, such as log.retention.hours, for topics without their own. Ages count up
    to `now_ms` (None: now). Without `apply` nothing is locked or changed, and a broker may run.

    Nothing at or above a partition's high watermark is deleted: that is the log end if there is one copy, else the
    offset in the directory's checkpoint. Compacted topics lose only records below their log start, unless their policy
    also has delete.

    PartitionNotFound, NotAPartition, UnknownTopicOrPartition, ConfigError, UnknownConfig, CorruptRecord or
    CorruptCheckpoint for damaged settings; with `apply` DirectoryLocked, StorageError. A log that was not closed
    cleanly is recovered first if it has anything to delete.
    """
    survey = OfflineSurvey.of(paths, topics, settings, store, now_ms, fs, clock)
    plans, kept = plan_retain(survey)
    due = delete_due(plans, fs, clock) if apply else [each for plan in plans for each in look(plan, fs)]
    return RetainReport(tuple(due), tuple(kept), len(survey.found), apply)


def plan_retain(survey: OfflineSurvey) -> tuple[list[OfflinePlan], list[Kept]]:
    """Return the partitions that retention applies to, with their settings, and the others; no log is read."""
    plans: list[OfflinePlan] = []
    kept: list[Kept] = []
    for one in survey.found:
        topic = one.topic_partition.topic
        if not survey.known.has_known_retention(topic, survey.config) and not RETENTION & survey.given.keys():
            kept.append(Kept(one.path, "its topic's settings are unknown: give --retention-ms or --retention-bytes"))
            continue
        plans.append(OfflinePlan(one, survey.config_of(topic), survey.now_ms, survey.mark_is_end(one)))
    return plans, kept
