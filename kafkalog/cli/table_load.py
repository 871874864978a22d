"""`kafkalog table load`: the rows of a table as records of a topic."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import decoder_names, schema_given, schemas_option, serdes_option


@click.command("load")
@click.argument("source", metavar="TABLE")
@common.dir_option
@common.topic_option(required=True)
@click.option(
    "--column", "columns", multiple=True, metavar="PART=NAME",
    callback=lambda ctx, param, given: common.parse_settings(given),
    help="Column NAME of PART: key, value, headers, timestamp or partition; repeatable. Default: those of these names, "
    "but for partition.",
)  # fmt: skip
@click.option(
    "--value-format", type=click.Choice(["column", "json", "avro", "protobuf"]), default="column", show_default=True,
    help="column: the value is a column; json, avro and protobuf: it is the whole row, but for the headers.",
)  # fmt: skip
@serdes_option("value=json, value=avro or value=protobuf, the same as --value-format.")
@click.option(
    "--schema", metavar="SCHEMA",
    help="Schema of Avro or Protobuf values: a file, or the id in --schemas. Default: that of the columns.",
)  # fmt: skip
@click.option("--message", metavar="NAME", help="Message of a Protobuf schema.")
@schemas_option
@click.option(
    "--framing", type=click.Choice(["registry", "raw", "length", "single-object", "delimited"]),
    help="Start of Avro or Protobuf values. registry: the schema's id, default with --schemas; a directory gets a file "
    "for a schema without id. length and single-object are for Avro, delimited (the size) for Protobuf. Default: raw.",
)  # fmt: skip
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number for a new topic.")
@click.option("-z", "compression", metavar="CODEC", help="Codec of batches, if the topic has none of its own.")
@common.settings_option("Property of the catalog or of the store", "--catalog")
@common.json_option("Print one JSON object for each batch.")
@common.quiet_options
def load(
    source: str, dirs: tuple[str, ...], topic: str, columns: dict[str, str], value_format: str, partitions: int,
    serdes: tuple[str, ...], schema: str | None, message: str | None, schemas: str | None, framing: str | None,
    compression: str | None, settings: dict[str, str], as_json: bool,
) -> int:  # fmt: skip
    """Append the rows of TABLE that the topic does not have yet to it: all at first, then those of later snapshots.

    TABLE is named as for `kafkalog table sync`. What a batch has is noted in the data directory before it lands, so
    after a crash the next load continues, and no row is appended twice. A snapshot that removed or changed rows is an
    error. No other program may write to the directory meanwhile.

    Example: kafkalog table load -d data -t orders --column key=id --value-format json iceberg:lake/shop.orders

    Exit status: 0 the topic has all, 1 a failure, 2 wrong usage.
    """
    where = common.need_dirs(dirs)
    if len(where) != 1:
        raise click.UsageError("a load writes to one data directory: give -d once")
    decoders = decoder_names(serdes)
    if decoders.keys() - {"value"} or decoders.get("value", "json") not in ("json", "avro", "protobuf"):
        raise click.UsageError("rows become values of JSON, Avro or Protobuf: give -s value=json, avro or protobuf")
    from kafkalog.lake.table_load import load_table

    batches = load_table(
        source, where[0], topic, columns=columns, value_format=value_format, value=decoders.get("value"),
        schema=schema_given(schema), message=message, schemas=schemas, framing=framing, options=settings,
        partitions=partitions, compression=compression,
    )  # fmt: skip
    has_all_rows = True
    for one in batches:
        has_all_rows = False
        if as_json:
            print(json.dumps(one._asdict()), flush=True)
        else:
            what = f"{common.plural(one.records, 'record')} of {common.plural(one.files, 'file')}"
            print(f"{what}; snapshot {one.snapshot}{'' if one.is_whole else ', in part'}", flush=True)
    if has_all_rows:
        common.note("kafkalog: the topic has all rows")
    return 0
