"""`kafkalog spark reindex`: rebuild the indexes of a tree of directories from its logs."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options

_INTERVAL = "index.interval.bytes"


@click.command("reindex")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@common.apply_option
@click.option("--only-wrong", is_flag=True, help="Leave the indexes alone that `kafkalog verify` finds sound.")
@click.option("--backup-dir", type=click.Path(), metavar="DIR", help="New directory for the old indexes.")
@common.json_option("One JSON object for each change, and one for the report.")
@common.settings_option(f"Setting of the topics: {_INTERVAL}")
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    dry_run: bool,
    only_wrong: bool,
    backup_dir: str | None,
    as_json: bool,
    settings: dict[str, str],
    master: str | None,
    conf: dict[str, str],
    quiet: bool,
    verbose: int,
) -> int:
    """Make offset, time and transaction indexes anew from the .log files of data or partition directories.

    They become what Kafka's recovery makes of the logs, byte for byte; an index that is that already is no change.
    Logs, snapshots and checkpoints are left alone: `kafkalog repair` is for those.

    Nothing changes without --apply. With it the data directories are locked all the while, so no broker may run on
    them; one that is in use is refused before anything is changed anywhere. Old indexes are first copied to the backup
    directory, by default one beside each data directory.

    Exit status: 0 nothing is left to do, 1 something is (a dry run that found work, damage in a log), 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    for name in settings:
        if name != _INTERVAL:
            raise click.BadParameter(f"{name} does not change an index; {_INTERVAL} does", param_hint="-X")
    try:
        interval = int(settings[_INTERVAL]) if settings else None
    except ValueError:
        raise click.BadParameter(f"{settings[_INTERVAL]!r} is no number", param_hint="-X") from None
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "reindex", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.reindex import reindex

        report = reindex(
            spark, paths, apply=not dry_run, only_wrong=only_wrong, index_interval_bytes=interval,
            backup_dir=backup_dir, tell=tell,
        )  # fmt: skip
    for line in report.json_lines() if as_json else report.lines():
        print(line)
    return 0 if report.ok else 1
