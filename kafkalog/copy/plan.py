"""Plan of a copy: each topic's settings in the target, and the table of what the target cannot keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafkalog.copy.facts import SourcePartition, SourceTopic, TargetTopic, TargetTraits
from kafkalog.copy.report import NotKept
from kafkalog.errors import IllegalArgument, TopicExists

OFFSETS: Final = ("auto", "keep", "new")
"""Modes: keep offsets as far as the target allows; require that; or append behind records of others."""
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
_NODE_SETTINGS: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
KEEPERS: Final = "a mirror, or a copy to the directory of a server that is stopped, keeps them"
"""Ways to keep offsets behind gaps."""
_NEXT_RUN: Final = "a transaction is open there; a later run copies them once it has ended"


class TopicPlan(NamedTuple):
    """A topic to copy: the settings with which it is created if it is not `existing`, and what is not kept of it."""

    topic: SourceTopic
    settings: Mapping[str, str]
    existing: TargetTopic | None
    not_kept: tuple[NotKept, ...]


def plan_topic(
    topic: SourceTopic,
    existing: TargetTopic | None,
    traits: TargetTraits,
    *,
    offsets: str = "auto",
    isolation: str = "read_uncommitted",
) -> TopicPlan:
    """Return the plan for a topic.

    Partitions that the topic there lacks are added to it if it is a copy: a log whose records are compared with the
    source's, or a topic of which earlier runs copied a part. Raises IllegalArgument if offsets are to be kept but the
    target cannot, TopicExists if it has fewer partitions and is no copy.
    """
    if existing is not None and existing.ends and len(existing.ends) < topic.partition_count:
        if not traits.keeps_log and not existing.copied:
            raise TopicExists(
                f"topic {topic.name} has {len(existing.ends)} partitions in {traits.name}, but {topic.partition_count} "
                "in the source", hint="add partitions there, so that each record stays in its partition",
            )  # fmt: skip
    settings, dropped = _settings(topic, traits)
    rows = [*_topic_rows(topic, traits, isolation), *dropped, *_existing_rows(topic, existing, settings)]
    for number, partition in sorted(topic.partitions.items()):
        where = f"{topic.name}-{number}"
        moved = list(_offset_rows(where, topic, partition, traits, _end_of(existing, number), offsets))
        if offsets == "keep" and any(not row.what.endswith("?") for row in moved):
            raise IllegalArgument(
                f"the offsets of {where} cannot be kept: {moved[0].why}", hint=f"omit --offsets keep; {KEEPERS}"
            )
        rows += moved
        if partition.stop < partition.end:
            rows.append(NotKept(where, f"records from offset {partition.stop} on", _NEXT_RUN))
    return TopicPlan(topic, settings, existing, tuple(rows))


def _end_of(existing: TargetTopic | None, partition: int) -> int:
    return 0 if existing is None else existing.ends.get(partition, 0)


def _settings(topic: SourceTopic, traits: TargetTraits) -> tuple[dict[str, str], list[NotKept]]:
    kept, rows = {}, []
    if topic.settings is None:
        return {}, [NotKept(topic.name, "settings", "the source has none; the target's defaults apply")]
    for name, value in sorted(topic.settings.items()):
        if name in _NODE_SETTINGS:
            rows.append(NotKept(topic.name, name, "it names nodes of the source"))
        elif traits.settings is not None and name not in traits.settings:
            rows.append(NotKept(topic.name, name, "the target does not have this setting"))
        else:
            kept[name] = value
    return kept, rows


def _existing_rows(
    topic: SourceTopic, existing: TargetTopic | None, settings: Mapping[str, str]
) -> Iterator[NotKept]:
    if existing is None or topic.settings is None:
        return
    for name in sorted(settings.keys() | existing.settings.keys()):
        here, there = settings.get(name), existing.settings.get(name)
        if here != there:
            yield NotKept(topic.name, name, f"the topic exists with {_value(there)} instead of {_value(here)}")


def _value(text: str | None) -> str:
    return "the default" if text is None else ascii(text)


def _any(topic: SourceTopic, name: str) -> bool:
    return any(one.survey is not None and getattr(one.survey, name) for one in topic.partitions.values())


def _topic_rows(topic: SourceTopic, traits: TargetTraits, isolation: str) -> Iterator[NotKept]:
    """Yield what no partition of the topic keeps."""
    name, settings = topic.name, topic.settings or {}
    unknown = any(one.survey is None for one in topic.partitions.values())
    if traits.keeps_log:
        if isolation == "read_committed":
            yield NotKept(name, "aborted records, markers", "only committed records were requested")
        return
    yield NotKept(name, "topic id, leader epochs", "a cluster assigns its own")
    if _any(topic, "has_transactions") or (unknown and not topic.is_compacted):
        aborted = "transactions" if _any(topic, "has_transactions") else "transactions, if any"
        yield NotKept(name, aborted, "committed records are written as plain ones, aborted ones are left out")
    if _any(topic, "has_producers") or unknown:
        yield NotKept(name, "producer ids, sequences", "the copy writes with a producer id of the target")
    if _any(topic, "has_old_formats"):
        yield NotKept(name, "formats v0 and v1", "a cluster takes batches of format v2; timestamps, keys, values stay")
    if settings.get("message.timestamp.type") == "LogAppendTime":
        yield NotKept(name, "timestamps", "message.timestamp.type is LogAppendTime: brokers set the time of the copy")
    elif _any(topic, "has_append_time"):
        yield NotKept(name, "timestamp type", "append times become times of the producer, with the same value")
    if settings.get("compression.type", "producer") != "producer":
        yield NotKept(name, "compression", f"the topic's compression.type is {settings['compression.type']}")


def _offset_rows(
    where: str, topic: SourceTopic, one: SourcePartition, traits: TargetTraits, end: int, offsets: str
) -> Iterator[NotKept]:
    """Yield why offsets of a partition move; a row whose `what` ends with "?" is a possibility."""
    if traits.keeps_log:
        return
    if one.start > 0 and one.stop > one.start and end < one.stop:
        yield NotKept(where, "offsets", f"the source begins at {one.start}, and a cluster's log at 0")
    if one.survey is not None and one.survey.has_gaps:
        yield NotKept(where, "offsets", "the source has gaps, and no client can produce to an offset")
    if offsets == "new" and end:
        yield NotKept(where, "offsets", f"the target has {end} offsets already, behind which records are appended")
    if one.survey is None and one.stop > one.start:
        why = "compaction leaves" if topic.is_compacted else "transactions leave"
        yield NotKept(where, "offsets?", f"{why} gaps, if there are any: records behind a gap move down")


def check_names(names: Iterable[str], known: Iterable[str], internal: frozenset[str]) -> list[str]:
    """Return the topics to copy: `names`, or all that are not internal. Raises IllegalArgument for an internal one."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name in internal:
            raise IllegalArgument(
                f"{name} has a cluster's own state and is not copied",
                hint="offsets of groups are copied with the topics they belong to",
            )
    return wanted or sorted(set(known) - internal)
