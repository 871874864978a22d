"""`kafkalog stats`: figures of partitions, from batch headers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.by_options import by_options, count_topics, parse_counting
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.cli.by_options import ByGiven
    from kafkalog.errors import KafkalogError
    from kafkalog.inspect.rows import Rows
    from kafkalog.inspect.stats import LogStats
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import FileSystem

stats_options = common.options(
    click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]..."),
    common.dir_option,
    common.topic_option(),
    common.partition_option(multiple=True),
    click.option("--by-key", is_flag=True, help="Also decode records, and show the keys with the most records."),
    click.option("--sizes", is_flag=True, help="Also decode records, and show the sizes of keys and values."),
    click.option("--batches", is_flag=True, help="Show the sizes of batches, and the savings of their codecs."),
    click.option("--segments", is_flag=True, help="Print a row for each segment."),
    click.option("--exact", is_flag=True, help="Read everything, whatever the size of a log."),
    by_options,
    common.tiered_option,
    common.json_option("Print one JSON object for each partition, then with --by one for each topic."),
    common.quiet_options,
)
"""Options that select partitions and figures."""


@click.command("stats")
@stats_options
def command(
    paths: tuple[str, ...],
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    by_key: bool,
    sizes: bool,
    batches: bool,
    segments: bool,
    exact: bool,
    tiered: str | None,
    as_json: bool,
    **by: Unpack[ByGiven],
) -> int:
    """Show records, batches, bytes, rates and compression of partitions.

    Select partitions with -d, -t and -p, or give the paths of data directories and partition directories. Counts come
    from batch headers. Of a log of more than 128 MiB, a sample is read; estimates are marked with ~, and a line shows
    how much was read. Checksums of all data read are verified, and damage is shown. RATIO is the number of bytes of
    records per byte on disk, measured on the batches that were decompressed. With --by all records of each topic are
    read, and the counts are exact. Nothing is locked or changed, and a broker may be running.

    Example: kafkalog stats -d data -t orders --by value.country -s value=json

    Exit status: 0 fine, 1 something is damaged, could not be read, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.inspect.stats import checked

    counting = parse_counting(by)
    fs, found = common.select_partitions(paths, dirs, topic, partitions, tiered)
    is_bare = as_json and sys.stdout.isatty()
    unreadable: list[KafkalogError] = []
    sampled = _collect_stats(found, fs, unreadable, sizes=sizes, keys=by_key, exact=exact, quiet=is_bare)
    counted = () if counting is None else count_topics(found, counting, quiet=is_bare, fs=fs)
    is_sound = True
    if as_json:
        for stats in sampled:
            print(json.dumps(stats.as_dict()), flush=True)
            is_sound = is_sound and not stats.problems
        for counts in counted:
            print(json.dumps(counts.as_dict()), flush=True)
            is_sound = is_sound and not counts.damage
        return 0 if is_sound and not unreadable else 1
    all_stats, all_counts = list(sampled), list(counted)
    tables = [*_tables(all_stats, batches=batches, segments=segments), *(one.rows for one in all_counts)]
    for number, table in enumerate(tables):
        print(("\n" if number else "") + table.text())
    if all_stats:
        common.note(f"checksums: {checked(all_stats)}")
    for stats in all_stats:
        if stats.sampled():
            common.note(f"{stats.name}: {stats.sampled()}")
        for problem in stats.problems:
            common.note(f"{stats.name}: problem: {problem}", always=True)
    is_damaged = bool(unreadable) or any(stats.problems for stats in all_stats) or any(one.damage for one in all_counts)
    return 1 if is_damaged else 0


def _collect_stats(
    found: Sequence[PartitionPath],
    fs: FileSystem,
    unreadable: list[KafkalogError],
    *,
    sizes: bool,
    keys: bool,
    exact: bool,
    quiet: bool,
) -> Iterator[LogStats]:
    """Yield the figures of each partition; on a terminal, a bar counts the bytes of the logs, sampled or not.

    Partitions that cannot be opened are reported, and their errors are added to `unreadable`.
    """
    from kafkalog.inspect.sample import SAMPLE_BYTES
    from kafkalog.tools.report import report_share, segment_bytes

    most = None if exact else SAMPLE_BYTES
    lengths = [segment_bytes(one.path, fs) for one in found] if sys.stderr.isatty() else [0] * len(found)
    with Meter("stats", sum(lengths), quiet=quiet) as meter:
        by_path = {one.path: length for one, length in zip(found, lengths, strict=True)}
        for one, log in common.each_opened(found, lambda one: common.view_log(one.path, fs), unreadable):
            progress = report_share(meter.add, by_path[one.path])
            with log:
                stats = log.stats(sizes=sizes, keys=keys, sample_bytes=most, progress=progress)
            progress(1.0)
            yield stats


def _tables(all_stats: Sequence[LogStats], *, batches: bool, segments: bool) -> Iterator[Rows[Any]]:
    """Yield one table of all partitions, then the requested tables of each."""
    from kafkalog.inspect.stats import partition_rows

    yield partition_rows(all_stats)
    for stats in all_stats:
        if segments:
            yield stats.segment_rows
        if batches:
            yield stats.codec_rows
            yield stats.batch_rows
        yield from stats.size_rows
        if stats.keys is not None:
            yield stats.key_rows
