"""Rows of an Iceberg table's data files, with the table's current columns by Iceberg's rules of column projection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalState
from kafkalog.lake.rows import fitted

if TYPE_CHECKING:
    import pyarrow

_READ_ROWS: Final = 1 << 20
_FIELD_ID: Final = b"PARQUET:field_id"
_DROPPED: Final = "\x00dropped: "


def file_rows(
    table: Any, name: str, entry: Any, wanted: pyarrow.Schema, columns: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of the data file `entry` with the `wanted` columns, found by field ids.

    `columns` are all of the table's, with their ids. A column that the file lacks has the value of its partition, else
    the default that the schema has for older rows, else null. IllegalState for such a default within a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_defaults(table, name)
    mapping = table.name_mapping()
    mapped = None if mapping is None else [*mapping]
    with table.io.new_input(entry.file_path).open() as source:
        stored = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # ns end in the year 2262
        found = {one.name: named_by_ids(one, columns, mapped) for one in stored.schema_arrow}
        present = {one: field for one, field in found.items() if field.name in wanted.names}
        absent = [one for one in wanted if all(one.name != field.name for field in present.values())]
        values = _constants(table, entry, [one.name for one in absent])
        names = [*(one.name for one in present.values()), *(one.name for one in absent)]
        for batch in stored.iter_batches(batch_size=_READ_ROWS, columns=[*present], use_threads=False):
            arrays = [batch.column(column).view(one.type) for column, one in present.items()]
            for one in absent:
                is_null = values[one.name] is None
                arrays.append(
                    pa.nulls(batch.num_rows, one.type) if is_null
                    else pa.repeat(pa.scalar(values[one.name], one.type), batch.num_rows)
                )  # fmt: skip
            yield fitted(pa.RecordBatch.from_arrays(arrays, names=names), wanted)


def _check_defaults(table: Any, name: str) -> None:
    """Raise IllegalState if the schema has a default for older rows of a field that is within a column."""
    from pyiceberg.schema import index_by_id

    schema = table.schema()
    columns = {one.field_id for one in schema.fields}
    for id, field in index_by_id(schema).items():
        if id not in columns and field.initial_default is not None:
            raise IllegalState(
                f"{schema.find_column_name(id)} has a default for rows that were written before it, and is within a "
                "column: such defaults are not applied",
                path=name, hint="read the table with another engine",
            )  # fmt: skip


def _constants(table: Any, entry: Any, names: Collection[str]) -> dict[str, Any]:
    """Return what stands for columns that a file lacks: the value of its partition, the default, or None."""
    from pyiceberg.transforms import IdentityTransform

    partition = {
        field.source_id: value
        for field, value in zip(table.specs()[entry.spec_id].fields, entry.partition, strict=True)
        if isinstance(field.transform, IdentityTransform) and value is not None
    }
    fields = [one for one in table.schema().fields if one.name in names]
    return {one.name: partition.get(one.field_id, one.initial_default) for one in fields}


def named_by_ids(
    field: pyarrow.Field, wanted: Iterable[pyarrow.Field], mapped: Sequence[Any] | None = None
) -> pyarrow.Field:
    """Return a field of a file, renamed at all levels to the `wanted` fields with the same ids.

    A field with another id gets a name that no column has. One without an id has that of its name in `mapped`, the
    table's mapping of names; without a mapping it keeps its name.
    """
    import pyarrow as pa

    id = (field.metadata or {}).get(_FIELD_ID)
    own = None if mapped is None else next((one for one in mapped if field.name in one.names), None)
    if id is None and mapped is not None:
        id = b"" if own is None else b"%d" % (own.field_id or 0)
    same = [
        one for one in wanted if (one.name == field.name if id is None else (one.metadata or {}).get(_FIELD_ID) == id)
    ]
    if not same:
        return field.with_name(f"{_DROPPED}{field.name}")
    kind, new, types = field.type, same[0].type, pa.types
    inside = None if mapped is None else () if own is None else own.fields
    if types.is_struct(kind) and types.is_struct(new):
        kind = pa.struct([named_by_ids(one, new, inside) for one in kind])
    elif types.is_list(kind) and types.is_list(new):
        item = kind.value_field.with_name(new.value_field.name)  # writers name it as they like
        kind = pa.list_(named_by_ids(item, [new.value_field], inside))
    elif types.is_map(kind) and types.is_map(new):
        item = named_by_ids(kind.item_field, [new.item_field], inside)
        kind = pa.map_(kind.key_field, item.with_name("value"))
    return pa.field(same[0].name, kind, field.nullable)
