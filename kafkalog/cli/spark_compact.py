"""`kafkalog spark compact`: clean the compacted topics of a tree; a dry run by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from kafkalog.cli import spark_options
from kafkalog.cli.compact_cmd import compaction_of, compaction_options

if TYPE_CHECKING:
    from kafkalog.cli.compact_cmd import CompactionOptions


@click.command("compact")
@compaction_options
@spark_options.session_options
def command(paths: tuple[str, ...], as_json: bool, **given: Unpack[CompactionOptions]) -> None:
    """Clean the compacted topics of many data directories or partition directories.

    Rules, settings and report are those of `kafkalog compact`. Tasks inspect all partitions. Then one task for each
    partition with anything to clean locks its data directory and cleans.

    Dry run by default; --apply makes the changes. If a data directory is in use, --apply fails before anything is
    cleaned in any directory.

    Example: kafkalog spark compact /mnt/kafka/* --apply --master spark://host:7077

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    options = compaction_of(given)
    with spark_options.session("compact", paths) as (spark, tell):
        from kafkalog.spark.jobs.compact import compact

        report = compact(spark, paths, **options, tell=tell)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
