"""`kafkalog spark export`: export topics to Parquet tables, incrementally."""

from __future__ import annotations

import re

import click

from kafkalog.cli import common, row_options, spark_options

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@click.command("export")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@click.argument("target", type=click.Path(), metavar="TARGET")
@common.topics_option
@click.option("--columns", metavar="NAMES", help="Comma-separated columns. Default: all.")
@click.option("--no-dates", is_flag=True, help="Write directories for topics only, not for the dates of records.")
@click.option("--compression", default="zstd", show_default=True, metavar="CODEC", help="Codec of Parquet.")
@click.option("--file-size", default="128M", show_default=True, metavar="SIZE", help="Approximate size of files.")
@common.isolation_option
@common.on_damage_option
@common.settings_option("Option of the Spark source kafkalog, such as startingTimestamp=1700000000000")
@common.json_option("Print one JSON object for the export.")
@spark_options.session_options
def command(
    paths: tuple[str, ...],
    target: str,
    topics: tuple[str, ...],
    columns: str | None,
    no_dates: bool,
    compression: str,
    file_size: str,
    isolation_level: str | None,
    on_damage: str,
    settings: dict[str, str],
    as_json: bool,
) -> int:
    """Export topics into Parquet files in directories TARGET/topic=NAME/date=DAY/.

    DAY is the day of the records' times in UTC. A second run exports the records that are new since the first; a
    killed run is continued. No record is exported twice: TARGET stores the exported offsets. The columns are those of
    Spark's Kafka source. Records without a time, or with a time outside the calendar, are in
    date=__HIVE_DEFAULT_PARTITION__, which readers interpret as null.

    Example: kafkalog spark export data tables -t orders --master local[4]

    Exit status: 0 exported, 1 incomplete, 2 wrong usage.
    """
    options = dict(settings)
    if topics:
        options["subscribe"] = ",".join(topics)
    if isolation_level is not None:
        options["isolationLevel"] = isolation_level
    if on_damage == "skip":
        options["onDamage"] = "skip"
    file_bytes = parse_size(file_size, "--file-size")
    with spark_options.session("export", paths) as (spark, tell):
        from kafkalog.spark.jobs.export import export

        report = export(
            spark, paths, target, options,
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            by_date=not no_dates, compression=compression, file_bytes=file_bytes, tell=tell,
        )  # fmt: skip
    row_options.print_export(report, as_json=as_json)
    common.report_skipped(report.skipped)
    return 1 if report.skipped else 0


def parse_size(text: str, flag: str) -> int:
    """Return bytes of a number, optionally with K, M or G (of 1024); a usage error that names `flag` otherwise."""
    found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.strip().upper())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size: give bytes, or a number with K, M or G", param_hint=flag)
    return int(found[1]) * _UNITS[found[2]]
