"""Rows of a table as Avro values, by a schema that is given or that follows from the columns."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.values.avro import FRAMINGS
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.avro_schemas import avro_schema
from kafkalog.values.avro import fingerprint
from kafkalog.values.avro_encode import encoder
from kafkalog.values.avro_given import AnySchema, given_avro
from kafkalog.values.avro_leaves import Plan, joined, longs, scalar
from kafkalog.values.avro_schema import AvroType, parse_avro
from kafkalog.values.avro_text import schema_text
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.directory import MOST_ID, SchemaDirectory
from kafkalog.values.schemas.source import SchemaSource

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AvroRows", "RowSchema"]

_ID_BYTES: Final = 4
_MARK: Final = b"\xc3\x01"
"""The first bytes of a single object."""


class RowSchema(NamedTuple):
    """The schema of values as a caller gives it, in the words of a scan: `schema`, `schemas` and `framing`."""

    schema: AnySchema | None = None
    schemas: str | os.PathLike[str] | SchemaSource | None = None
    framing: str | None = None


class AvroRows:
    """An encoder of rows.

    Without a schema, that of the columns counts. A schema without an id, in the registry's framing, is stored in
    `schemas`, if that is a directory of files. IllegalArgument for a schema that does not fit the columns, a framing
    that is unknown, or an id that is not to be had; errors of the place of schemas.
    """

    def __init__(self, fields: Sequence[pyarrow.Field], name: str, given: RowSchema) -> None:
        import pyarrow as pa

        source = None if given.schemas is None else schema_source(given.schemas)
        framing = given.framing or ("raw" if source is None else "registry")
        if framing not in FRAMINGS:
            raise IllegalArgument(f"unknown framing {framing!r}", hint=f"the framings are {', '.join(FRAMINGS)}")
        if given.schema is None:
            self.schema = parse_avro(avro_schema(fields, name))
        else:
            self.schema = given_avro(given.schema, source)
        wanted = {name for one in self.schema.fields for name in (one.name, *one.aliases)}
        self.columns = tuple(field.name for field in fields if field.name in wanted)
        """Names of the columns that `encode` takes."""
        self._encode: Plan = encoder(self.schema, pa.struct(fields))
        number = given.schema if isinstance(given.schema, int) else None
        if number is None and (framing == "registry" or isinstance(source, SchemaDirectory)):
            number = _stored(self.schema, source)
        self._has_size = framing == "length"
        self._head = _head(framing, self.schema, number)

    def encode(self, rows: pyarrow.RecordBatch) -> pyarrow.Array:
        """Return the value of each row of `columns`; InvalidRecord for one that is beyond its type in the schema."""
        try:
            values = self._encode(rows.to_struct_array())
        except (ValueError, OverflowError, NotImplementedError) as error:
            raise InvalidRecord(
                f"a row does not fit the schema: {error}", hint="give a schema with a wider type, or with null"
            ) from None
        if self._has_size:
            return joined(len(values), [longs(_sizes(values)), values])
        return joined(len(values), [scalar(self._head), values]) if self._head else values


def _sizes(values: pyarrow.Array) -> object:
    import pyarrow.compute as pc

    return pc.binary_length(values).to_numpy(zero_copy_only=False)


def _stored(schema: AvroType, source: SchemaSource | None) -> int:
    if not isinstance(source, SchemaDirectory):
        raise IllegalArgument(
            "the framing 'registry' needs the id of a schema",
            hint="give schema=ID of one in schemas, or a directory, in which the schema is stored, as schemas",
        )
    return source.stored_id(json.dumps(json.loads(schema_text(schema)), indent=1).encode())


def _head(framing: str, schema: AvroType, number: int | None) -> bytes:
    """Return the bytes that all values begin with."""
    if framing == "registry":
        if number is None or not 0 <= number <= MOST_ID:
            raise IllegalArgument(f"a value cannot name schema {number}", hint=f"ids go up to {MOST_ID}")
        return b"\0" + number.to_bytes(_ID_BYTES, "big")
    return _MARK + fingerprint(schema).to_bytes(8, "little", signed=True) if framing == "single-object" else b""
