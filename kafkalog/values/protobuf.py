"""Protobuf values as columns: a message's description gives them, and field numbers find them in any version."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.values.builder import Builder
from kafkalog._core.values.protobuf_rows import FRAMINGS, ProtobufRows
from kafkalog.errors import IllegalArgument
from kafkalog.values.decoding import (
    MOST_BYTES,
    Decoded,
    ValueDecoder,
    arrow_type,
    decoded,
    import_pyarrow,
    value_column,
)
from kafkalog.values.protobuf_columns import field_numbers, message_columns
from kafkalog.values.protobuf_schemas import (
    DescriptorFiles,
    descriptor_files,
    descriptor_of,
    descriptor_set,
    indexes_of,
)
from kafkalog.values.schemas.given import read_schema_file, source_given, stored_schema
from kafkalog.values.schemas.source import PROTOBUF, Schema, SchemaSource, UnknownSchema, referenced, schemas_of
from kafkalog.values.wanted import Fields, wanted_fields, wanted_paths

if TYPE_CHECKING:
    import pyarrow

    from kafkalog._core.values.builder import Field

HEADER_BYTES: Final = 5
MOST_SAMPLE_ROWS: Final = 1000
"""Values that are looked at for a registry's header with a known schema, where no schema was given."""


class ProtobufDecoder(ValueDecoder):
    """Protobuf values as columns.

    `schema` describes the messages: a path to a FileDescriptorSet (`protoc --include_imports -o`) or to `.proto` text,
    the bytes of either, a generated class, a descriptor, or an id in `schemas`; `subject` takes the latest of a subject
    there. Without both, the first decoded value's header names schema and message. `message` is the message's name,
    needed where the schema has more than one. `fields` lists the wanted paths; other fields are checked but not kept.
    `indexes` are those of a given schema's message in its file, which headers have to repeat; without them, and
    without a schema from `schemas`, those of headers are skipped. `schemas` and `registry` with `login`, `token`,
    `timeout_s` and `cache` are those of AvroDecoder. `framing` is "auto" (a registry's header may stand before the
    message), "raw", "registry", or "delimited" (the size as a varint). `unit`, "us" or "ns", is that of Timestamp and
    Duration. `most_bytes` limits the memory of one call's columns.

    >>> import pyarrow
    >>> from google.protobuf import type_pb2
    >>> row = type_pb2.Option(name="a").SerializeToString()
    >>> found = ProtobufDecoder(type_pb2.Option, fields=["name"]).decode(pyarrow.array([row, row[:2]]))
    >>> found.values.to_pylist(), found.errors[1].as_py()
    ([{'name': 'a'}, None], 'name: the message ends within a field, at byte 2')
    >>> decoder = ProtobufDecoder(type_pb2.Option, fields=["name"])
    >>> decoder.name, str(decoder.arrow_type), decoder.needs_keys
    ('protobuf', 'struct<name: string>', False)
    """

    name = "protobuf"

    def __init__(
        self, schema: Any = None, *, message: str | None = None,
        schemas: str | os.PathLike[str] | SchemaSource | None = None, registry: str | SchemaSource | None = None,
        subject: str | None = None, fields: Fields | None = None, indexes: Sequence[int] = (), framing: str = "auto",
        unit: str = "us", most_bytes: int = MOST_BYTES, login: tuple[str, str] | None = None,
        token: str | None = None, timeout_s: float | None = None, cache: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        if framing not in FRAMINGS:
            raise IllegalArgument(f"unknown framing {framing!r}", hint=f"the framings are {', '.join(FRAMINGS)}")
        self._framing = framing
        self._unit = unit
        self._message = message
        self._most_bytes = most_bytes
        self._wanted = None if fields is None else wanted_fields(fields, typed=False)
        self._source = source_given(schemas, registry, login=login, token=token, timeout_s=timeout_s, cache=cache)
        self._lock = threading.Lock()
        self._settled_by: tuple[Any, tuple[int, ...]] = None, ()
        self._tree: Field | None = None
        self._numbers: dict[str, int] = {}
        self._rows: ProtobufRows | None = None
        self._arrow_type: pyarrow.DataType | None = None
        if schema is None and subject is None:
            if self._source is None:
                hint = "give schema= (--schema), schemas= or registry="
                raise IllegalArgument("Protobuf values need a schema", hint=hint)
            return
        which = subject if schema is None else schema
        if isinstance(which, int) or (schema is None and which is not None):
            self._settle(*_stored_message(which, message, self._source))
        else:
            self._settle(_descriptor(schema, message), tuple(indexes))

    def _settle(self, descriptor: Any, indexes: tuple[int, ...]) -> None:
        self._settled_by = descriptor, indexes
        try:
            self._make(descriptor, indexes, checked=self._wanted is not None)
        except IllegalArgument:
            if self._wanted is None:
                raise
            self._make(descriptor, indexes, checked=False)  # the others are too many, or too deep, for columns

    def _make(self, descriptor: Any, indexes: tuple[int, ...], *, checked: bool) -> None:
        tree, steps = message_columns(descriptor, self._wanted, self._unit, checked=checked)
        self._numbers = field_numbers(tree, steps)
        try:
            Builder(tree)
            rows = ProtobufRows(tree, steps, self._framing, indexes)
        except ValueError as error:
            raise IllegalArgument(
                f"the columns of {descriptor.full_name} cannot be made: {error}",
                hint="give the wanted ones with fields=",
            ) from None
        self._tree = tree
        self._rows = rows  # last: a thread that sees it decodes without the lock, and may ask for the type then

    def _settle_by_values(self, column: Any) -> None:
        """Take the schema and the message that the first value with a header of a known schema names.

        IllegalArgument where there are such schemas, and none has the wanted message, or columns.
        """
        pyarrow = import_pyarrow()
        array = column if isinstance(column, pyarrow.Array | pyarrow.ChunkedArray) else pyarrow.array(column)
        known: dict[int, DescriptorFiles | None] = {}
        refused: IllegalArgument | None = None
        headers = (
            _header(value if isinstance(value, bytes) else value.encode())
            for value in array.drop_null()[:MOST_SAMPLE_ROWS].to_pylist()
        )
        for number, indexes in dict.fromkeys(header for header in headers if header is not None):
            if number not in known:
                known[number] = self._files_of(number)
            files = known[number]
            if files is None:
                continue
            try:
                found = files.message_at(indexes) if self._message is None else files.message(self._message)
            except IllegalArgument as error:
                # indexes that lead nowhere are those of a bad value; a name was given for all of them
                refused = refused or (None if self._message is None else error)
                continue
            try:
                self._settle(found, indexes_of(found) if found.file is files.file else ())
                return
            except IllegalArgument as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _files_of(self, number: int) -> DescriptorFiles | None:
        """Return the files of a schema by its id; None where there are none that can be read."""
        assert self._source is not None
        try:
            schema = self._source.by_id(number)
            return _stored_files(schema, self._source) if schema.kind == PROTOBUF else None
        except (UnknownSchema, IllegalArgument):
            return None

    def only(self, paths: Iterable[Sequence[str]]) -> ProtobufDecoder:
        """Return a decoder of these fields alone: see `ValueDecoder.only`.

        >>> from google.protobuf import type_pb2
        >>> ProtobufDecoder(type_pb2.Option).only([("name",)]).arrow_type
        StructType(struct<name: string>)
        """
        descriptor, indexes = self._settled_by
        if descriptor is None:
            return self
        made = copy(self)
        made._lock = threading.Lock()
        made._wanted = wanted_paths(paths)
        made._arrow_type = None
        try:
            made._settle(descriptor, indexes)
        except IllegalArgument:
            return self
        return made

    def _schemas_with(self, names: Sequence[str], subject: str | None) -> Iterator[int]:
        """Yield the ids of a subject's schemas that have a field: see `ValueDecoder._schemas_with`."""
        descriptor, _ = self._settled_by
        name = self._message if descriptor is None else descriptor.full_name
        for schema in schemas_of(self._source, subject):
            try:
                if schema.kind == PROTOBUF and schema.id is not None:
                    found = _stored_files(schema, self._source).message(name)
                    message_columns(found, wanted_paths([names]), self._unit)
                    yield schema.id
            except IllegalArgument:
                continue

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column; IllegalArgument while it depends on the first value, which is yet to be seen."""
        if self._tree is None:
            raise _unsettled()
        if self._arrow_type is None:
            self._arrow_type = arrow_type(self._tree)
        return self._arrow_type

    @property
    def settled(self) -> dict[str, Any]:
        """The message's description, its name and its `indexes`; IllegalArgument as for `arrow_type`.

        >>> from google.protobuf import type_pb2
        >>> settled = ProtobufDecoder(type_pb2.Option, fields=["name"]).settled
        >>> type(settled.pop("schema")), settled
        (<class 'bytes'>, {'message': 'google.protobuf.Option', 'indexes': ()})
        """
        if self._tree is None:
            raise _unsettled()
        descriptor, indexes = self._settled_by
        return {"schema": descriptor_set(descriptor.file), "message": descriptor.full_name, "indexes": indexes}

    @property
    def field_numbers(self) -> dict[str, int]:
        """Numbers of the fields in the columns by path, which stay where a field gets another name; but not in maps.

        >>> from google.protobuf import type_pb2
        >>> ProtobufDecoder(type_pb2.Option, fields=["value.type_url"]).field_numbers
        {'value': 2, 'value.type_url': 1}
        """
        return dict(self._numbers)

    def decode(self, column: pyarrow.Array) -> Decoded:
        """Decode a binary column. A value that is not a message of the type is an error of its row."""
        given = value_column(column)
        if self._rows is None:
            with self._lock:
                if self._rows is None:
                    self._settle_by_values(column)
        rows = self._rows
        if rows is not None:
            return decoded(rows.decode(given, self._most_bytes), len(given), self._most_bytes)
        # no value names a schema that is known: nothing but nulls and errors
        pyarrow = import_pyarrow()
        text = "there is no registry's header that names a message of a known schema"
        errors = [None if value is None else text for value in pyarrow.array(column).to_pylist()]
        failed = len(errors) - errors.count(None)
        return Decoded(pyarrow.nulls(len(errors)), pyarrow.array(errors, pyarrow.string()) if failed else None, failed)


def given_message(schema: Any, message: str | None, source: SchemaSource | None) -> tuple[Any, tuple[int, ...]]:
    """Return the message of a schema that the user gave, as for ProtobufDecoder, and its indexes in its file.

    The indexes are () for a message of another file than that of an id.
    """
    if isinstance(schema, int):
        return _stored_message(schema, message, source)
    found = _descriptor(schema, message)
    return found, indexes_of(found)


def _stored_message(which: int | str, message: str | None, source: SchemaSource | None) -> tuple[Any, tuple[int, ...]]:
    files = _stored_files(stored_schema(source, which, PROTOBUF), source)
    found = files.message(message)
    return found, indexes_of(found) if found.file is files.file else ()


def _stored_files(schema: Schema, source: SchemaSource | None) -> DescriptorFiles:
    others = referenced(source, schema) if source is not None and schema.references else []
    return descriptor_files(schema.content, schema.place, {name: other.content for name, other in others})


def _unsettled() -> IllegalArgument:
    return IllegalArgument(
        "the columns are those of the first value's schema, and none was decoded",
        hint="give schema= (--schema), or subject=, or decode a column first",
    )


def _descriptor(schema: Any, message: str | None) -> Any:
    """Return the descriptor of a schema that the user gave."""
    found = descriptor_of(schema)
    if found is not None:
        if message is not None and message not in (found.full_name, found.name):
            raise IllegalArgument(f"the given message is {found.full_name}, not {message}")
        return found
    if isinstance(schema, bytes):
        return descriptor_files(schema).message(message)
    if not isinstance(schema, str | os.PathLike):
        raise IllegalArgument(f"a {type(schema).__name__} describes no Protobuf message")
    text = os.fspath(schema)
    if isinstance(schema, str) and "{" in text:
        return descriptor_files(text.encode()).message(message)
    return descriptor_files(read_schema_file(text), text).message(message)


def _header(value: bytes) -> tuple[int, tuple[int, ...]] | None:
    """Return the id and the indexes of a registry's header, None where there is none."""
    if len(value) <= HEADER_BYTES or value[0] != 0:
        return None
    at = HEADER_BYTES
    numbers: list[int] = []
    while at < len(value) and (not numbers or len(numbers) <= numbers[0]):
        number = shift = 0
        while at < len(value):
            byte = value[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                break
        if number & 1:
            return None
        numbers.append(number >> 1)
    if not numbers or len(numbers) != numbers[0] + 1:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big"), tuple(numbers[1:]) or (0,)
