"""Decoders by name: those of this package, of the reference, and functions of the user's (`module:function`)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.tools.decoders.plain import (
    NUMBERS,
    PACK,
    DecodeError,
    Decoder,
    integer,
    json,
    long,
    number,
    pack,
    raw,
    text,
    uuid,
)
from kafkalog.tools.decoders.registry import avro, json_schema, protobuf
from kafkalog.util.python_rows import NO_OBJECT, what_lacks_an_object

_REFERENCE: Final = "org.apache.kafka.tools.api."
_REGISTRY: Final[dict[str, Callable[[str], Decoder]]] = {
    "avro": avro, "protobuf": protobuf, "jsonschema": json_schema,
}  # fmt: skip

NAMED: Final[dict[str, Decoder]] = {
    "string": text,
    "text": text,
    "json": json,
    "integer": integer,
    "long": long,
    "bytes": raw,
    "uuid": uuid,
    **{name: number(name) for name in NUMBERS},
    f"{_REFERENCE}StringDecoder": text,
    f"{_REFERENCE}IntegerDecoder": integer,
    f"{_REFERENCE}LongDecoder": long,
    f"{_REFERENCE}DefaultDecoder": raw,
}


def decoder(
    name: str, *, schemas: str | None = None, schema: str | int | None = None, message: str | None = None
) -> Decoder:
    """Return the decoder of a name.

    The name is one of NAMED, `avro`, `protobuf` or `jsonschema` (which read `schemas`, a directory), a pack string, or
    `module:function`. `schema` is that of Avro or Protobuf values, a file or an id in `schemas`, and `message` the name
    of a Protobuf message: values then need no registry's id. IllegalArgument for an unknown name, with the known ones.

    >>> decoder("json")(b"[1]"), decoder(">i q$")(bytes(12)), decoder("zlib:crc32")(b"first")
    ([1], '0 0', 2456940119)
    """
    if name in WITH_GIVEN_SCHEMA and (schema is not None or message is not None):
        return by_schema(name, schema=schema, message=message, schemas=schemas)
    if name in NAMED:
        return NAMED[name]
    if name in _REGISTRY:
        if schemas is None:
            hint = None if name not in WITH_GIVEN_SCHEMA else "give --schemas PLACE, or --schema with one schema"
            raise IllegalArgument(f"the decoder {name} needs a directory of schemas", hint=hint)
        return _REGISTRY[name](schemas)
    if ":" in name:
        return _import_decoder(name)
    if name and PACK.fullmatch(name):
        return pack(name)
    known = ", ".join([*(known for known in NAMED if "." not in known), *_REGISTRY])
    raise IllegalArgument(
        f"unknown decoder {name!r}", hint=f"the decoders are {known}, pack strings such as >iq$, and module:function"
    )


def _import_decoder(name: str) -> Decoder:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise IllegalArgument(
            f"the decoder {name} cannot be loaded: {error}",
            hint="give module:function, with the module on PYTHONPATH",
        ) from error
    if not callable(found):
        raise IllegalArgument(f"the decoder {name} is not a function")
    decode: Decoder = found
    return decode


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
        except NO_OBJECT as error:
            raise DecodeError(f"it has {what_lacks_an_object(error)}") from None
        return value

    return decode
