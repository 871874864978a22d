"""`kafkalog spark stats`: figures of a tree of logs, by topic and hour."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("stats")
@common.paths_argument()
@common.topics_option
@click.option("--keys/--no-keys", default=True, help="Also read all records, and count distinct keys (default).")
@click.option("--exact", is_flag=True, help="Decompress every batch for the ratio, not one per megabyte.")
@common.json_option("Print one JSON object for each hour of a topic, for each topic, and for the report.")
@spark_options.session_options
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    keys: bool,
    exact: bool,
    as_json: bool,
) -> int:
    """Show records, bytes, rates, compression and keys of many data directories, by topic and hour.

    Counts come from batch headers; checksums are not verified: use `kafkalog spark verify` for that. The hour of a
    batch is that of its largest timestamp, in UTC. RATIO is the number of bytes of records per byte on disk. KEYS is
    the number of distinct keys, estimated with an average error of 2 %. RECORDS/S of a topic is measured between its
    first and its last batch, that of an hour over the whole hour. Nothing is locked or changed, and a broker may be
    running.

    Example: kafkalog spark stats data -t orders --no-keys

    Exit status: 0 fine, 1 something could not be read, or a named thing is absent, 2 wrong usage.
    """
    with spark_options.session("stats", paths) as (spark, tell):
        from kafkalog.spark.jobs.stats import stats

        report = stats(spark, paths, topics=topics, keys=keys, exact=exact, tell=tell)
    return common.print_report(report, as_json=as_json)
