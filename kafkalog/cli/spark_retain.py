"""`kafkalog spark retain`: apply retention to a tree of data directories; a dry run by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from kafkalog.cli import spark_options
from kafkalog.cli.retain_cmd import retention_of, retention_options

if TYPE_CHECKING:
    from kafkalog.cli.retain_cmd import RetentionOptions


@click.command("retain")
@retention_options
@spark_options.session_options
def command(paths: tuple[str, ...], as_json: bool, **given: Unpack[RetentionOptions]) -> None:
    """Delete segments that exceed retention from many data directories or partition directories.

    Rules, settings and report are those of `kafkalog retain`. Tasks inspect all partitions. Then one task for each
    data directory with anything to delete locks it and deletes.

    Dry run by default; --apply makes the changes. If a data directory is in use, --apply fails before anything is
    deleted in any directory.

    Example: kafkalog spark retain data --apply --retention-ms 86400000

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    options = retention_of(given)
    with spark_options.session("retain", paths) as (spark, tell):
        from kafkalog.spark.jobs.retain import retain

        report = retain(spark, paths, **options, tell=tell)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
