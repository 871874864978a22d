"""`kafkalog spark archive`: pack the package into one file, for executors without it."""

from __future__ import annotations

import os

import click

from kafkalog.cli import common


@click.command("archive")
@click.argument("target", type=click.Path(dir_okay=False), metavar="FILE")
@click.option("--bare", is_flag=True, help="Only pack kafkalog: the executors' Python has numpy, pyarrow and the rest.")
@common.quiet_options
def command(target: str, bare: bool) -> int:
    """Write FILE, a .tar.gz of this installed package and its dependencies, for executors without it.

    Pass it to Spark with --conf spark.archives=FILE#env --conf spark.executorEnv.PYTHONPATH=env. The executors' Python
    must have the same minor version and platform as this one.

    Example: kafkalog spark archive kafkalog.tar.gz

    Exit status: 0 written, 1 not written, 2 wrong usage.
    """
    from kafkalog.spark.archive import write_archive

    archive = write_archive(target, dependencies=not bare)
    if not common.is_quiet():
        count, names = common.plural(archive.files, "file"), ", ".join(archive.distributions)
        print(
            f"{target}: {count}, {archive.size:,} bytes, of {names}\n"
            f"--conf spark.archives={os.path.abspath(target)}#env --conf spark.executorEnv.PYTHONPATH=env"
        )
    return 0
