"""Choice of the encoder of each column: checks that a schema fits the columns before the first row is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalArgument
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    import pyarrow

Plan = Callable[["pyarrow.Array"], "pyarrow.Array"]
"""Encodes a column; ValueError for a value beyond the type of the schema."""


class Mismatch(Exception):
    """A type or field of the schema that a column cannot become; the text says where."""


def is_text(column: pyarrow.DataType) -> bool:
    """Return True for a column of texts."""
    import pyarrow as pa

    return any(one(column) for one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_bytes(column: pyarrow.DataType) -> bool:
    """Return True for a column of bytes."""
    import pyarrow as pa

    return any(one(column) for one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))


def closest_column(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about a missing column: the closest name, or nothing."""
    found = closest_match(name, names)
    return f"; did you mean the column {found}?" if found else ""


def plan_rows(plan_of: Callable[[pyarrow.DataType], Plan], columns: pyarrow.DataType, what: str, hint: str) -> Plan:
    """Return the plan for columns; IllegalArgument, with the hint, if "the schema" (`what`) does not fit them.

    String and binary views are cast to plain types, since most of Arrow's kernels take no views. Nulls become integers
    then: Arrow's cast of nulls to nulls inside a list or a sliced struct gives too few of them.
    """
    import pyarrow as pa

    plain, cast = _plain(columns, pa.null()), _plain(columns, pa.int8())
    try:
        plan = plan_of(plain)
    except Mismatch as error:
        raise IllegalArgument(f"{what} does not fit the columns: {error}", hint=hint) from None
    return plan if plain == columns else lambda values: plan(values.cast(cast))


def _plain(column: pyarrow.DataType, null: pyarrow.DataType) -> pyarrow.DataType:
    """Return a type without views, and with `null` in the place of nulls."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(column):
        return null
    if types.is_string_view(column):
        return pa.string()
    if types.is_binary_view(column):
        return pa.binary()
    if types.is_struct(column):
        return pa.struct([one.with_type(_plain(one.type, null)) for one in column])
    if types.is_map(column):
        return pa.map_(_plain(column.key_type, null), column.item_field.with_type(_plain(column.item_type, null)))
    for is_kind, kind in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if is_kind(column):
            return kind(column.value_field.with_type(_plain(column.value_type, null)))
    return column
