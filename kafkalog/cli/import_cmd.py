"""`kafkalog import`: Parquet, Arrow and JSON lines to topics; topics of another data directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from kafkalog.cli import common, row_options
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    class _Given(TypedDict):
        """Values of the command's options that an import takes."""

        topic: str | None
        columns: dict[str, str]
        offsets: str
        partitions: int
        compression: str | None
        group_offsets: bool
        resume: bool


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="(FILE | DIR)...")
@common.dir_option
@click.option("-t", "--topic", metavar="TOPIC", help="Topic of all rows. Default: from the rows or their paths.")
@click.option(
    "--format", "format", type=click.Choice(["auto", "kafka-dir"]), default="auto", show_default=True,
    help="auto: by file names; kafka-dir: topics of another data directory, byte by byte (auto also detects one that"
    " `kafkalog export` wrote).",
)  # fmt: skip
@row_options.column_option
@row_options.offsets_option
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Minimum for a new topic.")
@click.option("-z", "compression", metavar="CODEC", help="Codec of batches, if the topic has none of its own.")
@click.option(
    "--group-offsets", is_flag=True,
    help="With kafka-dir: also commit the offsets of groups in these topics. No group may be active.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an import that keeps offsets; existing records stay.")
@common.json_option("Print one JSON object for the import.")
@common.quiet_options
def command(files: tuple[str, ...], dirs: tuple[str, ...], format: str, as_json: bool, **given: Unpack[_Given]) -> int:
    """Import records from Parquet, Arrow or JSON lines, such as the files of `kafkalog export`, into topics.

    Keys, values, nulls, headers and times are restored unchanged. Rows with topic, partition and offset keep their
    offsets if all of their partitions are empty; otherwise they are appended. --resume continues an import that keeps
    offsets and was stopped.

    Example: kafkalog import tables -d data -t orders

    Exit status: 0 written, 1 incomplete, 2 wrong usage.
    """
    where = common.need_dirs(dirs)
    if len(where) != 1:
        raise click.UsageError("an import writes to one data directory: give -d once")
    from kafkalog.exchange.kafka_dir import is_exported

    with Meter("import", None) as meter:
        if format == "kafka-dir" or len(files) == 1 and is_exported(files[0]):
            return _import_directory(files, where[0], given, as_json, meter)
        if given["group_offsets"]:
            raise click.UsageError("record files contain no group offsets: --group-offsets needs --format kafka-dir")
        from kafkalog.exchange.import_ import import_records

        report = import_records(
            files, where[0], given["topic"], columns=given["columns"], offsets=given["offsets"],
            partitions=given["partitions"], compression=given["compression"], resume=given["resume"],
            progress=meter.add,
        )  # fmt: skip
    if as_json:
        print(json.dumps(report._asdict()))
    else:
        how = "with their offsets" if report.kept else "appended"
        there = f"; {report.before:,} existed already" if report.before else ""
        print(f"{common.plural(report.records, 'record')} of {common.plural(report.files, 'file')} {how}{there}")
    return 0


def _import_directory(files: tuple[str, ...], data: str, given: _Given, as_json: bool, meter: Meter) -> int:
    from kafkalog.exchange.kafka_dir import import_directory
    from kafkalog.server.groups.stored import commit_all, whole_offsets

    if len(files) != 1:
        raise click.UsageError("kafka-dir imports one data directory: name one")
    topics = () if given["topic"] is None else (given["topic"],)
    commit = commit_all if given["group_offsets"] else None
    found = import_directory(
        files[0], data, topics=topics, resume=given["resume"], committed=whole_offsets, commit=commit,
        tell=meter.add,
    )  # fmt: skip
    if as_json:
        print(json.dumps({"partitions": [str(one.topic_partition) for one in found]}))
    else:
        print(f"{common.plural(len(found), 'partition')} of {files[0]}")
    return 0
