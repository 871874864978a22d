"""`kafkalog offsets`: the offset of a topic's partitions at a time; readers' positions are in `cursors_cmd`."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common, cursors_cmd


@click.group("offsets")
def command() -> None:
    """Find offsets by time, and see or move the positions that readers keep by name."""


for _command in (cursors_cmd.groups, cursors_cmd.reset, cursors_cmd.delete):
    command.add_command(_command)


@command.command("get")
@common.dir_option
@common.topic_option(required=False)
@common.partition_option(multiple=True)
@click.option(
    "--time",
    "time_text",
    default="-1",
    show_default=True,
    metavar="TIME",
    help="-1 or latest: the end; -2 or earliest: the start; -3 or max-timestamp: the record with the "
    "largest time; else ms since 1970 or ISO-8601 (UTC where no zone is given): the first record at or after.",
)
@click.option("-J", "as_json", is_flag=True, help="One JSON object per partition.")
@common.isolation_option
@common.settings_option
@common.quiet_options
def get(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    time_text: str,
    as_json: bool,
    isolation_level: str | None,
    settings: dict[str, str],
    quiet: bool,
    verbose: int,
) -> None:
    """Print TOPIC:PARTITION:OFFSET for each partition of a topic, or of all where no -t is given.

    The offset is empty where no record is that young, as with Kafka's own tool. With another isolation level its end
    is the latest offset, and records at or after that are not found.
    """
    from kafkalog.engine import isolation_of
    from kafkalog.storage.view import LogView
    from kafkalog.tools.directories import find
    from kafkalog.tools.directories import partitions as all_partitions

    common.set_verbosity(quiet, verbose)
    if topic is None and partitions:
        raise click.UsageError("-p is of a topic: give -t")
    time = parse_time(time_text)
    isolation = isolation_of(common.isolation_level(isolation_level, settings))
    where = common.need_dirs(dirs)
    places = all_partitions(where) if topic is None else find(where, topic, partitions)
    for topic_partition, path in places:
        with LogView.open(path) as view:
            found = view.offset_for_time(time, isolation)
        if as_json:
            shown = {"offset": None, "timestamp": None, "leader_epoch": None} if found is None else found._asdict()
            click.echo(json.dumps({**topic_partition._asdict(), **shown}))
            continue
        offset = "" if found is None else str(found.offset)
        when = f":{found.timestamp}" if verbose and found is not None and found.timestamp >= 0 else ""
        click.echo(f"{topic_partition.topic}:{topic_partition.partition}:{offset}{when}")


def parse_time(text: str) -> int:
    """Ms since 1970, or one of the codes -1, -2 and -3; click.BadParameter for anything else."""
    from kafkalog.errors import IllegalArgument
    from kafkalog.times import to_ms

    codes = {"latest": -1, "earliest": -2, "max-timestamp": -3}
    if text.lower() in codes:
        return codes[text.lower()]
    try:
        number = int(text)
    except ValueError:
        try:
            return to_ms(text)
        except IllegalArgument as error:
            raise click.BadParameter(str(error), param_hint="--time") from None
    if number < -3:
        raise click.BadParameter(f"{number} is no time: codes are -1, -2 and -3", param_hint="--time")
    return number
