"""Some fields of decoded JSON as the column that a decoder of these fields alone would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.values.json_types import JsonType

if TYPE_CHECKING:
    import pyarrow


def is_part(part: JsonType, whole: JsonType, *, widens: bool) -> bool:
    """Return True if a column of one type has all that a column of some of its fields would have.

    `widens` says that an integer may be wanted as a double: a column of integers that takes no other number has it too.
    """
    if part.kind == "struct" and whole.kind == "struct":
        known = dict(whole.children)
        return all(name in known and is_part(one, known[name], widens=widens) for name, one in part.children)
    return part == whole or (widens and part.kind == "double" and whole.kind == "int64")


def taken(values: pyarrow.Array, type: pyarrow.DataType) -> pyarrow.Array:
    """Return a column with the fields of `type`, which is part of its own type."""
    import pyarrow

    if values.type == type:
        return values
    if not pyarrow.types.is_struct(type):
        return values.cast(type, safe=False)
    fields = [taken(values.field(one.name), one.type) for one in type]
    mask = values.is_null() if values.null_count else None
    return pyarrow.StructArray.from_arrays(fields, fields=[*type], mask=mask)
