"""Common options, session and progress of the `kafkalog spark` jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalog.cli import common
from kafkalog.cli.progress import TaskMeter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog.spark.progress import Tell

_CONNECTION = 2
"""Number of -v flags that show the log of the connection to the virtual machine."""


_MASTER, _CONF = "kafkalog.cli.spark.master", "kafkalog.cli.spark.conf"

session_options = common.options(
    click.option(
        "--master", expose_value=False, callback=common.store_as(_MASTER), metavar="MASTER",
        help="Spark master: local[N], spark://HOST:7077, yarn, k8s://... Default: that of spark-submit, or all cores "
        "of this machine.",
    ),
    click.option(
        "--conf", multiple=True, expose_value=False, metavar="NAME=VALUE",
        callback=lambda ctx, param, given: common.store_as(_CONF)(ctx, param, common.parse_settings(given)),
        help="Spark setting, such as spark.executor.memory=4g; repeatable.",
    ),
    common.quiet_options,
)  # fmt: skip
"""Where a job runs, settings of Spark, and -q and -v: what `session` uses."""
target_option = click.option(
    "-d", "--dir", "dir", required=True, type=click.Path(), envvar="KAFKALOG_DIR", metavar="DIR",
    help="Data directory to write to. [env: KAFKALOG_DIR]",
)  # fmt: skip
writing_options = common.options(
    click.option("--partitions", type=int, default=1, show_default=True, metavar="N",
                 help="Number of partitions of a new topic."),
    click.option("-z", "compression", metavar="CODEC[:LEVEL]", help="Compression: gzip, snappy, lz4 or zstd."),
    click.option("--job-id", metavar="ID", help="Write records once, even if the job ID is run again."),
)  # fmt: skip
"""How a job writes to topics."""


def silence_connection() -> None:
    """Silence the logging of the connection to Spark's virtual machine, also through the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def session(
    what: str, paths: Sequence[str] = (), *, master: str | None = None
) -> Iterator[tuple[SparkSession, Tell | None]]:
    """Yield the session of a job, and a callback for its progress, None if no bar is shown.

    The master is that of --master by default. PartitionNotFound for a path that is missing, before Spark is started.

    With -v the log of Spark's virtual machine goes to stderr, with -vv that of its connection to Python, too; the
    latter logs a Ctrl-C as an error.
    """
    from kafkalog.errors import PartitionNotFound
    from kafkalog.spark.session import check_master, spark_session

    for path in paths:
        if not os.path.exists(path):
            raise PartitionNotFound("there is no such file or directory", path=path, hint="check the path")
    master, verbose = common.stored(_MASTER, None) if master is None else master, common.verbosity()
    with common.usage_of("--master"):
        check_master(master)
    if verbose < _CONNECTION:
        silence_connection()
    with TaskMeter(what) as meter:
        with spark_session(master, common.stored(_CONF, {}), name=f"kafkalog {what}", verbose=verbose > 0) as spark:
            yield spark, meter.tell if meter.shown else None
