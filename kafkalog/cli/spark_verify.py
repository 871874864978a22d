"""`kafkalog spark verify`: the report of `kafkalog verify`, with segments checked by Spark's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafkalog.cli import common, spark_options

if TYPE_CHECKING:
    from kafkalog.tools.verify.report import Report

check_options = common.options(
    common.paths_argument("(DIR | PARTITION | FILE)..."),
    click.option("--deep", is_flag=True, help="Also decode every record, of every format and codec."),
    click.option("--indexes", is_flag=True, help="Only compare indexes with batch headers; verify no checksums."),
    common.json_option("Print one JSON object for each finding, and one for the report."),
)
"""What to check, how thoroughly, and the output: the options of `verify` on one machine and on Spark."""


@click.command("verify")
@check_options
@spark_options.session_options
def command(
    paths: tuple[str, ...],
    deep: bool,
    indexes: bool,
    as_json: bool,
) -> int:
    """Verify many data directories, partition directories or files; change nothing.

    Checks, findings, report and exit status are those of `kafkalog verify`. Spark tasks check the segments, so the run
    takes half the time with twice the cores.

    Example: kafkalog spark verify data --deep --master local[8]

    Exit status: 0 no problem found, 1 repairable, damaged or unreadable, 2 wrong usage.
    """
    if deep and indexes:
        raise click.UsageError("--deep reads records, --indexes skips them: give one of them")
    return run(paths, deep=deep, indexes=indexes, as_json=as_json)


def run(paths: tuple[str, ...], *, deep: bool, indexes: bool, as_json: bool, master: str | None = None) -> int:
    """Run the job, print its output and return the exit status."""
    with spark_options.session("verify", paths, master=master) as (spark, tell):
        from kafkalog.spark.jobs.verify import verify

        report = verify(spark, paths, deep=deep, indexes_only=indexes, tell=tell)
    return print_verified(report, as_json=as_json)


def print_verified(report: Report, *, as_json: bool) -> int:
    """Print the report of a verification, without notes after -q, and return the exit status."""
    for line in report.json_lines() if as_json else report.lines(with_notes=not common.is_quiet()):
        print(line)
    return 0 if report.ok else 1
