"""`kafkalog offsets`: offsets of a topic's partitions by time; `cursors_cmd` has readers' positions."""

from __future__ import annotations

import json
from typing import Final

import click

from kafkalog.cli import common, cursors_cmd

_CODES: Final = {"latest": -1, "earliest": -2, "max-timestamp": -3}
_NUMBERS: Final = ("-1", "-2", "-3")


@click.group("offsets")
def command() -> None:
    """Find offsets by time, and show, move or delete the positions that readers store by name."""


for _command in (cursors_cmd.groups, cursors_cmd.reset, cursors_cmd.delete):
    command.add_command(_command)


@command.command("get")
@common.dir_option
@common.topic_option()
@common.partition_option(multiple=True)
@click.option(
    "--time",
    "time_text",
    default="-1",
    show_default=True,
    metavar="TIME",
    help="-1 or latest: the end; -2 or earliest: the start; -3 or max-timestamp: the record with the largest "
    "time; ms since 1970 or ISO-8601 (UTC if no zone is given): the first record at or after that time.",
)
@common.json_option("Print one JSON object for each partition.")
@common.isolation_option
@common.settings_option("Reader setting: isolation.level")
@common.quiet_options
def get(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    time_text: str,
    as_json: bool,
    isolation_level: str | None,
    settings: dict[str, str],
) -> int:
    """Print TOPIC:PARTITION:OFFSET for each partition of a topic, or of all topics without -t.

    The offset is empty if no record is that recent, as with Kafka's own tool. With another isolation level, the latest
    offset is the end for that level, and records at or after it are not found.

    A partition that cannot be read is reported, and the others follow.

    Example: kafkalog offsets get -d data -t orders --time 2026-01-31T12:00:00Z

    Exit status: 0 fine, 1 a partition cannot be read, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.errors import CorruptCheckpoint, CorruptRecord, NotAPartition
    from kafkalog.reading.source import isolation_of
    from kafkalog.storage.readonly.view import LogView

    time = _time_or_code(time_text)
    isolation = isolation_of(common.isolation_level(isolation_level, settings))
    status = 0
    for topic_partition, path in common.find_partitions(dirs, topic, partitions):
        try:
            with LogView(path) as view:
                found = view.offset_for_time(time, isolation)
        except (CorruptCheckpoint, CorruptRecord, NotAPartition) as error:
            common.note(f"kafkalog: {error}", always=True)
            status = 1
            continue
        if as_json:
            fields = {"offset": None, "timestamp": None, "leader_epoch": None} if found is None else found._asdict()
            print(json.dumps({**topic_partition._asdict(), **fields}))
            continue
        offset = "" if found is None else str(found.offset)
        when = f":{found.timestamp}" if common.verbosity() and found is not None and found.timestamp >= 0 else ""
        print(f"{topic_partition.topic}:{topic_partition.partition}:{offset}{when}")
    return status


def _time_or_code(text: str) -> int:
    """Return ms since 1970, or one of Kafka's codes -1, -2 and -3, given by number or name."""
    if text.lower() in _CODES:
        return _CODES[text.lower()]
    return int(text) if text in _NUMBERS else common.parse_time(text, "--time")
