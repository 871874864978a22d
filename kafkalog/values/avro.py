"""Avro values as columns: the reader's schema gives the columns, and each value is read with its writer's schema."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog._core.values.avro import FRAMINGS, fill
from kafkalog._core.values.avro_program import AvroProgram, AvroPrograms
from kafkalog._core.values.builder import Builder
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_columns import Column, branches_of, columns_of, joined
from kafkalog.values.avro_given import AnySchema, given_avro, stored_avro
from kafkalog.values.avro_program import avro_program
from kafkalog.values.avro_schema import AvroType
from kafkalog.values.avro_writers import WriterPrograms
from kafkalog.values.decoding import MOST_BYTES, MOST_ITEMS, Decoded, ValueDecoder, arrow_type, decoded, value_column
from kafkalog.values.schemas.given import source_given, stored_schema
from kafkalog.values.schemas.source import AVRO, SchemaSource, UnknownSchema, schemas_of
from kafkalog.values.wanted import Fields, Wanted, dotted_paths, unknown_field, wanted_fields, wanted_paths

if TYPE_CHECKING:
    import pyarrow


class AvroDecoder(ValueDecoder):
    """Avro values as columns, by Avro's schema resolution.

    `schema` is the reader's schema: a path, JSON text, parsed JSON, or an id in `schemas`. Without it, `subject`'s
    latest version is taken, or else the schema of the first value that is decoded. `schemas` is a directory
    (`<id>.avsc`), a data directory with the topic `_schemas`, a registry's address, or a SchemaSource; `registry` is
    the same for an address, with `login`, `token`, `timeout_s` and `cache`. `framing` is how a value begins:
    "registry" (a zero byte and the writer's schema id; the default with `schemas`), "raw" (the default without),
    "length" (the size as Avro writes one) or "single-object". Without ids all values are read with `writer`, which is
    the reader's schema by default. `fields` lists the wanted paths; other fields are checked but not kept.
    `dictionaries` makes dictionary columns of enums. `most_bytes` limits the memory of one call's columns,
    `most_items` the items without bytes in one value.

    >>> import pyarrow
    >>> found = AvroDecoder({"type": "array", "items": "long"}).decode(pyarrow.array([bytes([4, 2, 4, 0]), b"?"]))
    >>> found.values.to_pylist(), found.failed, found.errors[1].as_py()
    ([[1, 2], None], 1, 'it ends inside a value, at byte 1')
    >>> decoder = AvroDecoder("long")
    >>> decoder.name, str(decoder.arrow_type), decoder.needs_keys
    ('avro', 'int64', False)
    """

    name = "avro"

    def __init__(
        self, schema: AnySchema | None = None, *, schemas: str | os.PathLike[str] | SchemaSource | None = None,
        registry: str | SchemaSource | None = None, subject: str | None = None, fields: Fields | None = None,
        framing: str | None = None, writer: AnySchema | None = None, dictionaries: bool = False,
        most_bytes: int = MOST_BYTES, most_items: int = MOST_ITEMS, login: tuple[str, str] | None = None,
        token: str | None = None, timeout_s: float | None = None, cache: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self._source = source_given(schemas, registry, login=login, token=token, timeout_s=timeout_s, cache=cache)
        framing = framing or ("raw" if self._source is None else "registry")
        if framing not in FRAMINGS:
            raise IllegalArgument(f"unknown framing {framing!r}", hint=f"the framings are {', '.join(FRAMINGS)}")
        if framing == "registry" and self._source is None:
            raise IllegalArgument("the framing 'registry' needs schemas", hint="give schemas=, or registry=")
        self._framing = FRAMINGS[framing]
        self._by_id = framing == "registry"
        self._dictionaries = dictionaries
        self._limits = most_bytes, most_items
        self._wanted = None if fields is None else wanted_fields(fields, typed=False)
        self._reader: AvroType | None = None  # with all of its fields
        self._column: Column | None = None
        self._writers = WriterPrograms(self._program)
        self._type: pyarrow.DataType | None = None
        self._alone: tuple[int, AvroType] | None = None  # the number and the schema of the only writer
        if schema is None and subject is not None:
            self._settle(stored_avro(stored_schema(self._source, subject, AVRO), self._source))
        elif schema is not None:
            self._settle(given_avro(schema, self._source))
        if not self._by_id:
            self._prepare_alone(writer, framing)
        elif writer is not None:
            raise IllegalArgument("each value names its writer's schema", hint="leave out writer")

    # Schemas

    def _settle(self, reader: AvroType) -> None:
        some = reader if self._wanted is None else with_fields(reader, self._wanted)
        column = columns_of(some, dictionaries=self._dictionaries)
        try:
            Builder(column.tree(), self._limits[0])
        except ValueError as error:
            raise IllegalArgument(f"the columns of the schema cannot be made: {error}") from None
        self._reader = reader
        self._column = column  # last: a thread that sees it decodes, and may ask for the schema then

    def _prepare_alone(self, writer: AnySchema | None, framing: str) -> None:
        """Make the only program, for values without an id."""
        if self._column is None or self._reader is None:
            raise IllegalArgument(f"values with the framing {framing!r} need a schema", hint="give schema= (--schema)")
        written = self._reader if writer is None else given_avro(writer, self._source)
        number = fingerprint(written) if framing == "single-object" else 0
        self._alone = number, written
        self._writers.put(number, avro_program(written, self._reader, self._column))

    def _program(self, number: int) -> AvroProgram | str:
        """Return the program of an id, or the text for a schema that does not fit; UnknownSchema if there is none."""
        if not self._by_id:
            return f"its schema's fingerprint is {number & (1 << 64) - 1:016x}, not that of the writer's schema"
        try:
            stored = stored_schema(self._source, number, AVRO)
            try:
                writer = stored_avro(stored, self._source)
            except UnknownSchema as error:  # one that it refers to
                raise UnknownSchema(f"schema {number}: {error.message}") from None
            if self._column is None:
                self._settle(writer)
            assert self._reader is not None and self._column is not None
            return avro_program(writer, self._reader, self._column)
        except IllegalArgument as error:
            if self._column is None:
                raise
            return f"schema {number}: {error.message}"

    def only(self, paths: Iterable[Sequence[str]]) -> AvroDecoder:
        """Return a decoder of these fields alone: see `ValueDecoder.only`.

        >>> fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
        >>> AvroDecoder({"type": "record", "name": "Order", "fields": fields}).only([("id",)]).arrow_type
        StructType(struct<id: int64>)
        """
        if self._reader is None:
            return self
        made = copy(self)
        made._wanted = wanted_paths(paths)
        made._type = None
        made._writers = WriterPrograms(made._program)
        try:
            made._settle(self._reader)
        except IllegalArgument:
            return self
        assert made._reader is not None and made._column is not None
        if self._alone is not None:
            number, written = self._alone
            made._writers.put(number, avro_program(written, made._reader, made._column))
        return made

    def _schemas_with(self, names: Sequence[str], subject: str | None) -> Iterator[int]:
        """Yield the ids of a subject's schemas that have a field: see `ValueDecoder._schemas_with`."""
        wanted = wanted_paths([names])
        for schema in schemas_of(self._source, subject):
            try:
                if schema.kind == AVRO and schema.id is not None:
                    with_fields(stored_avro(schema, self._source), wanted)
                    yield schema.id
            except IllegalArgument:
                continue

    # Columns

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column; IllegalArgument while it depends on the first value, which is yet to be seen."""
        if self._column is None:
            raise _unsettled()
        if self._type is None:
            self._type = arrow_type(self._column.tree())
        return self._type

    @property
    def settled(self) -> dict[str, Any]:
        """The reader's schema as `schema`, and `fields` if some are wanted; IllegalArgument as for `arrow_type`.

        >>> AvroDecoder("long").settled
        {'schema': '"long"'}
        """
        if self._reader is None:
            raise _unsettled()
        from kafkalog.values.avro_text import schema_text

        wanted = {} if self._wanted is None else {"fields": dotted_paths(self._wanted)}
        return {"schema": schema_text(self._reader), **wanted}

    def decode(self, column: pyarrow.Array) -> Decoded:
        """Decode a binary column.

        A value that its writer's schema does not describe, or whose schema is missing or does not fit the reader's, is
        an error of its row. RegistryUnavailable if a schema is not known and the registry does not answer.
        """
        given = value_column(column)
        most_bytes, most_items = self._limits
        builder, row = Builder(("", "n", True, (), ()), most_bytes), 0
        while True:
            known = self._writers.current()  # read before `_column`: while there are no columns, these are texts alone
            if self._column is not None:
                break
            # the first id without a text gives the columns
            row, unknown = fill(builder, given, AvroPrograms(known), self._framing, row, most_items)
            if unknown is None:
                return decoded(builder, len(given), most_bytes)
            self._writers.learn(unknown)
        builder, row = Builder(self._column.tree(), most_bytes), 0
        while True:
            programs = AvroPrograms(self._writers.current())
            row, unknown = fill(builder, given, programs, self._framing, row, most_items)
            if unknown is None:
                return decoded(builder, len(given), most_bytes)
            self._writers.learn(unknown)


def _unsettled() -> IllegalArgument:
    return IllegalArgument(
        "the columns are those of the first value's schema, and none was decoded",
        hint="give schema= (--schema), or subject=, or decode a column first",
    )


def fingerprint(schema: AvroType) -> int:
    """Return the CRC-64-AVRO of a schema's canonical form, as a signed number."""
    from kafkalog.values.avro_canonical import canonical_form, crc_64

    return crc_64(canonical_form(schema).encode())


def with_fields(schema: AvroType, wanted: Wanted) -> AvroType:
    """Return a reader's schema with only the wanted fields, in the schema's order: that of their columns.

    Paths lead into optional records and the items of arrays. Maps, and unions of several types, are wanted whole.
    IllegalArgument for a field that the schema does not have.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
    >>> order = parse_avro({"type": "record", "name": "Order", "fields": fields})
    >>> [one.name for one in with_fields(order, {"note": None}).fields]
    ['note']
    """
    return _Chooser().choose(schema, wanted, "")


class _Chooser:
    def choose(self, kind: AvroType, wanted: Wanted | str | None, path: str) -> AvroType:
        if not isinstance(wanted, dict):
            return kind
        if kind.kind == "array":
            item = self.choose(kind.parts[0], wanted, path)
            return replace(kind, parts=[item])
        if kind.kind == "union" and len(branches_of(kind)) == 1:
            return replace(kind, parts=[one if one.kind == "null" else self.choose(one, wanted, path)
                                        for one in kind.parts])  # fmt: skip
        if kind.kind != "record":
            raise unknown_field(joined(path, next(iter(wanted))), ())
        names = [one.name for one in kind.fields]
        for name in wanted:
            if name not in names:
                raise unknown_field(joined(path, name), names)
        fields = [replace(one, type=self.choose(one.type, wanted[one.name], joined(path, one.name)))
                  for one in kind.fields if one.name in wanted]  # fmt: skip
        return replace(kind, fields=fields)
