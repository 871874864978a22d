"""`kafkalog spark ingest`: files to topics."""

from __future__ import annotations

import json
from typing import Any

import click

from kafkalog.cli import common, spark_options


@click.command("ingest")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="(FILE | DIR)...")
@spark_options.target_option
@common.topic_option()
@click.option("--format", "format", metavar="FORMAT", help="text, csv, json (lines) or parquet. Default: by names.")
@click.option("--value", metavar="COLUMN", help="Column of the value. Default: the line, or the row as JSON.")
@click.option("--key", metavar="COLUMN", help="Column of the key.")
@click.option("--time", "timestamp", metavar="COLUMN", help="Column of the time: ms or ISO-8601. Default: now.")
@click.option("--topic-column", metavar="COLUMN", help="Column of the topic, instead of -t.")
@click.option("--partition-column", metavar="COLUMN", help="Column of the partition. Default: by the key.")
@click.option("--no-header", is_flag=True, help="The first CSV line is data, not names: columns are _c0, _c1, ...")
@click.option("--separator", default=",", show_default=True, metavar="CHAR", help="Separator of CSV columns.")
@click.option("--nulls", is_flag=True, help="Accept null values, as deletes.")
@click.option("-D", "delimiter", default="\\n", show_default=True, metavar="DELIM", help="Delimiter of text lines.")
@click.option("-K", "key_delimiter", metavar="DELIM", help="Split a line at its first DELIM into key and value.")
@spark_options.writing_options
@common.json_option("Print one JSON object for the records written.")
@spark_options.session_options
def command(
    files: tuple[str, ...], dir: str, as_json: bool, no_header: bool, delimiter: str, key_delimiter: str | None,
    **given: Any,
) -> int:  # fmt: skip
    """Append the lines or rows of FILEs to a topic: tasks encode them, and one commit appends them.

    Lines are appended in the order of the files, so a topic with one partition has them in that order. A run with
    --job-id that was killed can be repeated with the same arguments: no record is written twice. Text is copied byte
    for byte, and so are JSON lines if no column is named. A missing topic is created.

    Example: kafkalog spark ingest logs/*.json -d data -t events --format json --key user --job-id day-1

    Exit status: 0 written, 1 nothing written, 2 wrong usage.
    """
    columns = {name: given.pop(name) for name in ("value", "key", "timestamp")}
    columns |= {name: given.pop(f"{name}_column") for name in ("topic", "partition")}
    with spark_options.session("ingest", files) as (spark, tell):
        from kafkalog.spark.jobs.ingest import ingest
        from kafkalog.spark.jobs.row_columns import RowColumns
        from kafkalog.tools.escapes import unescape

        report = ingest(
            spark, files, dir, header=not no_header, columns=RowColumns(**columns), delimiter=unescape(delimiter),
            key_delimiter=None if key_delimiter is None else unescape(key_delimiter), tell=tell, **given,
        )  # fmt: skip
    if as_json:
        print(json.dumps(report._asdict()))
    elif report.landed:
        print(f"appended {common.plural(report.records, 'record')} of {common.plural(report.files, 'file')}")
    else:
        print(f"job {report.job_id} is already in the logs: nothing was appended")
    return 0
