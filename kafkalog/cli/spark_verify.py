"""`kafkalog spark verify`: the report of `kafkalog verify`, with segments checked by Spark's tasks."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options
from kafkalog.cli.verify_options import check_options


@click.command("verify")
@check_options
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    deep: bool,
    indexes: bool,
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
    quiet: bool,
    verbose: int,
) -> int:
    """Verify many data directories, partition directories or files; change nothing.

    Checks, findings, report and exit status are those of `kafkalog verify`. Spark tasks check the segments, so the run
    takes half the time with twice the cores.

    Example: kafkalog spark verify data --deep --master local[8]

    Exit status: 0 no problem found, 1 repairable, damaged or unreadable, 2 wrong usage.
    """
    if deep and indexes:
        raise click.UsageError("--deep reads records, --indexes skips them: give one of them")
    return run(paths, master, conf, deep=deep, indexes=indexes, as_json=as_json, quiet=quiet, verbose=verbose)


def run(
    paths: tuple[str, ...],
    master: str | None,
    conf: dict[str, str],
    *,
    deep: bool,
    indexes: bool,
    as_json: bool,
    quiet: bool,
    verbose: int,
) -> int:
    """Run the job, print its output and return the exit status."""
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "verify", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.verify import verify

        report = verify(spark, paths, deep=deep, indexes_only=indexes, tell=tell)
    for line in report.json_lines() if as_json else report.lines(with_notes=not quiet):
        print(line)
    return 0 if report.ok else 1
