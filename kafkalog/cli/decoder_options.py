"""Options that name decoders of keys and values, `-s`, `--schemas` and `--schema`, and what commands make of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict

import click

from kafkalog.cli.common import Command, options


class DecoderGiven(TypedDict):
    """Values of -s and of `schema_options`."""

    serdes: tuple[str, ...]
    schemas: str | None
    schema: str | None
    message: str | None


COLUMN_DECODERS = (
    "json, string, int64 (and the like), uuid, avro or protobuf (with --schemas or --schema), or group, transaction, "
    "share-state, cluster or remote-log for records of Kafka's own topics"
)
"""Names of decoders of columns, for the help of commands."""
ROW_DECODERS = (
    "a pack string as in kcat (such as >iq$), json, integer, long, string, int32 (and the like), uuid, avro or "
    "protobuf (with --schemas or --schema), jsonschema (with --schemas), group, transaction, share-state, cluster or "
    "remote-log for records of Kafka's own topics, or module:function"
)
"""Names of decoders of single values."""


def serdes_option(help: str) -> Callable[[Command], Command]:
    """Add -s, repeatable, as `serdes`."""
    return click.option("-s", "serdes", multiple=True, metavar="SERDES", help=help)


schemas_option = click.option(
    "--schemas", type=click.Path(), metavar="PLACE",
    help="Registry schemas: a directory with <id>.avsc and <id>.desc; for Avro also a registry's http address, or "
    "a data directory with the topic _schemas.",
)


schema_options = options(
    schemas_option,
    click.option(
        "--schema", metavar="SCHEMA",
        help="Schema of the values: a file, or the id in --schemas. Default: the subject's latest version, or the "
        "schema of the first value.",
    ),
    click.option("--message", metavar="NAME", help="Message of a Protobuf schema."),
)  # fmt: skip
"""--schemas, --schema and --message: where the schemas of the decoders of columns are."""


def decoder_names(serdes: Sequence[str]) -> dict[str, str]:
    """Return the names of the decoders of "key" and "value" in `-s` flags; a usage error for another part.

    >>> decoder_names(["string", "value=json"])
    {'key': 'string', 'value': 'json'}
    """
    found: dict[str, str] = {}
    for text in serdes:
        part, equals, name = text.partition("=")
        if equals and part not in ("key", "value"):
            raise click.BadParameter(f"{part!r} is neither key nor value", param_hint=f"-s {text}")
        found |= {part: name} if equals else {"key": text, "value": text}
    return found


def schema_given(text: str | None) -> str | int | None:
    """Return the schema of `--schema`: an id, or what names it otherwise.

    >>> schema_given("7"), schema_given("orders.avsc")
    (7, 'orders.avsc')
    """
    return int(text) if text is not None and text.isascii() and text.isdecimal() else text


def typed_keywords(
    serdes: Sequence[str], schemas: str | None, schema: str | None = None, message: str | None = None
) -> dict[str, Any]:
    """Return the keywords of a scan that decodes as `-s` says, with nulls for what does not decode; {} without `-s`."""
    given = {"schemas": schemas, "schema": schema_given(schema), "message": message}
    if not serdes:
        for name, value in given.items():
            if value is not None:
                raise click.UsageError(f"--{name} is for decoders: give -s, such as -s value=avro")
        return {}
    return {**decoder_names(serdes), **given, "on_undecodable": "null"}


def keywords_for(roots: Collection[str], given: DecoderGiven) -> dict[str, Any]:
    """Return `typed_keywords` for a condition or fields that look into `roots`; {} where none of them is decoded."""
    found = typed_keywords(given["serdes"], given["schemas"], given["schema"], given["message"])
    return found if found.keys() & roots else {}
