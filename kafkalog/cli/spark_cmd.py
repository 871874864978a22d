"""`kafkalog spark`: jobs over trees of directories, run by a Spark cluster or all cores of this machine."""

from __future__ import annotations

import click

from kafkalog.cli import (
    spark_archive,
    spark_compact,
    spark_export,
    spark_import,
    spark_index,
    spark_ingest,
    spark_reindex,
    spark_retain,
    spark_stats,
    spark_sync,
    spark_verify,
)

JOBS = (
    spark_archive,
    spark_compact,
    spark_export,
    spark_import,
    spark_index,
    spark_ingest,
    spark_reindex,
    spark_retain,
    spark_stats,
    spark_sync,
    spark_verify,
)
"""Modules of the jobs and tools; Spark itself is imported when one runs."""


@click.group("spark")
def command() -> None:
    """Run jobs over many data directories on Spark.

    The jobs are those of the commands for one machine, run by a cluster. They need `pip install 'kafkalog[spark]'` and
    Java 17 or newer, here and on every node. The directories must be on a file system that all nodes mount at the same
    path. `python -m kafkalog.spark.jobs JOB` is the same, and also works with spark-submit.
    """


for _job in JOBS:
    command.add_command(_job.command)
