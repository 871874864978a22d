"""Rows of Arrow batches as Python objects; Python has none for times after the year 9999, nor for nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow

NO_OBJECT: Final = (ValueError, OverflowError)
"""Errors of pyarrow for a date or a time that Python has no object for."""


def what_lacks_an_object(error: Exception) -> str:
    """Return what a value has, for which pyarrow raised one of NO_OBJECT; objects for nanoseconds are those of pandas.

    >>> what_lacks_an_object(ValueError("Nanosecond resolution temporal type 1 is not safely convertible"))
    'a time with nanoseconds, which needs pandas'
    """
    is_exact = str(error).startswith("Nanosecond")
    return "a time with nanoseconds, which needs pandas" if is_exact else "a time beyond Python's calendar"


def python_rows(
    batch: pyarrow.RecordBatch, *, hint: str, offset: str = "offset", maps_as_dicts: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows as dicts.

    If Python has no object for a time in a key or value and the batch has a column `key_error` or `value_error`, it
    becomes None and that column says why; otherwise InvalidRecord is raised, after the rows before it. `offset` names
    the column of offsets.

    >>> import pyarrow
    >>> day = pyarrow.array([0, 2932897], pyarrow.date32())
    >>> batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([7, 8]), day], ["offset", "day"])
    >>> rows = python_rows(batch, hint="read the column")
    >>> next(rows)
    {'offset': 7, 'day': datetime.date(1970, 1, 1)}
    >>> next(rows)
    Traceback (most recent call last):
    kafkalog.errors.InvalidRecord: day has a time beyond Python's calendar (offset 8). Hint: read the column
    """
    maps: Any = "lossy" if maps_as_dicts else None
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts=maps)
    except NO_OBJECT:
        for at in range(batch.num_rows):
            yield _row(batch.slice(at, 1), hint, offset, maps)
        return
    yield from rows


def _row(batch: pyarrow.RecordBatch, hint: str, offset: str, maps: Any) -> dict[str, Any]:
    """Return a batch's only row."""
    row: dict[str, Any] = {}
    beyond: dict[str, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column.to_pylist(maps_as_pydicts=maps)[0]
        except NO_OBJECT as error:
            row[name] = None
            beyond[name] = f"{name} has {what_lacks_an_object(error)}"
    for name, reason in beyond.items():
        if f"{name}_error" not in row:
            raise InvalidRecord(reason, offset=row[offset], hint=hint)
        row[f"{name}_error"] = reason
    return row
