"""Messages with random content, written and read by kio: what ours are compared with."""

from __future__ import annotations

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from kafkalog._core.messages.writer import REQUIRED
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, message_class

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 40}
TEXTS = ("", "a", "orders", "téa", "π€🎉", "x" * 126, "x" * 127, "y" * 300)
DOUBLES = (0.0, -0.0, 1.5, -2.5e10, 1e300)


@cache
def error_codes() -> dict[int, Any]:
    from kio.schema.errors import ErrorCode

    return {int(code.value): code for code in ErrorCode}


class Trees:
    """Values for messages, out of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def tree(self, plan: StructPlan) -> dict[str, Any]:
        """Return a value for each field, except some of those that have a default."""
        return {
            field.name: self._field(field)
            for field in (*plan.plain, *plan.tagged)
            if field.default is REQUIRED or self.random.random() < 0.7
        }

    def _field(self, field: FieldPlan) -> Any:
        if field.default is not REQUIRED and self.random.random() < 0.2:
            return as_values(field.default)
        if field.is_nullable and self.random.random() < 0.2 and (field.tag is None or field.default is None):
            return None
        if field.is_array:
            return [self._one(field) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return self._one(field)

    def _one(self, field: FieldPlan) -> Any:
        random, kind = self.random, field.kind
        if field.struct is not None:
            return self.tree(field.struct)
        if kind in BITS:
            top = 1 << BITS[kind] - 1
            return random.choice((0, 1, -1, 7, 100, top - 1, -top, random.randrange(-top, top)))
        if kind == "datetime_i64":  # kio has no times beyond a year, and counts them in doubles
            return random.choice((0, 1, 1_700_000_000_123, 253_402_300_799_000, -1 if field.is_nullable else 7))
        if kind == "uint16":
            return random.choice((0, 1, 9092, 65535))
        if kind == "error_code":
            return random.choice(sorted(error_codes()))
        if kind == "bool":
            return random.random() < 0.5
        if kind == "float64":
            return random.choice(DOUBLES)
        if kind == "uuid":
            return random.choice((None, UUID(int=random.getrandbits(128))))
        return random.choice(TEXTS) if kind == "string" else random.randbytes(random.choice((0, 1, 5, 200)))


def as_values(value: Any) -> Any:
    """A default, as it is given to be written."""
    if hasattr(value, "_fields"):
        return {name: as_values(getattr(value, name)) for name in value._fields}
    return value


def write_by_kio(api_key: int, version: int, direction: str, plan: StructPlan, tree: dict[str, Any]) -> bytes:
    """The bytes that kio writes for a tree of our values."""
    from kio.serial import entity_writer

    source = message_class(api_key, version, direction)
    out = io.BytesIO()
    entity_writer(source)(out, _entity(source, plan, tree))
    return out.getvalue()


def read_by_kio(api_key: int, version: int, direction: str, plan: StructPlan, data: bytes) -> Any:
    """Return what kio reads, as kafkalog's values. Sound bytes only: kio ends the process on others."""
    from kio.serial import entity_reader

    value, end = entity_reader(message_class(api_key, version, direction))(data, 0)
    assert end == len(data)
    return _ours(plan, value)


def _entity(source: Any, plan: StructPlan, tree: dict[str, Any]) -> Any:
    by_name = {field.name: field for field in (*plan.plain, *plan.tagged)}
    inner = {field.name: _class_of(field.type) for field in fields(source)}
    defaults = {one.name: one.default for one in (*plan.plain, *plan.tagged) if one.default is not REQUIRED}
    tree = {**{name: as_values(default) for name, default in defaults.items()}, **tree}
    known = {name: value for name, value in tree.items() if name in by_name}
    return source(**{name: _kios(inner[name], by_name[name], value) for name, value in known.items()})


def _class_of(annotation: Any) -> Any:
    """The class of a structure in a field's type."""
    found = [annotation]
    while found:
        one = found.pop()
        if hasattr(one, "__flexible__"):
            return one
        found += getattr(one, "__args__", ())
    return None


def _kios(source: Any, field: FieldPlan, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return tuple(_kios(source, field._replace(is_array=False), one) for one in value)
    if field.struct is not None:
        return _entity(source, field.struct, value)
    if field.kind.startswith("timedelta"):
        return value * MS
    if field.kind == "datetime_i64":
        return None if field.is_nullable and value < 0 else EPOCH + value * MS
    return error_codes()[value] if field.kind == "error_code" else value


def _ours(plan: StructPlan, value: Any) -> Any:
    by_name = {field.name: field for field in (*plan.plain, *plan.tagged)}
    return tuple(_our_value(by_name[name], getattr(value, name)) for name in plan.type._fields)


def _our_value(field: FieldPlan, value: Any) -> Any:
    if value is None:
        return -1 if field.kind == "datetime_i64" else None
    if field.is_array:
        return tuple(_our_value(field._replace(is_array=False), one) for one in value)
    if field.struct is not None:
        return _ours(field.struct, value)
    if isinstance(value, timedelta):
        return value // MS
    if isinstance(value, datetime):
        return (value - EPOCH) // MS
    if isinstance(value, UUID):
        return value if value.int else None
    return value.value if field.kind == "error_code" else value
