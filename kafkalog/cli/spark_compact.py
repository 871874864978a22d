"""`kafkalog spark compact`: refused by its name, until there is a log cleaner."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("compact")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...], master: str | None, conf: dict[str, str], quiet: bool, verbose: int
) -> None:
    """Compact topics; not available in this version, which has no log cleaner.

    Exit status: 1, and nothing is changed.
    """
    from kafkalog.spark.jobs.compact import compact

    compact()
