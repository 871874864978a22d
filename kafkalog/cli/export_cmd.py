"""`kafkalog export`: records to Parquet, Arrow or JSON lines; topics to another data directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import click

from kafkalog.cli import common, row_options
from kafkalog.cli.decoder_options import COLUMN_DECODERS, DecoderGiven, schema_options, serdes_option, typed_keywords
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    class _Given(DecoderGiven):
        """Values of the command's options that an export takes."""

        dirs: tuple[str, ...]
        topics: tuple[str, ...]
        partitions: tuple[int, ...]
        target_size: str
        offsets: tuple[str, ...]
        columns: str | None
        by_date: bool
        compression: str | None
        resume: bool
        where: str | None
        on_undecodable: str | None
        isolation_level: str | None
        on_damage: str
        tiered: str | None

FORMATS = ("parquet", "arrow", "jsonl", "kafka-dir")


@click.command("export")
@common.dir_option
@common.topics_option
@common.partition_option(multiple=True)
@click.argument("target", type=click.Path(), metavar="TARGET")
@click.option("--format", "format", type=click.Choice(FORMATS), default="parquet", show_default=True, help="Format.")
@click.option("--target-size", default="128M", show_default=True, metavar="SIZE", help="Approximate size of files.")
@click.option(
    "-o", "offsets", multiple=True, metavar="OFFSET",
    help="Start: beginning (default), N, -N (N before the end) or s@TIME. Add e@TIME to set the end. TIME is ms "
    "since 1970 or ISO-8601, UTC if no zone is given.",
)  # fmt: skip
@click.option("--columns", metavar="NAMES", help="Comma-separated columns. Default: all.")
@click.option("--where", metavar="CONDITION", help="Export only records for which this is true. See docs/where.md.")
@serdes_option(
    f"Decode keys and values to typed columns: key=NAME or value=NAME; NAME is {COLUMN_DECODERS}."
)
@schema_options
@click.option(
    "--on-undecodable", type=click.Choice(["raise", "null"]),
    help="Keys and values that do not decode: an error (default); or null, with the reason in key_error or "
    "value_error.",
)  # fmt: skip
@click.option("--by-date", is_flag=True, help="Write a directory for each day (UTC) of the records' times.")
@click.option("--compression", metavar="CODEC", help="Codec of Parquet and Arrow files. Default: zstd.")
@click.option("--resume", is_flag=True, help="Continue the export in TARGET; existing files stay.")
@common.isolation_option
@common.on_damage_option
@common.tiered_option
@common.json_option("Print one JSON object for the export.")
@common.quiet_options
def command(target: str, format: str, as_json: bool, **given: Unpack[_Given]) -> int:
    """Export the records of topics into TARGET: topic=NAME/*.parquet, *.arrow or *.jsonl.

    --resume continues an export that was stopped, or adds new records to a finished one; no record is exported twice.
    The columns are those of Spark's Kafka source, and the directory is that of `kafkalog spark export`. With --format
    kafka-dir, TARGET becomes a data directory with the same bytes, and a manifest of settings and group offsets. A
    damaged log cannot be exported in that format.

    Example: kafkalog export -d data -t orders tables --by-date

    Exit status: 0 exported, 1 incomplete, 2 wrong usage.
    """
    dirs = common.need_dirs(given["dirs"])
    if format == "kafka-dir":
        return _export_directory(dirs, target, given, as_json)
    from kafkalog.cli.spark_export import parse_size
    from kafkalog.exchange.export import IncompleteExport, UndecodableExport, export_records
    from kafkalog.tools.offsets import parse_bounds
    from kafkalog.tools.verify.directories import total_bytes
    from kafkalog.util.times import text_ms

    columns, size = given["columns"], parse_size(given["target_size"], "--target-size")
    level = common.isolation_level(given["isolation_level"])
    total = total_bytes(dirs, tiered=given["tiered"]) if sys.stderr.isatty() else None
    with Meter("export", total) as meter:
        damage: IncompleteExport | UndecodableExport | None = None
        try:
            report = export_records(
                dirs, target, format, topics=given["topics"], numbers=given["partitions"],
                bounds=parse_bounds(given["offsets"], text_ms),
                columns=None if columns is None else [name.strip() for name in columns.split(",")],
                isolation=level, by_date=given["by_date"], compression=given["compression"], file_bytes=size,
                resume=given["resume"], on_damage=given["on_damage"], where=given["where"], tiered=given["tiered"],
                progress=meter.add, **_decoding(given),
            )  # fmt: skip
        except (IncompleteExport, UndecodableExport) as error:
            damage, report = error, error.report
    row_options.print_export(report, as_json=as_json)
    common.report_skipped(report.skipped)
    if report.not_decoded:
        common.note(f"note: keys and values that do not decode: {report.not_decoded:,}; they are null, for --where too")
    if damage is not None:
        for other in (*report.damaged, *report.undecodable)[1:]:
            print(f"kafkalog: {other}", file=sys.stderr)
        raise damage
    return 1 if report.skipped else 0


def _decoding(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of an export that decodes; a usage error for options without a decoder."""
    if not given["serdes"] and given["on_undecodable"] is not None:
        raise click.UsageError("--on-undecodable is for decoders: give -s, such as -s value=avro")
    typed = typed_keywords(given["serdes"], given["schemas"], given["schema"], given["message"])
    return {**typed, "on_undecodable": given["on_undecodable"]}


def _export_directory(dirs: list[str], target: str, given: Mapping[str, Any], as_json: bool) -> int:
    names = ("offsets", "columns", "by_date", "compression", "isolation_level", "partitions", "where", "tiered",
             "serdes", "schemas", "schema", "message", "on_undecodable")  # fmt: skip
    wrong = [name for name in names if given[name]]
    if wrong:
        raise click.UsageError(
            "kafka-dir copies whole partitions: omit options for ranges, columns, decoders, files and stores"
        )
    from kafkalog.exchange.kafka_dir import export_directory
    from kafkalog.server.groups.stored import whole_offsets

    with Meter("export", None) as meter:
        manifest = export_directory(
            dirs, target, topics=given["topics"], committed=whole_offsets, tell=meter.add
        )
    for text in manifest.notes:
        common.note(f"kafkalog: note: {text}")
    partitions = manifest.partitions
    if as_json:
        print(json.dumps({"partitions": len(partitions), "files": len(manifest.files), "bytes": manifest.size}))
    else:
        print(
            f"exported {common.plural(len(partitions), 'partition')}, "
            f"{common.plural(sum(one.end_offset - one.start_offset for one in partitions), 'offset')}, "
            f"{common.plural(len(manifest.files), 'file')}, {manifest.size:,} bytes"
        )
    return 0
