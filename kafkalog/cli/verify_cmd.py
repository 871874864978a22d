"""`kafkalog verify`: check checksums, records, indexes, snapshots and checkpoints, on all cores."""

from __future__ import annotations

import sys
from threading import Lock

import click

from kafkalog.cli import common, spark_verify
from kafkalog.cli.progress import Meter


@click.command("verify")
@spark_verify.check_options
@click.option("-j", "--threads", type=click.IntRange(1, 256), metavar="N", help="Threads. Default: one for each core.")
@common.tiered_option
@click.option("--spark", "master", metavar="MASTER", help="Check with Spark tasks; see `kafkalog spark verify`.")
@common.quiet_options
def command(
    paths: tuple[str, ...],
    deep: bool,
    indexes: bool,
    threads: int | None,
    tiered: str | None,
    master: str | None,
    as_json: bool,
) -> int:
    """Verify data directories, partition directories or single files, or URLs of these; change nothing.

    Every batch is read and its checksum verified. Offsets, leader epochs, indexes, transaction indexes, producer
    snapshots and checkpoints are compared with the log. A broker may be running.

    There are four kinds of findings: note (nothing is wrong), repairable (`kafkalog repair` or recovery corrects it),
    damage (batches are lost or contradict each other) and unreadable (the system denied access). -q omits notes.

    Example: kafkalog verify data --deep

    Exit status: 0 no problem found, 1 repairable, damaged or unreadable, 2 wrong usage.
    """
    from kafkalog.tools.verify.directories import total_bytes, verify

    if deep and indexes:
        raise click.UsageError("--deep reads records, --indexes skips them: give one of them")
    if master is not None:
        if tiered is not None:
            raise click.UsageError("--tiered is not supported with --spark: verify in this process")
        if threads is not None:
            raise click.UsageError("-j applies to this process; with --spark, the master decides the number of cores")
        return spark_verify.run(paths, deep=deep, indexes=indexes, as_json=as_json, master=master)
    lock = Lock()
    with Meter("verify", total_bytes(paths, tiered=tiered) if sys.stderr.isatty() else None) as meter:

        def add(count: int) -> None:
            with lock:
                meter.add(count)

        report = verify(
            paths, deep=deep, indexes_only=indexes, threads=threads, progress=add if meter.shown else None,
            tiered=tiered,
        )  # fmt: skip
    return spark_verify.print_verified(report, as_json=as_json)
