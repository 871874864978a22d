"""The Avro schema of a table's columns, for values that are written without a schema from the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.values.row_plan import is_bytes, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TIMES: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}


def avro_schema(fields: Sequence[pyarrow.Field], name: str) -> dict[str, Any]:
    """Return the schema of a record with these columns; IllegalArgument for a name or type that Avro cannot express.

    `name` is that of the record; characters that Avro does not allow become `_`. A column that may be null is a
    union with null as its default.

    >>> import pyarrow
    >>> avro_schema([pyarrow.field("id", pyarrow.int64(), False), pyarrow.field("at", pyarrow.date32())], "new-orders")
    ... # doctest: +NORMALIZE_WHITESPACE
    {'type': 'record', 'name': 'new_orders', 'fields': [{'name': 'id', 'type': 'long'},
     {'name': 'at', 'type': ['null', {'type': 'int', 'logicalType': 'date'}], 'default': None}]}
    """
    return _Deriver().record(fields, re.sub(r"\A(?=[0-9])|[^A-Za-z0-9_]", "_", name), "")


class _Deriver:
    """Derivation of one schema, in which each record has a unique name."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def record(self, fields: Sequence[pyarrow.Field], name: str, place: str) -> dict[str, Any]:
        while name in self._names:
            name += "_"
        self._names.add(name)
        made = []
        for field in fields:
            inner = f"{place}.{field.name}" if place else field.name
            if not _NAME.match(field.name):
                raise IllegalArgument(
                    f"column {inner!r} has a name that Avro does not allow",
                    hint="give a schema (--schema) whose field has the column's name as an alias",
                )
            made.append(self._field(field, f"{name}_{field.name}", inner))
        return {"type": "record", "name": name, "fields": made}

    def _field(self, field: pyarrow.Field, name: str, place: str) -> dict[str, Any]:
        kind = self._type(field.type, name, place)
        if not field.nullable or kind == "null":
            return {"name": field.name, "type": kind}
        return {"name": field.name, "type": ["null", kind], "default": None}

    def _part(self, field: pyarrow.Field, name: str, place: str) -> Any:
        kind = self._type(field.type, name, place)
        return ["null", kind] if field.nullable and kind != "null" else kind

    def _type(self, kind: pyarrow.DataType, name: str, place: str) -> Any:
        import pyarrow as pa

        types = pa.types
        if types.is_dictionary(kind):
            return self._type(kind.value_type, name, place)
        if types.is_struct(kind):
            return self.record([*kind], name, place)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return {"type": "array", "items": self._part(kind.value_field, f"{name}_item", f"{place}[]")}
        if types.is_map(kind) and is_text(kind.key_type):
            return {"type": "map", "values": self._part(kind.item_field, f"{name}_value", f"{place}{{}}")}
        found = _plain(kind)
        if found is None:
            raise IllegalArgument(f"column {place!r} of type {kind} has no type of Avro", hint="load rows as JSON")
        return found


def _plain(kind: pyarrow.DataType) -> Any:
    """Return the type of a column without parts; None if there is none."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind) or types.is_boolean(kind):
        return "null" if types.is_null(kind) else "boolean"
    if types.is_integer(kind):
        return "int" if kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()) else "long"
    if types.is_floating(kind):
        return "double" if types.is_float64(kind) else "float"
    if is_text(kind):
        return "string"
    if isinstance(kind, pa.UuidType):
        return {"type": "string", "logicalType": "uuid"}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_time(kind) and kind.unit != "ns":
        return {"type": "int", "logicalType": "time-millis"} if types.is_time32(kind) else {
            "type": "long", "logicalType": "time-micros"}  # fmt: skip
    if types.is_timestamp(kind):
        unit = _TIMES.get(kind.unit, "millis")
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{unit}"}
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return "bytes" if is_bytes(kind) else None
