"""`kafkalog topics list | describe | create | alter | delete`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.tools.catalog import TopicDescription


@click.group("topics")
def command() -> None:
    """List, describe, create, alter and delete topics."""


@command.command("list")
@common.dir_option
@common.json_option("Print one JSON object for each topic.")
@common.quiet_options
def list_topics(dirs: tuple[str, ...], as_json: bool) -> None:
    """Print the names of all topics; -v adds the number of partitions and the size in bytes.

    Example: kafkalog topics list -d data
    """
    from kafkalog.tools.catalog import topics

    for topic in topics(common.need_dirs(dirs)):
        if as_json:
            print(json.dumps({"topic": topic.name, "partitions": len(topic.partitions), "bytes": topic.size}))
        elif common.verbosity():
            print(f"{topic.name}\t{len(topic.partitions)}\t{topic.size}")
        else:
            print(topic.name)


@command.command("describe")
@common.dir_option
@common.topics_option
@common.json_option("Print one JSON object for each topic.")
@common.quiet_options
def describe(dirs: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> None:
    """Print the id, settings and partitions of topics.

    Each partition is shown with its directory, offsets, segments and size in bytes.

    Example: kafkalog topics describe -d data -t orders
    """
    from kafkalog.tools.catalog import describe_topic
    from kafkalog.tools.directories import partitions

    where = common.need_dirs(dirs)
    for topic in topics or dict.fromkeys(one.topic_partition.topic for one in partitions(where)):
        found = describe_topic(where, topic)
        print(json.dumps(found.as_dict()) if as_json else "\n".join(_described(found)))


def _described(topic: TopicDescription) -> Iterator[str]:
    settings = common.settings_text(topic.settings)
    yield (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id or '-'}\t"
        f"PartitionCount: {len(topic.partitions)}\tConfigs: {settings}"
    )
    for part in topic.partitions:
        yield (
            f"\tPartition: {part.partition}\tStart: {part.start_offset}\tEnd: {part.end_offset}\t"
            f"Segments: {part.segments}\tBytes: {part.size}\tDir: {part.path}"
        )


@command.command("create")
@common.dir_option
@common.topic_option(required=True)
@click.option(
    "--partitions", type=click.IntRange(1, 2**31 - 1), default=1, show_default=True, help="Number of partitions."
)
@common.settings_option("Topic setting, such as segment.bytes=104857600", "-c", "--config")
@click.option("--replication-factor", type=int, default=1, help="Must be 1: there is no other broker.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@common.quiet_options
def create(
    dirs: tuple[str, ...],
    topic: str,
    partitions: int,
    settings: dict[str, str],
    replication_factor: int,
    if_not_exists: bool,
) -> None:
    """Create a topic: its entry in the topics file, and an empty log for each partition.

    The partitions are created in the first directory given; it is created if missing.

    Example: kafkalog topics create -d data -t orders --partitions 3 -c retention.ms=86400000
    """
    from kafkalog.dirs.create import create_topic
    from kafkalog.errors import InvalidReplicationFactor, TopicExists

    if replication_factor != 1:
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is not supported: kafkalog writes one copy on this machine",
            hint="omit --replication-factor, or give 1",
        )
    where = common.need_dirs(dirs)
    try:
        create_topic(where, topic, partitions, settings)
    except TopicExists:
        if not if_not_exists:
            raise
        common.note(f"topic {topic} exists")
        return
    common.note(f"created topic {topic} with {common.plural(partitions, 'partition')} in {where[0]}")


@command.command("alter")
@common.dir_option
@common.topic_option(required=True)
@common.settings_option("Topic setting to change, such as retention.ms=3600000", "-c", "--config")
@click.option("--delete-config", "deleted", multiple=True, metavar="NAME", help="Reset it to its default; repeatable.")
@click.option("--partitions", type=click.IntRange(1, 2**31 - 1), help="New number of partitions; it can only grow.")
@common.quiet_options
def alter(
    dirs: tuple[str, ...],
    topic: str,
    settings: dict[str, str],
    deleted: tuple[str, ...],
    partitions: int | None,
) -> None:
    """Change settings of a topic, or add partitions.

    The settings are stored in the topics file. A topic that a broker created gets an entry there, which kafkalog then
    uses. A broker uses its own metadata: change its topics with its own tools. The directories must not be in use.

    Example: kafkalog topics alter -d data -t orders -c retention.ms=3600000 --delete-config segment.bytes
    """
    from kafkalog.dirs.create import add_partitions
    from kafkalog.tools.topic_changes import alter_topic

    both = [name for name in deleted if name in settings]
    if both:
        raise click.UsageError(f"{both[0]} is both set and deleted")
    if not settings and not deleted and partitions is None:
        raise click.UsageError("nothing to change: give --config, --delete-config or --partitions")
    where = common.need_dirs(dirs)
    if settings or deleted:
        entry = alter_topic(where, topic, {**settings, **dict.fromkeys(deleted)})
        common.note(f"{topic}: " + (common.settings_text(entry.settings) or "no settings of its own"))
    if partitions is not None:
        added = add_partitions(where, topic, partitions)
        common.note(f"{topic}: added {common.plural(added, 'partition')}, it now has {partitions}")


@command.command("delete")
@common.dir_option
@common.topic_option(required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if the topic is missing.")
@common.apply_option
@common.quiet_options
def delete(dirs: tuple[str, ...], topic: str, if_exists: bool, dry_run: bool) -> None:
    """Delete a topic with all its records, permanently.

    Dry run by default; --apply deletes. The directories must not be in use then.

    Example: kafkalog topics delete -d data -t orders --apply
    """
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.tools.topic_changes import delete_topic, is_in_broker_metadata

    where = common.need_dirs(dirs)
    try:
        partitions = delete_topic(where, topic, apply=not dry_run)
    except UnknownTopicOrPartition:
        if not if_exists:
            raise
        common.note(f"there is no topic {topic}")
        return
    what = f"topic {topic} with {common.plural(len(partitions), 'partition')}"
    if dry_run:
        for _, path in partitions:
            print(f"delete {path}")
        common.note(f"{what} to delete, nothing was changed: give --apply")
        return
    common.note(f"deleted {what}")
    if is_in_broker_metadata(where, topic):
        common.note(f"the broker's metadata still has {topic}: a broker recreates it, empty")
