"""Decoders for values with a schema registry's header: a zero byte, the schema's id (u32), then the data.

A directory holds the schemas, one file each, named by the id: `7.avsc` (Avro), `7.desc` (Protobuf: the
FileDescriptorSet that `protoc --include_imports -o 7.desc` writes). Avro's are also read from a registry's address or
from a data directory with the topic `_schemas`. Values of JSON Schema carry their document as it is; its schema is
ignored. Avro needs the package fastavro, Protobuf the package protobuf (extra `schemas`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.records.message import MessageError, Source
from kafkalog.tools.decoders.plain import DecodeError, Decoder, json
from kafkalog.util.packages import needed
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.directory import SchemaDirectory
from kafkalog.values.schemas.source import Schema, SchemaSource, UnknownSchema, referenced

MAGIC: Final = 0
HEADER_BYTES: Final = 5


def schema_id(data: bytes) -> int:
    """Return the id in the header; DecodeError if there is none."""
    if len(data) < HEADER_BYTES or data[0] != MAGIC:
        raise DecodeError("it does not begin with a schema registry's header (a zero byte and a 4-byte id)")
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def json_schema(directory: str) -> Decoder:
    """Return a decoder of values that are a header and a JSON document.

    >>> json_schema(".")(bytes([0, 0, 0, 0, 7]) + b'{"a": 1}')
    {'a': 1}
    """
    schema_source(directory)

    def decode(data: bytes) -> object:
        schema_id(data)
        return json(data[HEADER_BYTES:])

    return decode


def avro(schemas: str | SchemaSource) -> Decoder:
    """Return a decoder of Avro values, with the writers' schemas: `<id>.avsc` in a directory, or another place of them.

    >>> with open("7.avsc", "w") as file:
    ...     print('"string"', file=file)
    >>> avro(".")(bytes([0, 0, 0, 0, 7]) + bytes([4]) + b"hi")
    'hi'
    """
    source = schema_source(schemas)
    fastavro = _package("fastavro", "avro")

    def load(schema: Schema) -> object:
        names: dict[str, Any] = {}
        for content in dict.fromkeys(other.content for _, other in referenced(source, schema)):
            fastavro.parse_schema(json(content), named_schemas=names)
        return fastavro.parse_schema(json(schema.content), named_schemas=names)

    find = _Loaded(source, ".avsc", load)

    def decode(data: bytes) -> object:
        schema = find(schema_id(data))
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:
            raise DecodeError(f"it does not match its Avro schema: {type(error).__name__}: {error}") from error
        if stream.tell() != len(data):
            raise DecodeError(f"{len(data) - stream.tell()} bytes follow the Avro value")
        return value

    return decode


def protobuf(directory: str) -> Decoder:
    """Return a decoder of Protobuf values to dicts, with the descriptor sets `<id>.desc` of the directory.

    Between header and message are the indexes of the message's type: in its file, then in each message around it.

    >>> from google.protobuf import descriptor_pb2, text_format
    >>> user = 'file {name: "u" message_type {name: "User" field {name: "id" number: 1 type: TYPE_INT32}}}'
    >>> with open("7.desc", "wb") as file:    # as protoc writes it
    ...     size = file.write(text_format.Parse(user, descriptor_pb2.FileDescriptorSet()).SerializeToString())
    >>> protobuf(".")(bytes([0, 0, 0, 0, 7]) + bytes([0]) + bytes([8, 5]))
    {'id': 5}
    """
    source = SchemaDirectory(directory)
    descriptor_pb2, descriptor_pool, json_format, message, message_factory = (
        _package(f"google.protobuf.{name}", "protobuf")
        for name in ("descriptor_pb2", "descriptor_pool", "json_format", "message", "message_factory")
    )

    def load(schema: Schema) -> Any:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema.content).file
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name), list(files[-1].message_type)

    find = _Loaded(source, ".desc", load)

    def decode(data: bytes) -> object:
        file, types = find(schema_id(data))
        message_source = Source(data, HEADER_BYTES)
        try:
            indexes = _indexes(message_source)
            kind = file.message_types_by_name[types[indexes[0]].name]
            for index in indexes[1:]:
                kind = kind.nested_types[index]
            value = message_factory.GetMessageClass(kind).FromString(data[message_source.at :])
        except (IndexError, MessageError, message.DecodeError) as error:
            raise DecodeError(f"it does not match its Protobuf schema: {error}") from error
        return json_format.MessageToDict(value, preserving_proto_field_name=True)

    return decode


def _indexes(source: Source) -> list[int]:
    """Read the indexes before a Protobuf message: zigzag varints, their count first; no index means the first type."""
    count = _zigzag(source)
    if count > source.left:
        raise DecodeError(f"the message type has {count} indexes, more than the bytes left")
    return [_zigzag(source) for _ in range(count)] or [0]


def _zigzag(source: Source) -> int:
    try:
        value = source.uvarint() & 0xFFFFFFFF
    except struct.error:
        raise DecodeError("it ends inside the indexes of its message type") from None
    number = (value >> 1) ^ -(value & 1)
    if number < 0:
        raise DecodeError(f"{number} is not an index of a message type")
    return number


class _Loaded:
    """Schemas of one kind, found by id, each loaded at its first use."""

    def __init__(self, source: SchemaSource, suffix: str, load: Callable[[Schema], Any]) -> None:
        self._source = source
        self._suffix = suffix
        self._load = load
        self._known: dict[int, Any] = {}

    def __call__(self, number: int) -> Any:
        if number not in self._known:
            try:
                if isinstance(self._source, SchemaDirectory):
                    schema = self._source.by_id(number, self._suffix)
                else:
                    schema = self._source.by_id(number)
            except UnknownSchema as error:
                raise DecodeError(error.message) from None
            try:
                self._known[number] = self._load(schema)
            except Exception as error:
                raise IllegalArgument(f"the file is not a schema: {error}", path=schema.place) from error
        return self._known[number]


def _package(name: str, what: str) -> Any:
    return needed(name, f"the decoder {what} needs a package that is not installed: {{}}", "schemas")
