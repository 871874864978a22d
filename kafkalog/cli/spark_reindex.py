"""`kafkalog spark reindex`: rebuild the indexes of a tree of directories from its logs."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("reindex")
@common.paths_argument()
@common.apply_option
@click.option("--only-wrong", is_flag=True, help="Skip indexes in which `kafkalog verify` finds no error.")
@click.option("--backup-dir", type=click.Path(), metavar="DIR", help="New directory for copies of the old indexes.")
@common.json_option("Print one JSON object for each change, and one for the report.")
@common.settings_option(f"Topic setting: {common.INTERVAL}")
@spark_options.session_options
def command(
    paths: tuple[str, ...],
    dry_run: bool,
    only_wrong: bool,
    backup_dir: str | None,
    as_json: bool,
    settings: dict[str, str],
) -> int:
    """Rebuild offset, time and transaction indexes from the .log files.

    The result is that of Kafka's recovery, byte for byte; an index that already matches counts as unchanged. Logs,
    snapshots and checkpoints are not changed: use `kafkalog repair` for those.

    Dry run by default; --apply makes the changes. --apply locks the data directories for the whole run, so no broker
    may run on them. If one is in use, the run fails before anything is changed in any directory. Old indexes are first
    copied to the backup directory, by default one next to each data directory.

    Example: kafkalog spark reindex data --apply --only-wrong

    Exit status: 0 nothing is left to do, 1 something is (a dry run that found work, damage in a log), 2 wrong usage.
    """
    interval = common.index_interval(settings, f"does not change an index; {common.INTERVAL} does")
    with spark_options.session("reindex", paths) as (spark, tell):
        from kafkalog.spark.jobs.reindex import reindex

        report = reindex(
            spark, paths, apply=not dry_run, only_wrong=only_wrong, index_interval_bytes=interval,
            backup_dir=backup_dir, tell=tell,
        )  # fmt: skip
    return common.print_report(report, as_json=as_json)
