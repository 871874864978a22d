"""Renamed fields, found by their Protobuf numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalState
from kafkalog.lake.failures import TableMismatch

if TYPE_CHECKING:
    import pyarrow


def numbers_of(decoders: Mapping[str, object]) -> dict[str, int]:
    """Return the numbers of the fields of decoded columns, by paths that begin with "key" or "value"."""
    return {
        f"{root}.{path}": number
        for root, decoder in decoders.items()
        for path, number in getattr(decoder, "field_numbers", {}).items()
    }


def kept_numbers(table: str, text: str) -> dict[str, int]:
    """Return the numbers by path in a property of the table; raise IllegalState if it is malformed."""
    try:
        found = json.loads(text)
        if not all(type(number) is int for number in found.values()):
            raise ValueError("a number is none")
    except (ValueError, AttributeError, RecursionError) as error:
        hint = "sync the topic into another table: this one keeps what it has"
        raise IllegalState(f"the table's field numbers are malformed: {error}", path=table, hint=hint) from None
    return dict(found)


def plan_renames(table: str, kept: Mapping[str, int], now: Mapping[str, int]) -> dict[str, str]:
    """Return the fields that have another name in the table: the new path, and the path there.

    `kept` and `now` are the numbers by path, in the table and in the schema. Raises TableMismatch where the table has
    the name for another number.

    >>> plan_renames("t", {"value.a": 1, "value.a.x": 1}, {"value.b": 1, "value.b.x": 1, "value.c": 2})
    {'value.b': 'value.a', 'value.b.x': 'value.a.x'}
    """
    there: dict[str, str] = {}
    wrong = []
    for path in sorted(now, key=lambda one: one.count(".")):
        parent, _, name = path.rpartition(".")
        before = there.get(parent, parent)
        same = [one for one, number in kept.items() if number == now[path] and one.rpartition(".")[0] == before]
        there[path] = same[0] if same else f"{before}.{name}"
        named = kept.get(f"{before}.{name}", now[path])
        if named != now[path]:
            wrong.append((path, f"is field {now[path]}, and the table has field {named} by this name"))
    if wrong:
        raise TableMismatch.of(table, wrong, "give the field another name, or sync into another table")
    return {path: one for path, one in there.items() if one != path}


def with_names(kind: pyarrow.DataType, path: str, names: Mapping[str, str]) -> pyarrow.DataType:
    """Return a type whose fields have the names of the table: the last part of the path in `names`."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = []
        for one in kind:
            below = f"{path}.{one.name}"
            name = names.get(below, below).rpartition(".")[2]
            fields.append(pa.field(name, with_names(one.type, below, names), one.nullable))
        return pa.struct(fields)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_names(kind.value_type, path, names)))
    return kind
