"""Decoders of columns by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.values.decoding import ValueDecoder
from kafkalog.values.plain import FORMATS, BytesDecoder, PlainDecoder

WITH_SCHEMA: Final = {
    "avro": ("kafkalog.values.avro", "AvroDecoder"),
    "json": ("kafkalog.values.json_columns", "JsonDecoder"),
    "protobuf": ("kafkalog.values.protobuf", "ProtobufDecoder"),
}
"""The module and the class of each decoder that takes a schema; loaded when it is named."""
INTERNAL: Final = ("group", "transaction", "share-state", "cluster", "remote-log")
"""Decoders of Kafka's own topics."""
NAMES: Final = ("bytes", *FORMATS, *WITH_SCHEMA, *INTERNAL)


def decoder(name: str, **options: Any) -> ValueDecoder:
    """Return the decoder of columns with a name: one of NAMES.

    `options` are the arguments of the decoder's class, such as `schema` and `schemas` of AvroDecoder; an option with
    the value None counts as not given. IllegalArgument for an unknown name, or an option that the decoder does not
    have.

    >>> import pyarrow
    >>> decoder("int64").decode(pyarrow.array([bytes(7) + b"!"])).values.to_pylist()
    [33]
    >>> decoder("avro", schema='"string"').arrow_type
    DataType(string)
    """
    given = {option: value for option, value in options.items() if value is not None}
    if name in WITH_SCHEMA:
        module, kind = WITH_SCHEMA[name]
        made = getattr(import_module(module), kind)
    elif name in INTERNAL:
        from kafkalog.values.internal import InternalDecoder

        given["name"] = name
        made = InternalDecoder
    elif name == "bytes":
        made = BytesDecoder
    elif name in FORMATS:
        given["name"] = name
        made = PlainDecoder
    else:
        raise IllegalArgument(f"unknown decoder {name!r}", hint=f"the decoders are {', '.join(NAMES)}")
    try:
        found: ValueDecoder = made(**given)
    except TypeError as error:
        if "unexpected keyword" not in str(error) and "takes no arguments" not in str(error):
            raise
        raise IllegalArgument(f"the decoder {name} does not take that: {error}") from None
    return found
