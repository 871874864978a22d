"""`kafkalog topics list | describe | create`."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common


@click.group("topics")
def command() -> None:
    """List, describe and create topics."""


@command.command("list")
@common.dir_option
@click.option("-J", "as_json", is_flag=True, help="One JSON object per line.")
@common.quiet_options
def list_topics(dirs: tuple[str, ...], as_json: bool, quiet: bool, verbose: int) -> None:
    """Print the names of all topics (with -v the number of partitions and the bytes they take)."""
    from kafkalog.tools.catalog import topics

    common.set_verbosity(quiet, verbose)
    for topic in topics(common.need_dirs(dirs)):
        if as_json:
            click.echo(json.dumps({"topic": topic.name, "partitions": len(topic.partitions), "bytes": topic.size}))
        elif verbose:
            click.echo(f"{topic.name}\t{len(topic.partitions)}\t{topic.size}")
        else:
            click.echo(topic.name)


@command.command("describe")
@common.dir_option
@common.topic_option(required=True)
@click.option("-J", "as_json", is_flag=True, help="One JSON object.")
@common.quiet_options
def describe(dirs: tuple[str, ...], topic: str, as_json: bool, quiet: bool, verbose: int) -> None:
    """Print id, settings and partitions of a topic: where each lies, its offsets, segments and bytes."""
    from kafkalog.tools.catalog import describe_topic

    common.set_verbosity(quiet, verbose)
    found = describe_topic(common.need_dirs(dirs), topic)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    settings = ",".join(f"{name}={value}" for name, value in sorted(found.settings.items()))
    click.echo(
        f"Topic: {found.name}\tTopicId: {found.topic_id or '-'}\t"
        f"PartitionCount: {len(found.partitions)}\tConfigs: {settings}"
    )
    for part in found.partitions:
        click.echo(
            f"\tPartition: {part.partition}\tStart: {part.start_offset}\tEnd: {part.end_offset}\t"
            f"Segments: {part.segments}\tBytes: {part.size}\tDir: {part.path}"
        )


@command.command("create")
@common.dir_option
@common.topic_option(required=True)
@click.option(
    "--partitions", type=click.IntRange(1, 2**31 - 1), default=1, show_default=True, help="Number of partitions."
)
@click.option(
    "--config",
    "-X",
    "-c",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda ctx, param, given: common.parse_settings(given, "--config"),
    help="Topic setting, such as segment.bytes=104857600; repeats.",
)
@click.option("--replication-factor", type=int, default=1, help="Only 1 is possible: there is no other broker.")
@click.option("--if-not-exists", is_flag=True, help="No error where the topic exists.")
@common.quiet_options
def create(
    dirs: tuple[str, ...],
    topic: str,
    partitions: int,
    settings: dict[str, str],
    replication_factor: int,
    if_not_exists: bool,
    quiet: bool,
    verbose: int,
) -> None:
    """Create a topic: its entry in the topics file, and an empty log for each partition.

    The first directory given gets the partitions; it is made if it is missing.
    """
    from kafkalog.creating import create_topic
    from kafkalog.errors import InvalidReplicationFactor, TopicExists

    common.set_verbosity(quiet, verbose)
    if replication_factor != 1:
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} cannot be had: kafkalog writes one copy on this machine",
            hint="leave --replication-factor out, or give 1",
        )
    where = common.need_dirs(dirs)
    try:
        create_topic(where, topic, partitions, settings)
    except TopicExists:
        if not if_not_exists:
            raise
        common.note(f"topic {topic} exists", quiet=quiet)
        return
    common.note(f"created topic {topic} with {common.plural(partitions, 'partition')} in {where[0]}", quiet=quiet)
