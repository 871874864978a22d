"""Avro's schema resolution: the steps that read a writer's data into the columns of a reader's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog._core.values.avro_program import OPS, AvroProgram
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_columns import Column, branches_of, joined
from kafkalog.values.avro_default import BadDefault, encoded_default
from kafkalog.values.avro_schema import MISSING, AvroField, AvroType

if TYPE_CHECKING:
    from kafkalog._core.values.avro_program import Op

MOST_OPS: Final = 1 << 18
"""Steps of a program: unions of unions make more of them than the schema has types."""
PROMOTED: Final = {
    ("int", "long"): "INT_TO_LONG", ("int", "float"): "INT_TO_FLOAT", ("int", "double"): "INT_TO_DOUBLE",
    ("long", "float"): "LONG_TO_FLOAT", ("long", "double"): "LONG_TO_DOUBLE", ("float", "double"): "FLOAT_TO_DOUBLE",
    ("string", "bytes"): "BYTES", ("bytes", "string"): "TEXT",
}  # fmt: skip
_SAME: Final = {
    "null": "NULL", "boolean": "BOOL", "int": "INT", "long": "LONG", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BYTES", "string": "TEXT",
}  # fmt: skip
_SKIPPED: Final = {
    "null": "SKIP_NOTHING", "boolean": "SKIP_BOOL", "int": "SKIP_NUMBER", "long": "SKIP_NUMBER", "enum": "SKIP_NUMBER",
    "float": "SKIP_SIZE", "double": "SKIP_SIZE", "fixed": "SKIP_SIZE", "bytes": "SKIP_BYTES", "string": "SKIP_BYTES",
}  # fmt: skip


class Mismatch(Exception):
    """A writer's type that the reader's cannot take; the text says where."""


def avro_program(writer: AvroType, reader: AvroType, column: Column) -> AvroProgram:
    """Return the program that reads a writer's data into the column of a reader's schema, or of some of its fields.

    Fields of the reader's that have no column are read and checked like the others. IllegalArgument if the schemas do
    not fit: no value of the writer can then be read.
    """
    compiler = _Compiler()
    try:
        compiler.resolve(writer, reader, column, "")
    except Mismatch as error:
        raise IllegalArgument(
            f"the writer's schema does not fit the reader's: {error}",
            hint="give fields that a writer does not have a default in the reader's schema",
        ) from None
    except RecursionError:
        raise IllegalArgument(
            "the schemas are nested too deeply", hint="give a reader's schema with fewer levels"
        ) from None
    return AvroProgram([op for op in compiler.ops if op is not None])


class _Compiler:
    """Steps as they are found; a step stands before those inside it, so that the first is the whole value's."""

    def __init__(self) -> None:
        self.ops: list[Op | None] = []
        self.skips: dict[int, int] = {}
        self.checks: dict[tuple[int, int], int] = {}  # steps of types without a column, which may contain themselves
        self.sizes: dict[int, int] = {}
        self.made = 0

    def place(self) -> int:
        self.made += 1  # those of a branch that did not fit count too: they took time
        if self.made > MOST_OPS:
            raise IllegalArgument(
                f"the schemas have more than {MOST_OPS} pairs of types", hint="give a reader's schema with fewer unions"
            )
        self.ops.append(None)
        return len(self.ops) - 1

    def set(
        self, at: int, code: str, node: int = 0, *, size: int = 0, extra: int = 0, parts: tuple[int, ...] = (),
        table: tuple[int, ...] = (), data: bytes = b"", words: tuple[str, ...] = (), path: str = "",
    ) -> int:  # fmt: skip
        self.ops[at] = (OPS[code], node, size, extra, parts, table, data, words, path)
        return at

    def drop(self, at: int) -> None:
        """Remove the steps from `at` on."""
        del self.ops[at:]
        self.skips = {kind: place for kind, place in self.skips.items() if place < at}
        self.checks = {kinds: place for kinds, place in self.checks.items() if place < at}

    # What the reader's schema has

    def resolve(self, writer: AvroType, reader: AvroType, column: Column | None, path: str) -> int:
        """Add the steps of a writer's type for a column; Mismatch where the reader's type cannot take it.

        Without a column the steps check the values, and keep none.
        """
        if column is None:
            kinds = id(writer), id(reader)
            if kinds in self.checks:
                return self.checks[kinds]
            self.checks[kinds] = len(self.ops)
        if writer.kind == "union":
            at = self.place()
            parts = tuple(self._branch(part, reader, column, path) for part in writer.parts)
            return self.set(at, "UNION", parts=parts, path=path)
        if reader.kind == "union":
            return self._into_union(writer, reader, column, path)
        if writer.kind == "record" and reader.kind == "record":
            return self._record(writer, reader, column, path)
        if writer.kind == reader.kind == "array":
            at = self.place()
            item_column = None if column is None else column.children[0]
            item = self.resolve(writer.parts[0], reader.parts[0], item_column, joined(path, "[]"))
            return self.set(at, "ARRAY", _node(column), extra=self.least(writer.parts[0]), parts=(item,), path=path)
        if writer.kind == reader.kind == "map":
            at = self.place()
            value_column = None if column is None else column.children[0].children[1]
            value = self.resolve(writer.parts[0], reader.parts[0], value_column, joined(path, "{}"))
            return self.set(at, "MAP", _node(column), extra=1 + self.least(writer.parts[0]), parts=(value,), path=path)
        return self._leaf(writer, reader, column, path)

    def _branch(self, writer: AvroType, reader: AvroType, column: Column | None, path: str) -> int:
        """Add the steps of a branch of a writer's union; where it has no place, one that says so for its values."""
        kept = len(self.ops)
        try:
            return self.resolve(writer, reader, column, path)
        except Mismatch as error:
            self.drop(kept)
            return self.set(self.place(), "FAIL", data=str(error).encode())  # the text names the field

    def _into_union(self, writer: AvroType, reader: AvroType, column: Column | None, path: str) -> int:
        branches = branches_of(reader)
        if writer.kind == "null":
            if len(branches) == len(reader.parts):
                raise Mismatch(f"{_before(path)}null is no branch of the reader's union")
            return self.set(self.place(), "NULL", _node(column), path=path)
        order = sorted(range(len(branches)), key=lambda i: _distance(writer, branches[i]))
        if len(branches) == 1:
            at = self.resolve(writer, branches[0], column, path)
            if column is None:
                self.checks[id(writer), id(reader)] = at  # the branch's steps may stand further up
            return at
        at = self.place()
        for number in order:
            try:
                part = self.resolve(writer, branches[number], None if column is None else column.children[number], path)
                return self.set(at, "BRANCH", _node(column), size=number, parts=(part,), path=path)
            except Mismatch:
                self.drop(at + 1)
        raise Mismatch(f"{_before(path)}{writer.short_name} fits no branch of the reader's union")

    def _record(self, writer: AvroType, reader: AvroType, column: Column | None, path: str) -> int:
        at = self.place()
        columns = {} if column is None else {one.name: one for one in column.children}
        parts: list[int] = []
        found: set[int] = set()
        for one in writer.fields:
            number = reader_field(one, reader, found)
            if number is None:
                parts.append(self.skip(one.type, joined(path, one.name)))
            else:
                found.add(number)
                wanted = reader.fields[number]
                parts.append(self.resolve(one.type, wanted.type, columns.get(wanted.name), joined(path, wanted.name)))
        for number, wanted in enumerate(reader.fields):
            if number not in found:
                parts.append(self._default(wanted, columns.get(wanted.name), joined(path, wanted.name)))
        return self.set(at, "RECORD", _node(column), parts=tuple(parts), path=path)

    def _default(self, wanted: AvroField, column: Column | None, path: str) -> int:
        if wanted.default is MISSING:
            raise Mismatch(f"field {path} is not in the writer's schema, and has no default")
        try:
            data = encoded_default(wanted.type, wanted.default)
        except BadDefault as error:
            raise Mismatch(f"the default of field {path} does not fit its type: {error}") from None
        at = self.place()
        part = self.resolve(wanted.type, wanted.type, column, path)
        return self.set(at, "DEFAULT", parts=(part,), data=data, path=path)

    def _leaf(self, writer: AvroType, reader: AvroType, column: Column | None, path: str) -> int:
        node = _node(column)
        if writer.kind == reader.kind == "enum" and same_name(writer, reader):
            known = {symbol: number for number, symbol in enumerate(reader.symbols)}
            other = known[reader.default] if reader.default is not None else -1
            table = tuple(known.get(symbol, other) for symbol in writer.symbols)
            code = "NUMBERED_ENUM" if column is not None and column.words else "ENUM"
            return self.set(self.place(), code, node, table=table, words=reader.symbols, path=path)
        if writer.kind == reader.kind == "fixed" and same_name(writer, reader) and writer.size == reader.size:
            return self._fixed(writer, reader, node, path)
        code = _SAME[reader.kind] if writer.kind == reader.kind and reader.kind in _SAME else ""
        code = code or PROMOTED.get((writer.kind, reader.kind), "")
        if not code:
            raise Mismatch(f"{f'field {path} is ' if path else ''}{_shown(writer)}, and {_shown(reader)} is wanted")
        if reader.logical == "decimal":
            _check_decimals(writer, reader, path)
            return self.set(self.place(), "DECIMAL", node, extra=reader.precision, path=path)
        if reader.logical == "time-millis":
            code = "TIME_MS"
        elif reader.logical == "time-micros":
            code = "TIME_US"
        return self.set(self.place(), code, node, path=path)

    def _fixed(self, writer: AvroType, reader: AvroType, node: int, path: str) -> int:
        if reader.logical == "decimal":
            _check_decimals(writer, reader, path)
            return self.set(
                self.place(), "FIXED_DECIMAL", node, size=reader.size, extra=reader.precision, path=path
            )
        code = "FIXED_UUID" if reader.logical == "uuid" else "FIXED"
        return self.set(self.place(), code, node, size=reader.size, path=path)

    # What it does not have

    def skip(self, kind: AvroType, path: str) -> int:
        """Add the steps that pass over a writer's type, which may contain itself."""
        if id(kind) in self.skips:
            return self.skips[id(kind)]
        at = self.place()
        self.skips[id(kind)] = at
        if kind.kind in _SKIPPED:
            return self.set(at, _SKIPPED[kind.kind], size=self.least(kind), path=path)
        if kind.kind == "record":
            fields = tuple(self.skip(one.type, joined(path, one.name)) for one in kind.fields)
            return self.set(at, "SKIP_RECORD", parts=fields, path=path)
        parts = tuple(self.skip(part, path) for part in kind.parts)
        if kind.kind == "union":
            return self.set(at, "UNION", parts=parts, path=path)
        least = self.least(kind.parts[0]) + (kind.kind == "map")
        return self.set(at, "SKIP_ARRAY" if kind.kind == "array" else "SKIP_MAP", extra=least, parts=parts, path=path)

    def least(self, kind: AvroType) -> int:
        """Return the least number of bytes of a value of a type; inside itself, a recursive type counts as 0."""
        if id(kind) not in self.sizes:
            self.sizes[id(kind)] = 0
            if kind.kind == "record":
                size = min(sum(self.least(one.type) for one in kind.fields), 1 << 30)
            elif kind.kind == "union":
                size = 1 + min(self.least(part) for part in kind.parts)
            else:
                size = {"null": 0, "float": 4, "double": 8, "fixed": kind.size}.get(kind.kind, 1)
            self.sizes[id(kind)] = size
        return self.sizes[id(kind)]


def _node(column: Column | None) -> int:
    return -1 if column is None else column.number


def reader_field(writer: AvroField, reader: AvroType, found: set[int]) -> int | None:
    """Return the number of the reader's field that takes a writer's: by name, else by alias; not one of `found`."""
    for number, one in enumerate(reader.fields):
        if one.name == writer.name and number not in found:
            return number
    for number, one in enumerate(reader.fields):
        if writer.name in one.aliases and number not in found:
            return number
    return None


def same_name(writer: AvroType, reader: AvroType) -> bool:
    """Return True if named types match: with or without namespace, or by an alias of the reader's."""
    names = {writer.name, writer.short_name}
    return bool(names & {reader.name, reader.short_name, *reader.aliases})


def _distance(writer: AvroType, reader: AvroType) -> int:
    """Return how far a branch of a reader's union is from what was written: 0 is the same type."""
    if writer.kind != reader.kind:
        return 2
    if not writer.name or writer.name == reader.name or writer.name in reader.aliases:
        return 0
    return 1 if same_name(writer, reader) else 2


def _before(path: str) -> str:
    """Return the beginning of a text about a field."""
    return f"field {path}: " if path else ""


def _shown(kind: AvroType) -> str:
    return f"{kind.kind} {kind.name}" if kind.name else kind.kind


def _check_decimals(writer: AvroType, reader: AvroType, path: str) -> None:
    if writer.logical == "decimal" and (writer.precision, writer.scale) != (reader.precision, reader.scale):
        raise Mismatch(
            f"{f'field {path} is ' if path else ''}decimal({writer.precision}, {writer.scale}), and "
            f"decimal({reader.precision}, {reader.scale}) is wanted"
        )
