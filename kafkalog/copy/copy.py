"""`copy_topics`: plan, records, then offsets of groups; a dry run ends with the plan."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafkalog.backup.create import check_places
from kafkalog.backup.manifest import Offsets
from kafkalog.copy.cluster import ClusterClient
from kafkalog.copy.cluster_source import ClusterSource
from kafkalog.copy.cluster_target import ClusterTarget
from kafkalog.copy.directory_target import DirectoryTarget
from kafkalog.copy.facts import INTERNAL, SourceTopic
from kafkalog.copy.marker import GROUP
from kafkalog.copy.places import is_cluster, parse_addresses, settings_for
from kafkalog.copy.plan import ISOLATIONS, OFFSETS, TopicPlan, check_names, plan_topic
from kafkalog.copy.report import CopiedPartition, CopyReport, NotKept
from kafkalog.copy.sources import Source, open_files
from kafkalog.copy.targets import Copied, PartitionJob, Target
from kafkalog.errors import IllegalArgument, UnknownTopicOrPartition
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.packages import check_packages
from kafkalog.server.running import loop_factory
from kafkalog.storage.names import validate_topic
from kafkalog.storage.remote import is_url, refuse_to_write
from kafkalog.types import TopicPartition


class _Options(NamedTuple):
    topics: tuple[str, ...]
    groups: tuple[str, ...] | None
    offsets: str
    isolation: str
    tiered: str | None
    apply: bool
    progress: Callable[[int], object]


def copy_topics(
    source: str | Sequence[str],
    target: str,
    topics: Iterable[str] = (),
    *,
    groups: Iterable[str] | None = None,
    offsets: str = "auto",
    isolation: str = "read_uncommitted",
    tiered: str | None = None,
    settings: Mapping[str, str] | None = None,
    apply: bool = False,
    progress: Callable[[int], object] = lambda size: None,
) -> CopyReport:
    """Copy topics with their settings, records and groups' offsets; return what was copied and what is not kept.

    `source` is a cluster (`kafka://HOST:PORT,...`), data directories, a backup, a directory of backups, or a tiered
    store; `target` is a cluster or a data directory. Without `topics`, all but internal ones are copied; without
    `groups`, the offsets of all groups. Without `apply` nothing is written. After a kill or an error, the same call
    continues; every record is written once.

    `offsets`: "auto" keeps them as far as the target allows, "keep" requires that, "new" appends behind other records
    of a topic in a cluster. `isolation` "read_committed" leaves out aborted records and markers of transactions in a
    directory; a cluster gets only committed records. `tiered` is the store with the tiered segments of a source of
    files: its URL, or a file that describes it (docs/tiered.md). `settings` are those of Kafka's clients, for one side
    with the prefix `source.` or `target.`. `progress` is called with the bytes written.

    Raises IllegalArgument, UnknownTopicOrPartition; TopicExists, IllegalState, InconsistentTopicId if the target has
    other records; CorruptRecord, OffsetOutOfRange, PeerError for the source, StorageError, DirectoryLocked, PeerError,
    Unauthorized and other errors of brokers for the target. What was copied before is whole.

    >>> log.flush()
    >>> print(copy_topics("data", "copied"))
    orders-0: offsets 0 to 2, 2 to copy
    everything is kept
    1 topic, 1 partition, 0 groups: nothing was written, give --apply
    >>> copy_topics("data", "copied", apply=True).records
    2
    """
    sources = [source] if isinstance(source, str) else [os.fspath(one) for one in source]
    if offsets not in OFFSETS or isolation not in ISOLATIONS:
        raise IllegalArgument(f"offsets {offsets!r}, isolation {isolation!r}", hint=f"{OFFSETS} and {ISOLATIONS}")
    names = tuple(map(validate_topic, topics))
    chosen = None if groups is None else tuple(groups)
    _check_ends(sources, target)
    if tiered is not None and is_cluster(sources[0]):
        raise IllegalArgument("a cluster reads its tiered segments itself", hint="omit the tiered store")
    options = _Options(names, chosen, offsets, isolation, tiered, apply, progress)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_copy(sources, target, dict(settings or {}), options))


def _check_ends(sources: Sequence[str], target: str) -> None:
    if not sources or (len(sources) > 1 and any(map(is_cluster, sources))):
        raise IllegalArgument("give one cluster, or data directories, as the source")
    if is_cluster(target) or is_cluster(sources[0]):
        check_packages()
    if is_cluster(target):
        return
    refuse_to_write(target)
    local = [os.path.realpath(one) for one in sources if not is_cluster(one) and not is_url(one)]
    if local:
        check_places(local, os.path.realpath(target))


async def _copy(sources: Sequence[str], target: str, settings: dict[str, str], options: _Options) -> CopyReport:
    source = _open_source(sources, settings, options.tiered)
    try:
        opened = _open_target(target, settings)
        try:
            await _check_clusters(source, opened)
            return await _Run(source, opened, options).run()
        finally:
            await opened.close()
    finally:
        await source.close()


def _client(place: str, side: str, settings: dict[str, str]) -> ClusterClient:
    return ClusterClient(place, parse_addresses(place), peer_settings(settings_for(side, settings)))


def _open_source(places: Sequence[str], settings: dict[str, str], tiered: str | None) -> Source:
    if is_cluster(places[0]):
        return ClusterSource(_client(places[0], "source", settings))
    return open_files(places, tiered)


def _open_target(place: str, settings: dict[str, str]) -> Target:
    return ClusterTarget(_client(place, "target", settings)) if is_cluster(place) else DirectoryTarget(place)


async def _check_clusters(source: Source, target: Target) -> None:
    if isinstance(source, ClusterSource) and isinstance(target, ClusterTarget):
        one, other = await source.cluster_id(), await target.cluster_id()
        if one is not None and one == other:
            raise IllegalArgument("the source and the target are the same cluster")


class _Run:
    """One run of a copy."""

    def __init__(self, source: Source, target: Target, options: _Options) -> None:
        self._source = source
        self._target = target
        self._options = options

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
        report = self._report([one.report for one in copied.values()], rows, len(groups.keys() - left.keys()))
        return replace(report, groups_left=tuple(sorted(left)))

    async def _copy_all(self, jobs: Sequence[PartitionJob]) -> dict[TopicPartition, Copied]:
        """Copy partitions, as many at once as the target takes; the first error ends all of them."""
        limit = asyncio.Semaphore(self._target.traits.at_once)

        async def copy(job: PartitionJob) -> Copied:
            async with limit:
                return await self._target.copy(job)

        tasks = [asyncio.ensure_future(copy(job)) for job in jobs]
        try:
            results = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        return {job.key: result for job, result in zip(jobs, results, strict=True)}

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
            topic = await self._source.topic(name, surveys=not traits.keeps_log)
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
    """Return the groups' offsets in the target, and the source's offsets of those that are unknown there."""
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
