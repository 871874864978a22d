"""Rows for the targets that decode values: a column of bytes, and the rows of a builder that did not decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog._core.values.builder import Builder
from kafkalog._core.values.value_column import ValueColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = ("", "z", True, (), ())


def column_of(rows: Sequence[bytes | None]) -> ValueColumn:
    """A column of bytes in memory of exactly its size, unlike pyarrow's, where the sanitizer sees every access."""
    builder = Builder(_BYTES)
    for row in rows:
        assert builder.put(row) == 0
        builder.done()
    return ValueColumn(builder.values())


def failed_rows(builder: Builder, count: int) -> set[int]:
    """Return the rows that did not decode, of a builder with so many, whose columns are exported and released."""
    builder.values()
    return _failed(builder, count)


def decoded_rows(builder: Builder, count: int) -> tuple[pa.Array, set[int]]:
    """The column of a builder with so many rows, and those that did not decode."""
    values: Any = builder.values()
    column = pa.array(values)
    column.validate(full=True)
    return column, _failed(builder, count)


def _failed(builder: Builder, count: int) -> set[int]:
    assert builder.rows == count and not builder.stopped
    errors: Any = builder.errors()
    if errors is None:
        return set()
    valid = pa.array(errors).is_valid()
    found = {row for row in range(count) if valid[row].as_py()}
    assert len(found) == builder.failed
    return found
