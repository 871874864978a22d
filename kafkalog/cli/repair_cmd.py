"""`kafkalog repair`: rebuild indexes, truncate a torn tail; a dry run by default."""

from __future__ import annotations

import sys

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter


@click.command("repair")
@common.paths_argument()
@common.apply_option
@click.option("--rebuild-indexes", is_flag=True, help="Rebuild wrong indexes. Default: all three kinds of repair.")
@click.option("--truncate-tail", is_flag=True, help="Truncate the log after its last valid batch.")
@click.option("--checkpoints", is_flag=True, help="Correct snapshots, leader epochs, and checkpoints.")
@click.option("--all-indexes", is_flag=True, help="Also rebuild indexes that are correct.")
@click.option("--excise", is_flag=True, help="Also rewrite damaged segments without their damaged bytes.")
@click.option("--backup-dir", type=click.Path(), metavar="DIR", help="New directory for changed or removed data.")
@common.json_option("Print one JSON object for each change, and one for the report.")
@common.settings_option(f"Topic setting: {common.INTERVAL}")
@common.quiet_options
def command(
    paths: tuple[str, ...],
    dry_run: bool,
    rebuild_indexes: bool,
    truncate_tail: bool,
    checkpoints: bool,
    all_indexes: bool,
    excise: bool,
    backup_dir: str | None,
    as_json: bool,
    settings: dict[str, str],
) -> int:
    """Repair data directories or partition directories; a valid batch is never dropped.

    Wrong offset, time and transaction indexes are rebuilt from the log, as by Kafka's recovery. Bytes after the last
    valid batch of a log are cut off. Wrong snapshots are removed; leader epochs and the checkpoints of a data
    directory are corrected to match the logs. Damage that is followed by valid batches is reported and left unchanged,
    unless --excise is given: then its segment is rewritten without the damaged bytes, which the backup directory
    keeps.

    Dry run by default; --apply makes the changes. --apply locks the data directory, so no broker may run on it. Data
    to be changed or cut off is first written to the backup directory (by default next to the data directory). Use -X
    index.interval.bytes=N to set the distance of index entries if the topic has another setting than 4096.

    Example: kafkalog repair data --apply --backup-dir data-before-repair

    Exit status: 0 nothing is left to do, 1 something is, 2 wrong usage.
    """
    from kafkalog.tools.repair.directories import repair
    from kafkalog.tools.verify.directories import total_bytes

    interval = common.index_interval(settings, f"does not affect a repair; only {common.INTERVAL} does")
    every = not (rebuild_indexes or truncate_tail or all_indexes or checkpoints)
    with Meter("repair", total_bytes(paths) if sys.stderr.isatty() else None) as meter:
        report = repair(
            paths,
            apply=not dry_run,
            rebuild_indexes=every or rebuild_indexes or all_indexes,
            truncate_tail=every or truncate_tail,
            checkpoints=every or checkpoints,
            all_indexes=all_indexes,
            excise=excise,
            index_interval_bytes=interval,
            backup_dir=backup_dir,
            progress=meter.add if meter.shown else None,
        )
    return common.print_report(report, as_json=as_json)
