"""Options of the commands that write a topic to a table, and what these make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import COLUMN_DECODERS, DecoderGiven, schema_options, serdes_option, typed_keywords

if TYPE_CHECKING:
    from kafkalog.lake.sync import SyncCommit
    from kafkalog.storage.damage import Skipped


class SyncGiven(DecoderGiven):
    """Values of the options of `sync_options`."""

    dirs: tuple[str, ...]
    topic: str
    target: str
    project: str | None
    on_undecodable: str | None
    partition_by: tuple[str, ...]
    target_file_bytes: str
    settings: dict[str, str]
    on_damage: str
    as_json: bool


sync_options = common.options(
    click.argument("target", metavar="TABLE"),
    common.dir_option,
    common.topic_option(required=True),
    serdes_option(f"Decode keys and values to typed columns: key=NAME or value=NAME; NAME is {COLUMN_DECODERS}."),
    schema_options,
    click.option(
        "--project", metavar="FIELDS",
        help="Comma-separated columns of the table: NAME=PATH or PATH, such as offset,cents=value.total.cents.",
    ),  # fmt: skip
    click.option(
        "--on-undecodable", type=click.Choice(["null", "raise"]),
        help="Keys and values that do not decode: null, with the reason in the column key_error or value_error "
        "(default); or an error (default with --project).",
    ),  # fmt: skip
    click.option(
        "--partition-by", multiple=True, metavar="FIELD",
        help="Partition a new table by day(timestamp), hour(timestamp), or a field such as value.country; repeatable.",
    ),  # fmt: skip
    click.option(
        "--target-file-bytes", default="128M", show_default=True, metavar="SIZE", help="Approximate file size."
    ),  # fmt: skip
    common.settings_option("Property of the catalog or of the store", "--catalog"),
    common.on_damage_option,
    common.json_option("Print one JSON object for each commit."),
)
"""TABLE, and the options of what is written to it."""


def sync_keywords(given: SyncGiven, skipped: list[Skipped]) -> dict[str, Any]:
    """Return the keywords of a sync; a usage error for options that do not go together."""
    from kafkalog.cli.consume_where import split_fields
    from kafkalog.cli.spark_export import parse_size

    typed = typed_keywords(given["serdes"], given["schemas"], given["schema"], given["message"])
    if typed:
        typed["on_undecodable"] = given["on_undecodable"] or ("null" if given["project"] is None else "raise")
    if given["project"] is not None:
        typed["project"] = _projection(split_fields(given["project"]))
    return typed | {
        "options": given["settings"], "partition_by": given["partition_by"],
        "target_file_bytes": parse_size(given["target_file_bytes"], "--target-file-bytes"),
        "on_damage": given["on_damage"], "skipped": skipped if given["on_damage"] == "skip" else None,
    }  # fmt: skip


def _projection(fields: list[str]) -> dict[str, str]:
    """Return the columns and their paths: `NAME=PATH`, or a path as its own name."""
    pairs = [one.partition("=") for one in fields]
    return {name.strip(): (path if equals else name).strip() for name, equals, path in pairs}


def print_commits(commits: Sequence[SyncCommit], given: SyncGiven) -> None:
    """Print the commits of a sync that has ended, or a note if there were none."""
    for commit in commits:
        print_commit(commit, as_json=given["as_json"])
    if not commits:
        common.note("kafkalog: the table has all records")


def print_commit(commit: SyncCommit, *, as_json: bool) -> None:
    """Print a commit as a line, or as a JSON object."""
    if as_json:
        print(json.dumps(commit._asdict()), flush=True)
        return
    removed = f", {common.plural(commit.removed, 'file')} replaced" if commit.removed else ""
    undecodable = f"; {commit.undecodable:,} did not decode" if commit.undecodable else ""
    print(
        f"{common.plural(commit.records, 'record')} in {common.plural(commit.files, 'file')}, {commit.bytes:,} bytes"
        f"{removed}; snapshot {commit.snapshot}{undecodable}",
        flush=True,
    )
