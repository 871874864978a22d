"""`kafkalog spark sync`: write a topic to an Iceberg or Delta table, with tasks that write its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from kafkalog.cli import common, spark_options
from kafkalog.cli.table_options import print_commits, sync_keywords, sync_options

if TYPE_CHECKING:
    from kafkalog.cli.table_options import SyncGiven


@click.command("sync")
@sync_options
@spark_options.session_options
def command(**given: Unpack[SyncGiven]) -> int:
    """Write the committed records of a topic that TABLE does not have yet to it, as `kafkalog table sync` does.

    Tasks write the data files, and the driver commits them with the positions: each record is in the table once,
    also after a crash. Either command continues after the other. All nodes need the extra `lake`, and must mount the
    directories, and a local table, at the same path.

    Example: kafkalog spark sync -d data -t orders -s value=json iceberg:lake/shop.orders --master local[4]

    Exit status: 0 the table has all, 1 damage, a conflict or another failure, 2 wrong usage.
    """
    skipped: list[Any] = []
    options = sync_keywords(given, skipped)
    dirs = common.need_dirs(given["dirs"])
    with spark_options.session("sync") as (spark, tell):
        from kafkalog.spark.jobs.sync import sync

        commits = sync(spark, dirs, given["topic"], given["target"], tell=tell, **options)
    print_commits(commits, given)
    common.report_skipped(skipped)
    return 1 if skipped else 0
