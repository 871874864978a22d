"""`kafkalog spark import`: Parquet tables and JSON lines back to topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from kafkalog.cli import common, row_options, spark_options

if TYPE_CHECKING:
    class _Given(TypedDict):
        """Values of the command's options that an import takes."""

        topic: str | None
        format: str | None
        columns: dict[str, str]
        offsets: str
        partitions: int
        compression: str | None
        job_id: str | None


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="(FILE | DIR)...")
@spark_options.target_option
@click.option("-t", "--topic", metavar="TOPIC", help="Topic of all rows. Default: from the rows or their paths.")
@click.option("--format", "format", metavar="FORMAT", help="Format: parquet or json (lines). Default: by file names.")
@row_options.column_option
@row_options.offsets_option
@spark_options.writing_options
@common.json_option("Print one JSON object for the import.")
@spark_options.session_options
def command(files: tuple[str, ...], dir: str, as_json: bool, **given: Unpack[_Given]) -> int:
    """Import records from Parquet files, such as an export, or from JSON lines into topics.

    Keys, values, nulls, headers and times are restored unchanged. Rows with topic, partition and offset keep their
    offsets if all of their partitions are empty; otherwise they are appended in that order. JSON lines must have the
    format of `kafkalog consume -J` and are appended to -t.

    Example: kafkalog spark import tables -d data --job-id restore-1

    Exit status: 0 written, 1 nothing written, 2 wrong usage.
    """
    with spark_options.session("import", files) as (spark, tell):
        from kafkalog.spark.jobs.import_ import import_

        report = import_(spark, files, dir, tell=tell, **given)
    if as_json:
        print(json.dumps(report._asdict()))
    elif report.landed:
        how = "with their offsets" if report.kept else "appended"
        print(f"{common.plural(report.records, 'record')} of {common.plural(report.files, 'file')} {how}")
    else:
        print(f"job {report.job_id} is already in the logs: nothing was written")
    return 0
