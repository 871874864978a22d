"""`kafkalog spark retain`: apply retention to a tree of data directories; a dry run by default."""

from __future__ import annotations

from typing import Any

import click

from kafkalog.cli import common, spark_options
from kafkalog.cli.retain_cmd import retention_of, retention_options


@click.command("retain")
@retention_options
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
    quiet: bool,
    verbose: int,
    **given: Any,
) -> None:
    """Delete the segments that retention takes from a tree of data directories or partition directories.

    What goes, what counts for a topic and the report are as for `kafkalog retain`. Tasks look at all partitions; then
    one task for each data directory that has anything to lose takes its lock and deletes.

    Nothing changes without --apply. With it a data directory that is in use is refused before anything is deleted
    anywhere.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    asked = retention_of(**given)
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "retain", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.retain import retain

        report = retain(spark, paths, **asked, tell=tell)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
