"""Rows of a table as JSON: texts, numbers and records column by column with Arrow, other types value by value."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow

_ESCAPED: Final = r'[\x00-\x1f"\\]'
_NULL: Final = "null"


def encode_json(rows: pyarrow.RecordBatch) -> pyarrow.Array:
    """Return each row as a JSON object; raise InvalidRecord for a value that JSON cannot express.

    >>> import pyarrow
    >>> encode_json(pyarrow.RecordBatch.from_pydict({"id": [1, None], "name": ["a", "b\\n"]})).to_pylist()
    ['{"id":1,"name":"a"}', '{"id":null,"name":"b\\\\n"}']
    """
    try:
        return _texts(rows.to_struct_array())
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecord(
            f"a row has no JSON: {error}", hint="load a column as the value: --column value=NAME"
        ) from None


def _texts(column: pyarrow.Array) -> pyarrow.Array:
    """Return the JSON of each value of a column, null as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, column.type
    if types.is_struct(kind):
        found = _objects(column)
    elif types.is_boolean(kind) or types.is_integer(kind):
        found = column.cast(pa.string())
    elif types.is_float32(kind) or types.is_float64(kind):
        found = _numbers(column)
    elif types.is_string(kind):
        found = _quoted(column)
    elif types.is_binary(kind):
        found = _quoted(column.cast(pa.string()))
    else:
        return pa.array([_dumps(one) for one in column.to_pylist()], pa.string())
    return pc.if_else(column.is_null(), _NULL, found) if column.null_count else found


def _objects(column: pyarrow.StructArray) -> pyarrow.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for field, values in zip(column.type, column.flatten(), strict=True):
        parts += [f"{',' if parts else '{'}{_dumps(field.name)}:", _texts(values)]
    if not parts:
        return pa.repeat("{}", len(column))
    return pc.binary_join_element_wise(*parts, "}", "")


def _numbers(column: pyarrow.Array) -> pyarrow.Array:
    """Return floating-point numbers as Python writes them, which Arrow does not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.invert(pc.is_finite(column))).as_py():
        raise ValueError("JSON has only finite numbers")
    return pa.array([None if one is None else repr(one) for one in column.to_pylist()], pa.string())


def _quoted(column: pyarrow.StringArray) -> pyarrow.Array:
    """Return texts in quotes; those with characters to escape are converted one at a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    quoted = pc.binary_join_element_wise('"', column, '"', "")
    needed = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), False)
    if not needed.true_count:
        return quoted
    return pc.replace_with_mask(quoted, needed, pa.array(map(_dumps, column.filter(needed).to_pylist()), pa.string()))


def _plain(value: Any) -> Any:
    """Return a value in a type of JSON: text for bytes, which must be UTF-8, and for times and decimals."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


_dumps: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
