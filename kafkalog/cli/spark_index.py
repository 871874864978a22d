"""`kafkalog spark index`: build the key indexes of a tree of directories."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("index")
@common.paths_argument()
@common.topics_option
@click.option(
    "--store",
    type=click.Path(),
    required=True,
    metavar="DIR",
    help="Directory of the key indexes, which all nodes mount; not a data directory.",
)
@click.option("--rebuild", is_flag=True, help="Build all of them, also those that fit.")
@common.json_option("Print one JSON object for each partition, and one for the report.")
@spark_options.session_options
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    store: str,
    rebuild: bool,
    as_json: bool,
) -> int:
    """Build the missing and outdated key indexes of closed segments in a separate directory.

    They are those of `kafkalog keys build --store DIR`, for look-ups with `kafkalog keys get --store DIR` and
    `kafkalog.open(path, key_index=DIR)`. Nothing is locked or changed in the data directories, and a broker may be
    running.

    Example: kafkalog spark index data --store indexes

    Exit status: 0 built, 1 damage, or a named thing is absent, 2 wrong usage.
    """
    with spark_options.session("index", paths) as (spark, tell):
        from kafkalog.spark.jobs.index import index

        report = index(spark, paths, store, topics=topics, rebuild=rebuild, tell=tell)
    return common.print_report(report, as_json=as_json)
