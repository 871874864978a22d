"""Partitioning of a table: by the day or hour of a time, or by a field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import MAXYEAR, MINYEAR
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidRecord

if TYPE_CHECKING:
    import pyarrow

_FORM: Final = re.compile(r"(?:(\w+)\(([^()]+)\)|([^()]+))")
_TRANSFORMS: Final = ("day", "hour")


class PartitionField(NamedTuple):
    """A field of a partitioning: `transform` ("day", "hour" or "identity") of the column or nested field at `path`."""

    transform: str
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name in the partitioning, and of its column in a Delta table.

        >>> PartitionField("day", ("timestamp",)).name, PartitionField("identity", ("value", "country")).name
        ('timestamp_day', 'value_country')
        """
        joined = "_".join(self.path)
        return joined if self.transform == "identity" else f"{joined}_{self.transform}"

    @property
    def text(self) -> str:
        """The words that `parse_partitioning` reads."""
        path = ".".join(self.path)
        return path if self.transform == "identity" else f"{self.transform}({path})"

    def values(self, batch: pyarrow.RecordBatch) -> pyarrow.Array:
        """Return the values of rows: a date, a time cut to the hour, or the field as it is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = column_at(batch, self.path)
        if self.transform == "day":
            return column.cast(pa.date32())
        return pc.floor_temporal(column, unit="hour") if self.transform == "hour" else column


def parse_partitioning(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """Return the fields for words such as `day(timestamp)` and `value.country`; IllegalArgument for other words.

    >>> [one.name for one in parse_partitioning(["hour(timestamp)", "partition"])]
    ['timestamp_hour', 'partition']
    """
    found = []
    for text in texts:
        match = _FORM.fullmatch(text.strip())
        transform, path = (match[1] or "identity", match[2] or match[3]) if match else ("", "")
        parts = tuple(one.strip() for one in path.split("."))
        if transform not in (*_TRANSFORMS, "identity") or not all(parts):
            raise IllegalArgument(
                f"{text!r} is not a partitioning", hint="give day(timestamp), hour(timestamp) or a field: value.country"
            )
        found.append(PartitionField(transform, parts))
    if len({one.name for one in found}) < len(found):
        raise IllegalArgument("a field is given twice in the partitioning", hint="name each field once")
    return tuple(found)


def check_partitioning(fields: Sequence[PartitionField], schema: pyarrow.Schema) -> None:
    """Raise IllegalArgument for a missing field, or for a type without partitions."""
    import pyarrow as pa

    for one in fields:
        kind = type_at(schema, one.path)
        if kind is None:
            raise IllegalArgument(
                f"{one.text}: there is no such column", hint=f"columns are {', '.join(schema.names)}"
            )
        if one.transform != "identity" and not pa.types.is_timestamp(kind):
            raise IllegalArgument(f"{one.text}: {'.'.join(one.path)} is {kind}", hint="day and hour take a time")
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise IllegalArgument(f"{one.text}: {kind} has no partitions", hint="name a field in it, or another one")


def type_at(schema: pyarrow.Schema, path: Sequence[str]) -> pyarrow.DataType | None:
    """Return the type of a column or a nested field; None if there is none."""
    import pyarrow as pa

    index = schema.get_field_index(path[0])
    kind = schema.field(index).type if index >= 0 else None
    for name in path[1:]:
        if kind is None or not pa.types.is_struct(kind) or (index := kind.get_field_index(name)) < 0:
            return None
        kind = kind.field(index).type
    return kind


def column_at(batch: pyarrow.RecordBatch, path: Sequence[str]) -> pyarrow.Array:
    """Return a column, or the values of a nested field, null if a field around it is null.

    Raises InvalidRecord for a time that the formats' libraries cannot use for a partition.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(batch.schema.get_field_index(path[0]))
    column = pc.struct_field(column, [*path[1:]]) if len(path) > 1 else column
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        years = pc.min_max(pc.year(column)).as_py()
        if years["min"] is not None and not MINYEAR <= years["min"] <= years["max"] <= MAXYEAR:
            raise InvalidRecord(
                f"a {'.'.join(path)} among {batch.num_rows} records is beyond the years {MINYEAR} to {MAXYEAR}, which "
                "have partitions", hint="sync into a table that is not partitioned by it",
            )  # fmt: skip
    return column


def by_partition(
    batch: pyarrow.RecordBatch, values: Sequence[pyarrow.Array]
) -> Iterator[tuple[tuple[Any, ...], pyarrow.RecordBatch]]:
    """Yield the partitions of rows, as Python values, and the rows of each in their order."""
    import numpy as np
    import pyarrow as pa

    if not values:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    kinds: list[list[Any]] = []
    for array in values:
        encoded = array.dictionary_encode(null_encoding="encode")
        kinds.append(encoded.dictionary.to_pylist())
        codes = codes * len(kinds[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    found = np.unique(codes)
    for code in found.tolist():
        rows = batch if len(found) == 1 else batch.take(pa.array(np.flatnonzero(codes == code)))
        partition: list[Any] = []
        for kind in reversed(kinds):
            code, at = divmod(code, len(kind))
            partition.insert(0, kind[at])
        yield tuple(partition), rows
