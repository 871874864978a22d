"""`kafkalog spark`: jobs over trees of directories, run by a Spark cluster or all cores of this machine."""

from __future__ import annotations

from importlib import import_module

import click

JOBS = (
    "archive", "compact", "export", "import", "index", "ingest", "reindex", "retain", "stats", "sync", "verify",
)  # fmt: skip
"""Jobs and tools, each in its module; Spark itself is imported when one runs."""


@click.group("spark")
def command() -> None:
    """Run jobs over many data directories on Spark.

    The jobs are those of the commands for one machine, run by a cluster. They need `pip install 'kafkalog[spark]'` and
    Java 17 or newer, here and on every node. The directories must be on a file system that all nodes mount at the same
    path. `python -m kafkalog.spark.jobs JOB` is the same, and also works with spark-submit.
    """


for _job in JOBS:
    command.add_command(import_module(f"kafkalog.cli.spark_{_job}").command)
