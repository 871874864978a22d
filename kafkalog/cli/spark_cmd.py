"""`kafkalog spark`: jobs over trees of directories, run by a Spark cluster or all cores of this machine."""

from __future__ import annotations

import click

from kafkalog.cli import (
    spark_archive,
    spark_compact,
    spark_export,
    spark_import,
    spark_ingest,
    spark_reindex,
    spark_retain,
    spark_stats,
    spark_verify,
)

JOBS = (
    spark_archive,
    spark_compact,
    spark_export,
    spark_import,
    spark_ingest,
    spark_reindex,
    spark_retain,
    spark_stats,
    spark_verify,
)
"""Modules of the jobs and tools; Spark itself is imported when one runs."""


@click.group("spark")
def command() -> None:
    """Work on trees of data directories with Spark: what a command does on one machine, done by a cluster.

    Needs Java 17 or newer and `pip install 'kafkalog[spark]'`, here and on every node; the directories lie on a file
    system that all nodes mount in the same place. `python -m kafkalog.spark.jobs JOB` is the same, also for
    spark-submit.
    """


for _job in JOBS:
    command.add_command(_job.command)
