"""`kafkalog verify`: check checksums, records, indexes, snapshots and checkpoints, on all cores."""

from __future__ import annotations

import sys
from threading import Lock

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

_OPTIONS = (
    click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION | FILE)..."),
    click.option("--deep", is_flag=True, help="Decode every record too, of every format and codec."),
    click.option("--indexes", is_flag=True, help="Compare indexes with batch headers only; no checksums."),
    common.json_option("One JSON object for each finding, and one for the report."),
)


def check_options(command: common.Command) -> common.Command:
    """Add the options of what to check, how thoroughly, and the output."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("verify")
@check_options
@click.option("-j", "--threads", type=click.IntRange(1, 256), metavar="N", help="Threads. Default: one for each core.")
@click.option("--spark", "master", metavar="MASTER", help="Let Spark's tasks do it; see `kafkalog spark verify`.")
@common.quiet_options
def command(
    paths: tuple[str, ...],
    deep: bool,
    indexes: bool,
    threads: int | None,
    master: str | None,
    as_json: bool,
    quiet: bool,
    verbose: int,
) -> int:
    """Check data directories, partition directories or single files, or URLs of such, and change nothing.

    Every batch is read and its checksum compared; offsets, leader epochs, indexes, transaction indexes, producer
    snapshots and checkpoints are held against the log. A running broker is no hindrance.

    Findings are of four kinds: note (nothing is wrong), repairable (`kafkalog repair` or recovery sets it right),
    damage (batches are lost or contradict each other) and unreadable (the system did not let us look). With -q notes
    are left out.

    Exit status: 0 sound, 1 repairable, damaged or unreadable, 2 wrong usage.
    """
    from kafkalog.verifying import total_bytes, verify

    common.set_verbosity(quiet, verbose)
    if deep and indexes:
        raise click.UsageError("--deep reads records, --indexes leaves them out: give one of them")
    if master is not None:
        if threads is not None:
            raise click.UsageError("-j is of this process; with --spark the master says how many cores there are")
        from kafkalog.cli import spark_verify

        return spark_verify.run(
            paths, master, {}, deep=deep, indexes=indexes, as_json=as_json, quiet=quiet, verbose=verbose
        )
    lock = Lock()
    with Meter("verify", total_bytes(paths) if sys.stderr.isatty() else None, quiet=quiet) as meter:

        def add(count: int) -> None:
            with lock:
                meter.add(count)

        report = verify(paths, deep=deep, indexes_only=indexes, threads=threads, progress=add if meter.shown else None)
    for line in report.json_lines() if as_json else report.lines(with_notes=not quiet):
        print(line)
    return 0 if report.ok else 1
