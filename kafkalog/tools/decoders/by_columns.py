"""Decoders of single values by a given schema: a decoder of columns, called with one value at a time."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.tools.decoders.plain import DecodeError, Decoder
from kafkalog.util.python_rows import NO_OBJECT

WITH_GIVEN_SCHEMA: Final = ("avro", "protobuf")
"""Decoders of single values that a given schema changes; JSON shows all of its fields without one."""


def by_schema(name: str, *, schema: str | int | None, message: str | None, schemas: str | None = None) -> Decoder:
    """Return the decoder of a name with a schema: a file, or an id in `schemas`, and a Protobuf message's name.

    IllegalArgument for a decoder without a schema, and for what is no schema.

    >>> by_schema("avro", schema='"string"', message=None)(bytes([4]) + b"hi")
    'hi'
    """
    from kafkalog import values
    from kafkalog.values.decoding import import_pyarrow

    if name not in WITH_GIVEN_SCHEMA:
        raise IllegalArgument(f"the decoder {name} takes no schema", hint="schemas are for avro, protobuf and json")
    columns = values.decoder(name, schema=schema, message=message, schemas=schemas)
    pyarrow = import_pyarrow()

    def decode(data: bytes) -> object:
        found = columns.decode(pyarrow.array([data], pyarrow.binary()))
        if found.errors is not None:
            raise DecodeError(found.errors[0].as_py())
        try:
            value: object = found.values.to_pylist(maps_as_pydicts="lossy")[0]
        except NO_OBJECT:
            raise DecodeError("it has a time beyond Python's calendar") from None
        return value

    return decode
