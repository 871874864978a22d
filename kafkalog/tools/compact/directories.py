"""`compact`: clean the compacted topics of data directories; a dry run by default.

Each topic has its settings from the topics file or the broker's own metadata. A topic that is not compacted, or whose
settings are unknown, is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafkalog.cleaner.pass_ import LOAD_FACTOR
from kafkalog.cleaner.types import check_map_bytes
from kafkalog.tools.compact.partition import (
    MAP_BYTES,
    Cleaned,
    CompactPlan,
    clean_dirty,
    explain_nothing,
    look,
)
from kafkalog.tools.directories import Path
from kafkalog.tools.offline_survey import Kept, OfflineSurvey
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.text import plural

POLICY = "cleanup.policy"


@dataclass(frozen=True)
class CompactReport:
    """The partitions that were cleaned (would be, without `applied`), and those that were skipped."""

    cleaned: tuple[Cleaned, ...]
    kept: tuple[Kept, ...]
    partitions: int
    applied: bool

    @property
    def size(self) -> int:
        """Bytes removed, or to be removed."""
        return sum(one.size - one.size_kept for one in self.cleaned)

    @property
    def records(self) -> int:
        """Number of records removed, or to be removed."""
        return sum(one.records - one.records_kept for one in self.cleaned)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line."""
        verb = "cleaned" if self.applied else "clean"
        for one in self.cleaned:
            records = f"{one.records_kept:,} of {one.records:,} records"
            sizes = f"{one.size_kept:,} of {one.size:,} bytes"
            yield f"{verb} {one.path} up to offset {one.end_offset}: keeps {records}, {sizes}"
            if one.without_key:
                yield f"  removed for lack of a key: {plural(one.without_key, 'record')}"
        for kept in self.kept:
            yield f"keep {kept.path}: {kept.why}"
        yield self.summary()

    def summary(self) -> str:
        """Return one line with the totals."""
        of = f"of {plural(self.partitions, 'partition')}"
        if not self.cleaned:
            return f"nothing to clean {of}"
        count = f"{plural(self.records, 'record')} {of}, {plural(self.size, 'byte')}"
        return f"{count} removed" if self.applied else f"{count} to remove, nothing was changed: give --apply"

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: each partition cleaned, each kept, then the report."""
        for one in self.cleaned:
            yield json.dumps({"type": "partition", **one._asdict()})
        for kept in self.kept:
            yield json.dumps({"type": "kept", **kept._asdict()})
        totals = {"type": "compact", "applied": self.applied, "records": self.records, "bytes": self.size}
        yield json.dumps({**totals, "partitions": self.partitions})


def compact(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    map_bytes: int = MAP_BYTES,
    from_start: bool = False,
    roll: bool = False,
    now_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactReport:
    """Report what a clean of data directories or partition directories removes; with `apply`, clean them.

    `topics` names those to clean (none: all). `settings` are topic settings that override the topics' own, such as
    delete.retention.ms; `store` are broker settings for topics without their own. `map_bytes` is the memory for keys,
    24 bytes each. `from_start` also cleans the part that is clean already, and `roll` begins a new segment first, so
    that the last one is cleaned as well. Delete horizons count from `now_ms` (None: now). `progress` is called with
    bytes read. Without `apply` nothing is locked or changed, and a broker may run.

    The dirty ratio is ignored. min.compaction.lag.ms applies, and so do the high watermark, open transactions and the
    last segment, which stays as it is without `roll`.

    IllegalArgument for a map too small for any key; PartitionNotFound, NotAPartition, UnknownTopicOrPartition,
    ConfigError, UnknownConfig, CorruptRecord or CorruptCheckpoint for damage; with `apply` DirectoryLocked,
    StorageError. A log that was not closed cleanly is recovered first if it has anything to clean.
    """
    survey = OfflineSurvey.of(paths, topics, settings, store, now_ms, fs, clock)
    plans, skipped = plan_compact(survey, map_bytes, from_start=from_start, roll=roll)
    advance = progress or (lambda size: None)
    if apply:
        done = clean_dirty(plans, fs, clock, advance)
    else:
        done = [one for plan in plans if (one := look(plan, fs, advance)) is not None]
    cleaned_paths = {one.path for one in done}
    idle = [plan for plan in plans if plan.place.path not in cleaned_paths]
    left = [Kept(plan.place.path, why) for plan in idle if (why := explain_nothing(plan, fs)) is not None]
    return CompactReport(tuple(done), (*skipped, *left), len(survey.found), apply)


def plan_compact(
    survey: OfflineSurvey, map_bytes: int = MAP_BYTES, *, from_start: bool = False, roll: bool = False
) -> tuple[list[CompactPlan], list[Kept]]:
    """Return the compacted partitions with their settings, and the others; no log is read. Arguments: `compact`."""
    check_map_bytes(map_bytes, LOAD_FACTOR)
    plans: list[CompactPlan] = []
    kept: list[Kept] = []
    for one in survey.found:
        topic = one.topic_partition.topic
        topic_config = survey.config_of(topic)
        if survey.known.settings_of(topic) is None and POLICY not in survey.given:
            kept.append(Kept(one.path, "its topic's settings are unknown: give --cleanup-policy compact"))
        elif not topic_config.compact:
            kept.append(Kept(one.path, f"its {POLICY} is {','.join(sorted(topic_config.cleanup_policy))}"))
        else:
            mark_is_end = survey.mark_is_end(one)
            plans.append(CompactPlan(one, topic_config, survey.now_ms, mark_is_end, map_bytes, from_start, roll))
    return plans, kept
