"""Options of the commands that count records by a path, `--by`, and the counts of the selected partitions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import COLUMN_DECODERS, DecoderGiven, schema_options, serdes_option, typed_keywords
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.inspect.counts import PathCounts
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import FileSystem

    class ByGiven(DecoderGiven):
        """Values of the options."""

        by: str | None
        top: int
        where: str | None

by_options = common.options(
    click.option(
        "--by", metavar="PATH",
        help="Also read all records, and count them by a field: key, partition, header.NAME, value.a.b, as in "
        "conditions (docs/where.md); paths into keys and values need -s.",
    ),
    click.option(
        "--top", type=click.IntRange(0, 100_000), default=20, show_default=True, metavar="N",
        help="With --by: show the N values with most records, and the others as one sum.",
    ),
    click.option("--where", metavar="CONDITION", help="With --by: count only records for which this is true."),
    serdes_option(f"With --by: decode keys and values: key=NAME or value=NAME; NAME is {COLUMN_DECODERS}."),
    schema_options,
)  # fmt: skip
"""--by and the options that go with it."""


class Counting(NamedTuple):
    """A request for counts: the path, the condition, the number of rows, and the keywords of the decoders."""

    path: str
    where: str | None
    top: int
    typed: dict[str, Any]


def parse_counting(given: ByGiven) -> Counting | None:
    """Return what the options ask for, None without --by; a usage error for a wrong path, or an option without --by."""
    if given["by"] is None:
        for name in ("where", "serdes", "schemas", "schema", "message"):
            flag = "-s" if name == "serdes" else f"--{name}"
            if given[name]:
                raise click.UsageError(f"{flag} is for counts by a path: give --by PATH")
        return None
    from kafkalog.where import parse, parse_field

    with common.usage_of("--by"):
        parse_field(given["by"])
    with common.usage_of("--where"):
        if given["where"] is not None:
            parse(given["where"])
    typed = typed_keywords(given["serdes"], given["schemas"], given["schema"], given["message"])
    return Counting(given["by"], given["where"], given["top"], typed)


def by_topic(found: Sequence[PartitionPath]) -> list[list[PartitionPath]]:
    """Return the partitions of each topic, by the topics' names."""
    topics: dict[str, list[PartitionPath]] = {}
    for one in found:
        topics.setdefault(one.topic_partition.topic, []).append(one)
    return [topics[topic] for topic in sorted(topics)]


def count_topics(
    found: Sequence[PartitionPath], counting: Counting, *, quiet: bool = False, fs: FileSystem | None = None
) -> Iterator[PathCounts]:
    """Yield the counts of each topic, over its selected partitions."""
    for topic in by_topic(found):
        yield count_topic(topic, counting, quiet=quiet, fs=fs)


def count_topic(
    found: Sequence[PartitionPath], counting: Counting, *, quiet: bool = False, fs: FileSystem | None = None
) -> PathCounts:
    """Return the counts of one topic; an error in what was asked for names the topic."""
    from kafkalog.errors import IllegalArgument
    from kafkalog.log.counting import count_by
    from kafkalog.tools.report import report_share, segment_bytes
    from kafkalog.util.fileio import OS

    fs = fs or OS
    lengths = [segment_bytes(one.path, fs) for one in found] if sys.stderr.isatty() else [0] * len(found)
    with ExitStack() as stack, Meter("count", sum(lengths), quiet=quiet) as meter:
        logs = [stack.enter_context(common.view_log(one.path, fs)) for one in found]
        shares = {id(log): report_share(meter.add, length) for log, length in zip(logs, lengths, strict=True)}
        try:
            return count_by(
                logs, counting.path, where=counting.where, most_rows=counting.top,
                tell=lambda log, share: shares[id(log)](share), **counting.typed,
            )  # fmt: skip
        except IllegalArgument as error:
            topic = found[0].topic_partition.topic
            raise IllegalArgument(f"topic {topic}: {error.message}", hint=error.hint) from None
