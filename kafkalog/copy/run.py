"""One run of a copy: the plan, the records, then the offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.backup.manifest import Offsets
from kafkalog.copy.facts import INTERNAL, SourceTopic
from kafkalog.copy.marker import GROUP
from kafkalog.copy.plan import TopicPlan, check_names, plan_topic
from kafkalog.copy.report import CopiedPartition, CopyReport, NotKept
from kafkalog.copy.targets import Copied, PartitionJob
from kafkalog.errors import IllegalArgument, UnknownTopicOrPartition
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.copy.sources import Source
    from kafkalog.copy.targets import Target


class Options(NamedTuple):
    """Options of a copy, as `copy_topics` takes them."""


    topics: tuple[str, ...]
    groups: tuple[str, ...] | None
    offsets: str
    isolation: str
    tiered: str | None
    apply: bool
    progress: Callable[[int], object]
    is_stopped: Callable[[], bool] = lambda: False
    to_tiered: str | None = None


class State(NamedTuple):
    """State of a source that is followed: the readable end of each partition, and the offsets of groups."""

    ends: Mapping[tuple[str, int], int]
    groups: Offsets


class CopyRun:
    """One run of a copy. With `surveys` the headers of a source of files say what the target does not keep."""

    def __init__(self, source: Source, target: Target, options: Options, *, surveys: bool = True) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._surveys = surveys

    async def run(self) -> CopyReport:
        """Plan everything; with `apply`, copy everything."""
        options = self._options
        names = check_names(options.topics, await self._source.names(), INTERNAL)
        if not names:
            raise UnknownTopicOrPartition(f"there is no topic to copy in {self._source.name}")
        groups = await self._groups(names)  # before the records: no group is ahead of what is copied
        plans = await self._plan(names)
        not_kept = [row for plan in plans for row in plan.not_kept]
        if not options.apply:
            return self._report([one for plan in plans for one in _planned(plan)], not_kept, len(groups))
        jobs = []
        for plan in plans:
            await self._target.create(plan)
            keys = [TopicPartition(plan.topic.name, number) for number in sorted(plan.topic.partitions)]
            jobs += [self._job(key, plan.topic, groups) for key in keys]
        copied = await self._copy_all(jobs)
        not_kept += [row for one in copied.values() for row in one.not_kept]
        wanted, unknown = _translated(groups, copied)
        refused = await self._target.commit(wanted)
        left = {group: NotKept(f"group {group}", "offsets", why) for group, why in refused.items()}
        not_kept = _with_results(not_kept, copied)
        for group, offsets in unknown.items():
            known = await self._target.committed(group, list(offsets))
            not_kept += [_unknown_offset(group, key, offset, known.get(key)) for key, offset in offsets.items()]
            if len(known) < len(offsets):
                left.setdefault(group, not_kept[-1])
        rows = [*not_kept, *left.values()]
        await self._target.finish()
        report = self._report([one.report for one in copied.values()], rows, len(groups.keys() - left.keys()))
        return replace(report, groups_left=tuple(sorted(left)))

    async def state(self) -> State:
        """Return the ends of the topics and the offsets of the groups: if unchanged, a later run has nothing to do."""
        names = check_names(self._options.topics, await self._source.names(), INTERNAL)
        groups = await self._groups(names)
        topics = [await self._source.topic(name, surveys=False) for name in names]
        ends = {(one.name, number): part.stop for one in topics for number, part in one.partitions.items()}
        return State(ends, groups)

    async def _copy_all(self, jobs: Sequence[PartitionJob]) -> dict[TopicPartition, Copied]:
        """Copy partitions, as many at a time as the target allows; the first error ends all of them.

        Partitions that a stop prevented are left out.
        """
        limit = asyncio.Semaphore(self._target.traits.at_once)

        async def copy(job: PartitionJob) -> Copied | None:
            async with limit:
                return None if job.is_stopped() else await self._target.copy(job)

        tasks = [asyncio.ensure_future(copy(job)) for job in jobs]
        try:
            results = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        return {job.key: one for job, one in zip(jobs, results, strict=True) if one is not None}

    async def _groups(self, names: Sequence[str]) -> Offsets:
        chosen = self._options.groups
        if chosen is not None and not chosen:
            return {}
        found = await self._source.groups(names)
        found.pop(GROUP, None)
        missing = sorted(set(chosen or ()) - found.keys())
        if missing:
            raise IllegalArgument(f"group {ascii(missing[0])} has no offsets in these topics", hint="check its name")
        return found if chosen is None else {group: found[group] for group in chosen}

    async def _plan(self, names: Sequence[str]) -> list[TopicPlan]:
        options, traits = self._options, self._target.traits
        existing = await self._target.existing(names)
        plans = []
        for name in names:
            topic = await self._source.topic(name, surveys=self._surveys and not traits.keeps_log)
            plan = plan_topic(
                topic, existing.get(name), traits, offsets=options.offsets, isolation=options.isolation
            )
            await self._target.check(plan)
            plans.append(plan)
        return plans

    def _job(self, key: TopicPartition, topic: SourceTopic, groups: Offsets) -> PartitionJob:
        offsets = [one[key.topic][key.partition] for one in groups.values() if key.partition in one.get(key.topic, {})]
        return PartitionJob(
            key, topic, topic.partitions[key.partition], self._source, self._options.offsets,
            self._options.isolation, min(offsets, default=None), self._options.progress,
            self._options.is_stopped,
        )  # fmt: skip

    def _report(
        self, partitions: Iterable[CopiedPartition], not_kept: Iterable[NotKept], groups: int
    ) -> CopyReport:
        return CopyReport(
            self._source.name, self._target.traits.name, tuple(partitions), tuple(dict.fromkeys(not_kept)), groups,
            self._options.apply,
        )  # fmt: skip


def _planned(plan: TopicPlan) -> list[CopiedPartition]:
    """Return the partitions of a dry run."""
    copied = {} if plan.existing is None else plan.existing.copied
    found = []
    for number, one in sorted(plan.topic.partitions.items()):
        before = max(0, min(copied.get(number, 0), one.stop) - one.start)
        found.append(
            CopiedPartition(plan.topic.name, number, one.start, one.stop, one.start, one.stop, before, 0, 0, "kept")
        )
    return found


def _translated(
    groups: Offsets, copied: Mapping[TopicPartition, Copied]
) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, dict[TopicPartition, int]]]:
    """Return the groups' offsets in the target, and the source offsets without a known target offset."""
    found: dict[str, dict[TopicPartition, int]] = {}
    unknown: dict[str, dict[TopicPartition, int]] = {}
    for group, topics in groups.items():
        for topic, offsets in topics.items():
            for number, offset in offsets.items():
                key = TopicPartition(topic, number)
                if key not in copied:
                    continue
                translated = copied[key].translate(offset)
                if translated is None:
                    unknown.setdefault(group, {})[key] = offset
                else:
                    found.setdefault(group, {})[key] = translated
    return found, unknown


def _unknown_offset(group: str, key: TopicPartition, offset: int, known: int | None) -> NotKept:
    why = "earlier runs copied that part, and compaction or retention may have changed it since"
    stays = "none is committed" if known is None else f"{known} stays committed"
    return NotKept(f"group {group}", f"offset {offset} of {key}", f"{stays}: {why}")


def _with_results(rows: Iterable[NotKept], copied: Mapping[TopicPartition, Copied]) -> list[NotKept]:
    """Replace possibilities of the plan ("offsets?") by what happened."""
    moved = {str(key) for key, one in copied.items() if one.report.offsets == "new"}
    found = []
    for row in rows:
        if row.what != "offsets?":
            found.append(row)
        elif row.where in moved:
            found.append(row._replace(what="offsets", why="the source has gaps: records behind a gap moved down"))
    return found
