"""`compact`: what a clean takes from the compacted topics of data directories, told first, done when asked to.

Each topic has the settings that the topics file or the broker's own metadata say; one that is not compacted, or that
nobody knows, is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkalog.cleaner.pass_ import LOAD_FACTOR
from kafkalog.cleaner.types import check_map_bytes
from kafkalog.tools.compact_partition import MAP_BYTES, Cleaned, CompactPlan, clean_dirty, dirty_bytes, look
from kafkalog.tools.offline_survey import Kept, OfflineSurvey, Path
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

POLICY = "cleanup.policy"


@dataclass(frozen=True)
class CompactReport:
    """What was cleaned, or would be without `applied`, and the partitions that were passed over."""

    cleaned: tuple[Cleaned, ...]
    kept: tuple[Kept, ...]
    partitions: int
    applied: bool

    @property
    def size(self) -> int:
        """Bytes that go, or went."""
        return sum(one.size - one.size_kept for one in self.cleaned)

    @property
    def records(self) -> int:
        """Records that go, or went."""
        return sum(one.records - one.records_kept for one in self.cleaned)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The report as text, a line at a time."""
        verb = "cleaned" if self.applied else "clean"
        for one in self.cleaned:
            records = f"{one.records_kept:,} of {one.records:,} records"
            sizes = f"{one.size_kept:,} of {one.size:,} bytes"
            yield f"{verb} {one.path} up to offset {one.end_offset}: keeps {records}, {sizes}"
            if one.without_key:
                yield f"  {one.without_key:,} records without a key {'went' if self.applied else 'go'} too"
        for kept in self.kept:
            yield f"keep {kept.path}: {kept.why}"
        yield self.summary()

    def summary(self) -> str:
        """One line: how much goes or went."""
        of = f"of {self.partitions} partition{'' if self.partitions == 1 else 's'}"
        if not self.cleaned:
            return f"nothing to clean {of}"
        count = f"{self.records:,} records {of}, {self.size:,} bytes"
        return f"{count} removed" if self.applied else f"{count} to remove, nothing was changed: give --apply"

    def json_lines(self) -> Iterator[str]:
        """One JSON object a line: each partition cleaned, each kept, then the report."""
        for one in self.cleaned:
            yield json.dumps({"type": "partition", **one._asdict()})
        for kept in self.kept:
            yield json.dumps({"type": "kept", **kept._asdict()})
        told = {"type": "compact", "applied": self.applied, "records": self.records, "bytes": self.size}
        yield json.dumps({**told, "partitions": self.partitions})


def compact(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    store: Mapping[str, Any] | None = None,
    map_bytes: int = MAP_BYTES,
    from_start: bool = False,
    now_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactReport:
    """What a clean takes from data directories or partition directories; with `apply` it is cleaned.

    `topics` names those to look at (none: all). `settings` are topic settings that count over the topics' own, such as
    delete.retention.ms; `store` are broker settings for topics without their own. `map_bytes` is the memory for keys,
    24 bytes each; `from_start` goes over what is clean already, too. Delete horizons count from `now_ms` (None: now).
    `progress` is called with bytes read. Without `apply` nothing is locked or changed, and a broker may run.

    How dirty a log is, is not asked. min.compaction.lag.ms is; so are the high watermark, open transactions and the
    last segment, which stays as it is.

    IllegalArgument for a map too small for any key; PartitionNotFound, NotAPartition, UnknownTopicOrPartition,
    ConfigError, UnknownConfig, CorruptRecord or CorruptCheckpoint for damage; with `apply` DirectoryLocked,
    StorageError. A log that was not closed well is recovered first where it has anything to clean.
    """
    found = plan_compact(
        paths,
        topics=topics,
        settings=settings,
        store=store,
        map_bytes=map_bytes,
        from_start=from_start,
        now_ms=now_ms,
        fs=fs,
        clock=clock,
    )
    advance = progress or (lambda size: None)
    if apply:
        done = clean_dirty(found.plans, fs, clock, advance)
    else:
        done = [one for plan in found.plans if (one := look(plan, fs, advance)) is not None]
    return CompactReport(tuple(done), found.kept, found.partitions, apply)


class CompactPlans(NamedTuple):
    """The partitions that are compacted, those that are not, and how many there are in all."""

    plans: list[CompactPlan]
    kept: tuple[Kept, ...]
    partitions: int

    def total_bytes(self, fs: FileSystem = OS) -> int:
        """How many bytes there are to go over. StorageError."""
        return sum(dirty_bytes(plan, fs) for plan in self.plans)


def plan_compact(
    paths: Path | Iterable[Path],
    *,
    topics: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    store: Mapping[str, Any] | None = None,
    map_bytes: int = MAP_BYTES,
    from_start: bool = False,
    now_ms: int | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactPlans:
    """What counts for each partition that the paths stand for; no log is looked at. Arguments, errors: `compact`."""
    check_map_bytes(map_bytes, LOAD_FACTOR)
    survey = OfflineSurvey.of(paths, topics, settings, store, now_ms, fs, clock)
    plans: list[CompactPlan] = []
    kept: list[Kept] = []
    for one in survey.found:
        topic = one.topic_partition.topic
        topic_config = survey.config_of(topic)
        if survey.known.settings_of(topic) is None and POLICY not in survey.given:
            kept.append(Kept(one.path, "nobody knows its topic's settings: give --cleanup-policy compact"))
        elif not topic_config.compact:
            kept.append(Kept(one.path, f"its {POLICY} is {','.join(sorted(topic_config.cleanup_policy))}"))
        else:
            mark_is_end = survey.mark_is_end(one)
            plans.append(CompactPlan(one, topic_config, survey.now_ms, mark_is_end, map_bytes, from_start))
    return CompactPlans(plans, tuple(kept), len(survey.found))
