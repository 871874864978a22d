"""The options of `verify`, on one machine and on Spark."""

from __future__ import annotations

import click

from kafkalog.cli import common

_OPTIONS = (
    common.paths_argument("(DIR | PARTITION | FILE)..."),
    click.option("--deep", is_flag=True, help="Also decode every record, of every format and codec."),
    click.option("--indexes", is_flag=True, help="Only compare indexes with batch headers; verify no checksums."),
    common.json_option("Print one JSON object for each finding, and one for the report."),
)


def check_options(command: common.Command) -> common.Command:
    """Add the options of what to check, how thoroughly, and the output."""
    return common.with_options(_OPTIONS, command)
