"""Columns as Protobuf messages: the bytes that a message's description gives each row, made a column at a time.

A plan for a field and a column's type is made first, so that what does not fit is found before any row is encoded. The
plan of a field takes its column and returns tags and values; a row whose field is not set has no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.values.protobuf_columns import GROUP, WRAPPERS, is_map, is_repeated, is_required
from kafkalog.values.protobuf_leaves import MESSAGES, leaf_plan, message_parts
from kafkalog.values.row_bytes import concatenated, joined, repeated, scalar, sized, sizes, varints
from kafkalog.values.row_plan import Mismatch, Plan, closest_column, plan_rows

if TYPE_CHECKING:
    import pyarrow

_BYTES, _GROUP_STARTS, _GROUP_ENDS = 2, 3, 4
_PACKABLE: Final = frozenset((0, 1, 5))
"""Wire types whose values may be packed."""


class _Value(NamedTuple):
    """One value of a field: its wire type, and its bytes behind the tag; `is_default` marks values of zero."""

    wire: int
    encode: Plan
    is_default: Plan | None = None


def encoder(descriptor: Any, columns: pyarrow.DataType) -> Plan:
    """Return the plan that encodes a struct column as messages.

    A field is filled from the column of its name, or of its JSON name; one without a column is not set. Other columns
    may be left out of what is encoded. IllegalArgument if a field fits no column, or none has one. The plan raises
    ValueError for a value that is beyond its field.

    >>> import pyarrow
    >>> from google.protobuf import type_pb2
    >>> rows = pyarrow.array([{"name": "a", "number": 300}, {"name": "", "number": -1}])
    >>> [value.hex() for value in encoder(type_pb2.EnumValue.DESCRIPTOR, rows.type)(rows).to_pylist()]
    ['0a016110ac02', '10ffffffffffffffffff01']
    """
    hint = "give each field the name of its column, or that name as its json_name"
    return plan_rows(lambda plain: _message(descriptor, plain, ""), columns, "the message", hint)


def column_of(field: Any, names: Sequence[str]) -> str | None:
    """Return the name of the column that fills a field."""
    return next((one for one in (field.name, field.json_name) if one in names), None)


def _message(descriptor: Any, column: pyarrow.StructType, place: str) -> Plan:
    names = [field.name for field in column]
    steps: list[tuple[str, Plan]] = []
    choices: dict[str, list[str]] = {}
    for field in sorted(descriptor.fields, key=lambda one: one.number):
        inner = f"{place}.{field.name}" if place else field.name
        name = column_of(field, names)
        if name is None:
            if is_required(field):
                raise Mismatch(f"field {inner} is required, and has no column{closest_column(field.name, names)}")
            continue
        steps.append((name, _field(field, column.field(name).type, inner)))
        if field.containing_oneof is not None:
            choices.setdefault(field.containing_oneof.name, []).append(name)
    if not steps and descriptor.fields:
        near = closest_column(descriptor.fields[0].name, names)
        raise Mismatch(f"no field of {descriptor.full_name} has a column{near}")
    choices = {name: members for name, members in choices.items() if len(members) > 1}

    def encode(values: pyarrow.StructArray) -> pyarrow.Array:
        children = values.flatten()
        at = values.type.get_field_index
        for choice, members in choices.items():
            _check_choice(place, choice, [children[at(one)] for one in members])
        return joined(len(values), [step(children[at(name)]) for name, step in steps] or [scalar(b"")])

    return encode


def _check_choice(place: str, choice: str, members: list[pyarrow.Array]) -> None:
    """ValueError for a row in which two members of a oneof are set."""
    if sum(one.is_valid().to_numpy(zero_copy_only=False).astype("int8") for one in members).max(initial=0) > 1:
        raise ValueError(f"a row sets two fields of oneof {f'{place}.{choice}' if place else choice}")


def _field(field: Any, column: pyarrow.DataType, place: str) -> Plan:
    """Return the plan for a field with its tag."""
    import pyarrow as pa

    types = pa.types
    if is_map(field):
        if not types.is_map(column):
            raise Mismatch(f"field {place} is a map, and the column is {column}")
        return _map(field, column, place)
    if is_repeated(field):
        if not (types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column)):
            raise Mismatch(f"field {place} is repeated, and the column is {column}")
        return _many(field, column.value_type, place)
    value = None if types.is_null(column) else _value(field, column, place)

    def encode(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow.compute as pc

        if values.null_count and (is_required(field) or not field.has_presence):
            why = "is required" if is_required(field) else "has no presence (optional)"
            raise ValueError(f"field {place} is null, and {why}")
        if value is None:
            return repeated(b"", len(values))
        is_set = values.is_valid()
        if not field.has_presence and value.is_default is not None:
            is_set = pc.invert(value.is_default(values))
        return _where(is_set, values, _tagged(field, value))

    return encode


def _where(is_set: pyarrow.Array, values: pyarrow.Array, write: Plan) -> pyarrow.Array:
    """Return the bytes of the values that are set, and none for the others."""
    import pyarrow.compute as pc

    if is_set.true_count == len(values):
        return write(values)
    empty = repeated(b"", len(values))
    return pc.replace_with_mask(empty, is_set, write(values.filter(is_set))) if is_set.true_count else empty


def _tag(field: Any, wire: int) -> pyarrow.Scalar:
    return scalar(varints([field.number << 3 | wire])[0].as_py())


def _tagged(field: Any, value: _Value) -> Plan:
    """Return the plan of a value that is set, with its tag; a group has one behind it too."""
    start = _tag(field, value.wire)
    if value.wire == _GROUP_STARTS:
        end = _tag(field, _GROUP_ENDS)
        return lambda values: joined(len(values), [start, value.encode(values), end])
    return lambda values: joined(len(values), [start, value.encode(values)])


def _value(field: Any, column: pyarrow.DataType, place: str) -> _Value:
    """Return the plan for one value of a field that is never null."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(column):
        inside = _value(field, column.value_type, place)
        kind, is_default = column.value_type, inside.is_default
        return inside._replace(
            encode=lambda values: inside.encode(values.cast(kind)),
            is_default=None if is_default is None else lambda values: is_default(values.cast(kind)),
        )
    if field.message_type is None:
        leaf = leaf_plan(field, column)
        if leaf is None:
            raise Mismatch(f"field {place} is {_shown(field)}, and the column is {column}")
        return _Value(leaf.wire, _named(leaf.encode, place), _named(leaf.is_default, place))
    full = field.message_type.full_name
    inner: Plan
    if full in WRAPPERS and not types.is_struct(column):
        inner = _field(field.message_type.fields_by_number[1], column, place)
    elif types.is_struct(column):
        inner = _message(field.message_type, column, place)
    else:
        parts = message_parts(full, column)
        if parts is None:
            meant = f", or {MESSAGES[full]}" if full in MESSAGES else ""
            raise Mismatch(f"field {place} is message {full}, which takes a struct{meant}; the column is {column}")
        made = _message(field.message_type, parts.type, place)
        inner = _named(lambda values: made(parts.split(values)), place)
    if field.type == GROUP:
        return _Value(_GROUP_STARTS, inner)
    return _Value(_BYTES, lambda values: sized(inner(values), varints))


def _named(inside: Plan, place: str) -> Plan:
    def encode(values: pyarrow.Array) -> pyarrow.Array:
        try:
            return inside(values)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"field {place}: {error}") from None

    return encode


def _shown(field: Any) -> str:
    names = {value: name for name, value in vars(type(field)).items() if name.startswith("TYPE_")}
    kind = names.get(field.type, "TYPE_UNKNOWN").removeprefix("TYPE_").lower()
    return f"enum {field.enum_type.full_name}" if field.enum_type is not None else kind


def _no_nulls(values: pyarrow.Array, place: str) -> pyarrow.Array:
    if values.null_count:
        raise ValueError(f"field {place} has an item that is null")
    return values


def _is_packed(field: Any) -> bool:
    found = getattr(field, "is_packed", None)  # older versions of the package have only the option
    return bool(field.GetOptions().packed if found is None else found)


def _many(field: Any, item: pyarrow.DataType, place: str) -> Plan:
    """Return the plan of a repeated field; a list that is null has no items."""
    value = _value(field, item, place)
    is_packed = _is_packed(field) and value.wire in _PACKABLE
    write = value.encode if is_packed else _tagged(field, value)
    start = _tag(field, _BYTES)

    def encode(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow.compute as pc

        counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        found = concatenated(counts, write(_no_nulls(values.flatten(), place)))
        if not is_packed:
            return found
        return _where(pc.greater(pc.binary_length(found), 0), found,
                      lambda one: joined(len(one), [start, varints(sizes(one)), one]))  # fmt: skip

    return encode


def _map(field: Any, column: pyarrow.MapType, place: str) -> Plan:
    """Return the plan of a map: its entries are messages, in which key and value are always written."""
    key_field, value_field = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
    key = _tagged(key_field, _value(key_field, column.key_type, f"{place}{{key}}"))
    value = _tagged(value_field, _value(value_field, column.item_type, f"{place}{{value}}"))
    start = _tag(field, _BYTES)

    def encode(values: pyarrow.MapArray) -> pyarrow.Array:
        import numpy as np

        is_set = values.is_valid()

        def entries(maps: pyarrow.MapArray) -> pyarrow.Array:
            offsets = np.asarray(maps.offsets)
            first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
            keys, items = maps.keys.slice(first, size), _no_nulls(maps.items.slice(first, size), place)
            written = joined(size, [key(keys), value(items)])
            return concatenated(np.diff(offsets), joined(size, [start, varints(sizes(written)), written]))

        return _where(is_set, values, entries)

    return encode
