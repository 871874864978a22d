"""`kafkalog repair`: rebuild indexes, truncate a torn tail; a dry run by default."""

from __future__ import annotations

import sys

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

_INTERVAL = "index.interval.bytes"


@click.command("repair")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@common.apply_option
@click.option("--rebuild-indexes", is_flag=True, help="Make wrong indexes anew. Default: all three kinds of repair.")
@click.option("--truncate-tail", is_flag=True, help="Cut the log behind its last sound batch.")
@click.option("--checkpoints", is_flag=True, help="Set right snapshots, leader epochs, the directory's checkpoints.")
@click.option("--all-indexes", is_flag=True, help="Make sound indexes anew too.")
@click.option("--excise", is_flag=True, help="Besides, rewrite damaged segments without their damaged bytes.")
@click.option("--backup-dir", type=click.Path(), metavar="DIR", help="New directory for what is changed or cut off.")
@common.json_option("One JSON object for each change, and one for the report.")
@common.settings_option(f"Setting of the topics: {_INTERVAL}")
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
    quiet: bool,
    verbose: int,
) -> int:
    """Repair data directories or partition directories; a sound batch is never dropped.

    Wrong offset, time and transaction indexes are made anew from the log, as Kafka's recovery makes them, and bytes
    behind the last sound batch of a log are cut off. Wrong snapshots go, leader epochs and the checkpoints of a data
    directory are made to fit the logs. Damage with sound batches behind it is reported and left alone, unless --excise
    is given: then its segment is rewritten without the damaged bytes, which the backup directory keeps.

    Nothing changes without --apply. With it the data directory is locked, so no broker may run on it, and what is
    changed or cut off is first written to the backup directory (by default beside the data directory). -X
    index.interval.bytes=N says how far entries lie apart where the topic has another setting than 4096.

    Exit status: 0 nothing is left to do, 1 something is, 2 wrong usage.
    """
    from kafkalog.tools.repair import repair
    from kafkalog.tools.verify import total_bytes

    common.set_verbosity(quiet, verbose)
    for name in settings:
        if name != _INTERVAL:
            raise click.BadParameter(f"{name} does not change a repair; {_INTERVAL} does", param_hint="-X")
    try:
        interval = int(settings[_INTERVAL]) if settings else None
    except ValueError:
        raise click.BadParameter(f"{settings[_INTERVAL]!r} is no number", param_hint="-X") from None
    every = not (rebuild_indexes or truncate_tail or all_indexes or checkpoints)
    with Meter("repair", total_bytes(paths) if sys.stderr.isatty() else None, quiet=quiet) as meter:
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
    for line in report.json_lines() if as_json else report.lines():
        print(line)
    return 0 if report.ok else 1
