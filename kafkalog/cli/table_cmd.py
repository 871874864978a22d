"""`kafkalog table`: topics as Iceberg and Delta tables, and back; small files of tables put together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.table_load import load
from kafkalog.cli.table_options import print_commit, print_commits, sync_keywords, sync_options

if TYPE_CHECKING:
    from kafkalog.cli.table_options import SyncGiven

    class _Given(SyncGiven):
        """Values of the options of `sync`."""

        upsert: bool
        follow: bool
        commit_every_s: float


@click.group("table", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Write topics to Iceberg and Delta tables, and their rows to topics, each once. See docs/lake.md."""


command.add_command(load)


@command.command("sync")
@sync_options
@click.option("--upsert", is_flag=True, help="A record replaces the row of its partition and key; a tombstone deletes.")
@click.option("--follow", is_flag=True, help="Keep syncing, until the command is stopped.")
@click.option(
    "--commit-every", "commit_every_s", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
    metavar="SECONDS", help="With --follow: seconds from one sync to the next. Longer gives fewer files.",
)  # fmt: skip
@common.quiet_options
def sync(**given: Unpack[_Given]) -> int:
    """Write the committed records of a topic that TABLE does not have yet to it, once or with --follow.

    TABLE is iceberg:DIRECTORY/NAMESPACE.TABLE (a local catalog in the directory), iceberg://CATALOG/NAMESPACE.TABLE (a
    catalog of pyiceberg's settings, or with its properties by -X), or the path or URL of a Delta table. It is created
    if it is missing. The positions are part of each commit: after a crash the next sync continues with the next record,
    and no record is written twice. The command takes no lock and changes nothing in the directories; a broker may be
    running.

    Example: kafkalog table sync -d data -t orders -s value=json iceberg:lake/shop.orders

    Example: kafkalog table sync -d data -t orders --partition-by 'day(timestamp)' --follow tables/orders

    Exit status: 0 the table has all, 1 damage, a conflict or another failure, 2 wrong usage.
    """
    from kafkalog.lake.sync import follow_topic, sync_topic

    skipped: list[Any] = []
    options = {**sync_keywords(given, skipped), "upsert": given["upsert"]}
    dirs, topic, target = common.need_dirs(given["dirs"]), given["topic"], given["target"]
    if given["follow"]:
        for commit in follow_topic(dirs, topic, target, commit_every_s=given["commit_every_s"], **options):
            print_commit(commit, as_json=given["as_json"])
    else:
        print_commits(sync_topic(dirs, topic, target, **options), given)
    common.report_skipped(skipped)
    return 1 if skipped else 0


@command.command("compact")
@click.argument("target", metavar="TABLE")
@click.option("--target-file-bytes", default="128M", show_default=True, metavar="SIZE", help="Approximate file size.")
@common.settings_option("Property of the catalog or of the store", "--catalog")
@common.json_option("Print one JSON object for each commit.")
@common.quiet_options
def compact(
    target: str, target_file_bytes: str, settings: dict[str, str], as_json: bool
) -> int:
    """Write the small files of TABLE, which a sync made, again as fewer ones with the same rows.

    Files of less than three quarters of --target-file-bytes are small. A sync may run meanwhile. Readers of older
    snapshots keep the old files, until the snapshots are expired (Iceberg) or vacuumed (Delta).

    Example: kafkalog table compact iceberg:lake/shop.orders

    Exit status: 0 done, also if there was nothing to do, 1 a conflict or another failure, 2 wrong usage.
    """
    from kafkalog.cli.spark_export import parse_size
    from kafkalog.lake.compact import compact_table

    size = parse_size(target_file_bytes, "--target-file-bytes")
    commits = compact_table(target, options=settings, target_file_bytes=size)
    for commit in commits:
        if as_json:
            print(json.dumps(commit._asdict()))
        else:
            print(
                f"{common.plural(commit.removed, 'file')} of {commit.removed_bytes:,} bytes became "
                f"{common.plural(commit.files, 'file')} of {commit.bytes:,}; snapshot {commit.snapshot}"
            )
    if not commits:
        common.note("kafkalog: the table has no small files to put together")
    return 0
