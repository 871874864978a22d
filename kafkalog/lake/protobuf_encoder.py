"""Rows of a table as Protobuf messages, by a schema that is given or that follows from the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.lake.derived_protobuf import protobuf_schema
from kafkalog.lake.row_encoder import RowEncoder, RowSchema, checked_framing, registry_head, stored
from kafkalog.values.protobuf import given_message
from kafkalog.values.protobuf_encode import column_of, encoder
from kafkalog.values.protobuf_schemas import descriptor_set, indexes_of
from kafkalog.values.row_bytes import longs, varints
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.directory import SchemaDirectory

if TYPE_CHECKING:
    import pyarrow

FRAMINGS: Final = ("raw", "registry", "delimited")


def protobuf_encoder(fields: Sequence[pyarrow.Field], name: str, given: RowSchema) -> RowEncoder:
    """Return the encoder of rows with these columns; by default the message follows from the columns.

    A schema without an id, in the registry's framing, is stored in `schemas`, if that is a directory of files, as a
    descriptor set. Errors are those of `avro_encoder`; MissingPackage without the package protobuf.
    """
    import pyarrow as pa

    source = None if given.schemas is None else schema_source(given.schemas)
    framing = checked_framing(given.framing, source, FRAMINGS)
    indexes: tuple[int, ...] = (0,)
    if given.schema is None:
        if given.message is not None:
            raise IllegalArgument("message names one of a schema", hint="give schema (--schema), or no message")
        descriptor = protobuf_schema(fields, name)
    else:
        descriptor, indexes = given_message(given.schema, given.message, source)
    names = [field.name for field in fields]
    wanted = {column_of(field, names) for field in descriptor.fields}
    columns = tuple(name for name in names if name in wanted)
    plan = encoder(descriptor, pa.struct(fields))
    number = given.schema if isinstance(given.schema, int) else None
    if number is None and (framing == "registry" or isinstance(source, SchemaDirectory)):
        number = stored(descriptor_set(descriptor.file), ".desc", source)
        indexes = indexes_of(descriptor)
    head = registry_head(number) + _index_bytes(descriptor, indexes) if framing == "registry" else b""
    return RowEncoder(columns, plan, head, varints if framing == "delimited" else None)


def _index_bytes(descriptor: Any, indexes: tuple[int, ...]) -> bytes:
    """Return the index of a message's type in its file as in a registry's header: one byte for the first type."""
    if not indexes:
        raise IllegalArgument(
            f"{descriptor.full_name} is a message of a file that the schema imports: no value can name it",
            hint="give the id of the schema that has the message",
        )
    found = [b"\0"] if indexes == (0,) else longs([len(indexes), *indexes]).to_pylist()
    return b"".join(found)
