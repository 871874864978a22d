"""`kafkalog spark compact`: clean the compacted topics of a tree; a dry run by default."""

from __future__ import annotations

from typing import Any

import click

from kafkalog.cli import common, spark_options
from kafkalog.cli.compact_cmd import compaction_of, compaction_options


@click.command("compact")
@compaction_options
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
    """Clean the compacted topics of a tree of data directories or partition directories.

    What goes, what counts for a topic and the report are as for `kafkalog compact`. Tasks look at all partitions; then
    one task for each partition that has anything to clean takes the lock of its data directory and cleans.

    Nothing changes without --apply. With it a data directory that is in use is refused before anything is cleaned
    anywhere.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    asked = compaction_of(**given)
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "compact", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.compact import compact

        report = compact(spark, paths, **asked, tell=tell)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
