"""`kafkalog spark stats`: figures of a tree of logs, by topic and hour."""

from __future__ import annotations

import click

from kafkalog.cli import common, spark_options


@click.command("stats")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@common.topics_option
@click.option("--keys/--no-keys", default=True, help="Read all records too, and count different keys (default).")
@click.option("--exact", is_flag=True, help="Decompress every batch for the ratio, not one of each megabyte.")
@common.json_option("One JSON object for each hour of a topic, for each topic, and for the report.")
@spark_options.session_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    keys: bool,
    exact: bool,
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
    quiet: bool,
    verbose: int,
) -> int:
    """Tell records, bytes, rates, compression and keys of a tree of data directories, by topic and by hour.

    Counts come from batch headers, and no checksum is compared: `kafkalog spark verify` does that. The hour of a batch
    is that of its largest timestamp, in UTC. RATIO is how many bytes of records one byte on disk holds. KEYS is the
    number of different keys by a sketch, off by 2 % on average. RECORDS/S of a topic is between its first batch and its
    last one, of an hour over the whole hour. Nothing is locked or changed, and a broker may run meanwhile.

    Exit status: 0 fine, 1 something could not be read, or a named thing is absent, 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    spark_options.need_paths(paths)
    with spark_options.session(master, conf, "stats", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.stats import stats

        report = stats(spark, paths, topics=topics, keys=keys, exact=exact, tell=tell)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
    return 0 if report.ok else 1
