"""`kafkalog spark retain`: what retention takes from the data directories of a tree; told, or done."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("retain")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@common.apply_option
@common.topics_option
@click.option("--retention-ms", metavar="MS", help="Counts instead of each topic's retention.ms; -1: no limit.")
@click.option("--retention-bytes", metavar="N", help="Counts instead of each topic's retention.bytes; -1: no limit.")
@click.option("--now", "now_text", metavar="TIME", help="Ages count up to then: ms or ISO-8601. Default: now.")
@common.settings_option("Setting of the broker for topics without their own, such as log.retention.hours=48")
@common.json_option("One JSON object for each segment, and one for the report.")
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    dry_run: bool,
    topics: tuple[str, ...],
    retention_ms: str | None,
    retention_bytes: str | None,
    now_text: str | None,
    settings: dict[str, str],
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
    quiet: bool,
    verbose: int,
) -> None:
    """Delete the segments that retention takes from a tree of data directories or partition directories.

    What goes, what counts for a topic and the report are as for `kafkalog retain`. Tasks look at all partitions; then
    one task for each data directory that has anything to lose takes its lock and deletes.

    Nothing changes without --apply. With it a data directory that is in use is refused before anything is deleted
    anywhere.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    given = {"retention.ms": retention_ms, "retention.bytes": retention_bytes}
    now_ms = None if now_text is None else common.parse_time(now_text, "--now")
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "retain", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.retain import retain

        report = retain(
            spark, paths, apply=not dry_run, topics=topics, store=settings, now_ms=now_ms, tell=tell,
            settings={name: value for name, value in given.items() if value is not None},
        )  # fmt: skip
    for line in report.json_lines() if as_json else report.lines():
        print(line)
