"""Rows of a table as Avro values, by a schema that is given or that follows from the columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkalog._core.values.avro import FRAMINGS
from kafkalog.lake.derived_avro import avro_schema
from kafkalog.lake.row_encoder import RowEncoder, RowSchema, checked_framing, registry_head, stored
from kafkalog.values.avro import fingerprint
from kafkalog.values.avro_encode import encoder
from kafkalog.values.avro_given import given_avro
from kafkalog.values.avro_schema import parse_avro
from kafkalog.values.avro_text import schema_text
from kafkalog.values.row_bytes import longs
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.directory import SchemaDirectory

if TYPE_CHECKING:
    import pyarrow

_MARK: Final = b"\xc3\x01"
"""The first bytes of a single object."""


def avro_encoder(fields: Sequence[pyarrow.Field], name: str, given: RowSchema) -> RowEncoder:
    """Return the encoder of rows with these columns; by default the schema follows from the columns.

    A schema without an id, in the registry's framing, is stored in `schemas`, if that is a directory of files.
    IllegalArgument for a schema that does not fit the columns, an unknown framing, or a schema without the id that its
    framing needs; errors of the place of schemas.
    """
    import pyarrow as pa

    source = None if given.schemas is None else schema_source(given.schemas)
    framing = checked_framing(given.framing, source, tuple(FRAMINGS))
    if given.schema is None:
        schema = parse_avro(avro_schema(fields, name))
    else:
        schema = given_avro(given.schema, source)
    wanted = {name for one in schema.fields for name in (one.name, *one.aliases)}
    columns = tuple(field.name for field in fields if field.name in wanted)
    plan = encoder(schema, pa.struct(fields))
    number = given.schema if isinstance(given.schema, int) else None
    if number is None and (framing == "registry" or isinstance(source, SchemaDirectory)):
        number = stored(json.dumps(json.loads(schema_text(schema)), indent=1).encode(), ".avsc", source)
    head = b""
    if framing == "registry":
        head = registry_head(number)
    elif framing == "single-object":
        head = _MARK + fingerprint(schema).to_bytes(8, "little", signed=True)
    return RowEncoder(columns, plan, head, longs if framing == "length" else None)
