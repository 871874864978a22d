"""Columns as Avro values: the bytes that a schema gives each row, made a column at a time.

A plan for a type and a column's type is made first, so that what does not fit is found before any row is encoded. Each
plan takes a column and returns its values' bytes; null never reaches one but that of a union.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_default import BadDefault, encoded_default, long_bytes
from kafkalog.values.avro_leaves import leaf_plan
from kafkalog.values.avro_schema import MISSING, AvroField, AvroType
from kafkalog.values.row_bytes import concatenated, joined, longs, repeated, scalar
from kafkalog.values.row_plan import Mismatch, Plan, closest_column, plan_rows

if TYPE_CHECKING:
    import pyarrow


def encoder(schema: AvroType, columns: pyarrow.DataType) -> Plan:
    """Return the plan that encodes a struct column by a record's schema.

    A field is filled from the column of its name, or of one of its aliases; one without a column by its default.
    Other columns may be left out of what is encoded. IllegalArgument if the schema is no record, or a field fits no
    column. The plan raises ValueError for a value that is beyond its type.

    >>> import pyarrow
    >>> from kafkalog.values.avro_schema import parse_avro
    >>> rows = pyarrow.array([{"id": 1}, {"id": -64}])
    >>> schema = parse_avro({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]})
    >>> [value.hex() for value in encoder(schema, rows.type)(rows).to_pylist()]
    ['02', '7f']
    """
    if schema.kind != "record":
        raise IllegalArgument(f"the schema of rows is of type {schema.kind}", hint="give that of a record")
    hint = "give each field the name of its column, or that name as an alias, or a default"
    try:
        return plan_rows(lambda plain: _plan(schema, plain, ""), columns, "the schema", hint)
    except RecursionError:
        raise IllegalArgument("the schema is nested too deeply", hint="give one with fewer levels") from None


def _plan(kind: AvroType, column: pyarrow.DataType, place: str) -> Plan:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(column):
        inside = _plan(kind, column.value_type, place)
        return lambda values: inside(values.cast(column.value_type))
    if kind.kind == "union":
        return _union(kind, column, place)
    if kind.kind == "record" and types.is_struct(column):
        return _never_null(_record(kind, column, place), place)
    lists = types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column)
    if kind.kind == "array" and lists:
        return _never_null(_array(_plan(kind.parts[0], column.value_type, f"{place}[]")), place)
    if kind.kind == "map" and types.is_map(column):
        return _never_null(_map(kind, column, place), place)
    found = leaf_plan(kind, column)
    if found is None:
        raise Mismatch(f"{_field(place)}is {_shown(kind)}, and the column is {column}")
    return found.encode if kind.kind == "null" else _never_null(found.encode, place)


def _never_null(inside: Plan, place: str) -> Plan:
    def encode(values: pyarrow.Array) -> pyarrow.Array:
        if values.null_count:
            raise ValueError(f"{_field(place)}is null, and its type has no null")
        return inside(values)

    return encode


def _record(kind: AvroType, column: pyarrow.StructType, place: str) -> Plan:
    names = [field.name for field in column]
    steps: list[tuple[str, Plan] | bytes] = []
    for field in kind.fields:
        inner = f"{place}.{field.name}" if place else field.name
        name = next((one for one in (field.name, *field.aliases) if one in names), None)
        if name is None:
            steps.append(_default(field, inner, names))
        else:
            steps.append((name, _plan(field.type, column.field(name).type, inner)))

    def encode(values: pyarrow.StructArray) -> pyarrow.Array:
        children = values.flatten()
        at = values.type.get_field_index
        found = [scalar(one) if isinstance(one, bytes) else one[1](children[at(one[0])]) for one in steps]
        return joined(len(values), found)

    return encode


def _default(field: AvroField, place: str, names: list[str]) -> bytes:
    if field.default is MISSING:
        raise Mismatch(f"{_field(place)}has neither a column nor a default{closest_column(field.name, names)}")
    try:
        return encoded_default(field.type, field.default)
    except BadDefault as error:
        raise Mismatch(f"the default of {place} is no value of its type: {error}") from None


def _array(item: Plan) -> Plan:
    def encode(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow.compute as pc

        counts = pc.list_value_length(values).to_numpy(zero_copy_only=False)
        return _blocks(counts, item(values.flatten()))

    return encode


def _map(kind: AvroType, column: pyarrow.MapType, place: str) -> Plan:
    key = _plan(AvroType("string"), column.key_type, place)
    value = _plan(kind.parts[0], column.item_type, f"{place}{{}}")

    def encode(values: pyarrow.MapArray) -> pyarrow.Array:
        import numpy as np

        offsets = np.asarray(values.offsets)
        size, start = int(offsets[-1] - offsets[0]), int(offsets[0])
        entries = [key(values.keys.slice(start, size)), value(values.items.slice(start, size))]
        return _blocks(np.diff(offsets), joined(size, entries))

    return encode


def _blocks(counts: Any, items: pyarrow.Array) -> pyarrow.Array:
    """Return the bytes of arrays, or of maps, which have their items back to back: a count, the items, a zero."""
    import pyarrow as pa
    import pyarrow.compute as pc

    heads = pc.if_else(pa.array(counts == 0), scalar(b""), longs(counts))
    return joined(len(counts), [heads, concatenated(counts, items), scalar(b"\0")])


def _union(kind: AvroType, column: pyarrow.DataType, place: str) -> Plan:
    import pyarrow.compute as pc

    null = next((number for number, one in enumerate(kind.parts) if one.kind == "null"), None)
    branch = _branch(kind, column, place, null)
    head = b"" if null is None else long_bytes(null)

    def encode(values: pyarrow.Array) -> pyarrow.Array:
        if values.null_count and null is None:
            raise ValueError(f"{_field(place)}is null, and no branch of its union is")
        if branch is None or values.null_count == len(values):
            return repeated(head, len(values))
        number, plan = branch
        is_set = values.is_valid()
        found = plan(values.filter(is_set) if values.null_count else values)
        found = joined(len(found), [scalar(long_bytes(number)), found])
        return pc.replace_with_mask(repeated(head, len(values)), is_set, found) if values.null_count else found

    return encode


def _branch(kind: AvroType, column: pyarrow.DataType, place: str, null: int | None) -> tuple[int, Plan] | None:
    """Return the branch that a column's values take, the closest to its type; None for a column of nulls alone."""
    import pyarrow as pa

    if pa.types.is_null(column) and null is not None:
        return None
    found: list[tuple[int, int, Plan]] = []
    reasons: list[str] = []
    for number, one in enumerate(kind.parts):
        if number == null:
            continue
        leaf = leaf_plan(one, column)
        try:
            found.append((leaf.rank if leaf else 0, number, _plan(one, column, place)))
        except Mismatch as error:
            reasons.append(str(error))
    if not found:
        raise Mismatch(reasons[0] if len(reasons) == 1 else f"{_field(place)}has no branch for a column of {column}")
    _, number, plan = min(found, key=lambda one: one[:2])
    return number, plan


def _field(place: str) -> str:
    return f"field {place} " if place else "the row "


def _shown(kind: AvroType) -> str:
    return f"{kind.kind} {kind.name}" if kind.name else kind.logical or kind.kind
