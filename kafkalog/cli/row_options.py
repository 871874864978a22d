"""Options and output of the commands that export and import rows, with or without Spark."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common

column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="PART=NAME",
    callback=lambda ctx, param, given: common.parse_settings(given),
    help="Column NAME of PART: value, key, headers, timestamp, timestampType, topic, partition, offset; repeatable.",
)
offsets_option = click.option(
    "--offsets",
    default="auto",
    show_default=True,
    metavar="WHICH",
    help="keep: those of the rows; new: new ones; auto: keep if all partitions are empty.",
)


def print_export(report: object, *, as_json: bool) -> None:
    """Print the result of an export; `report` has records, files, bytes, and the records before it."""
    counts = {name: getattr(report, name) for name in ("records", "files", "bytes", "before")}
    if as_json:
        print(json.dumps(counts))
    else:
        print(
            f"exported {common.plural(counts['records'], 'record')} into {common.plural(counts['files'], 'file')}, "
            f"{counts['bytes']:,} bytes; {counts['before']:,} were exported earlier"
        )
