"""Columns without parts as Avro values: numbers, texts, bytes, times and decimals, each a column at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.values.avro_schema import AvroType
from kafkalog.values.row_bytes import fixed, longs, numbers, repeated, sized, utf8
from kafkalog.values.row_plan import Plan, is_bytes, is_text

if TYPE_CHECKING:
    import pyarrow

_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DECIMAL_BYTES: Final = 16


class Leaf(NamedTuple):
    """A plan, and how far its type is from the column's: 0 is the same type."""

    rank: int
    encode: Plan


def leaf_plan(kind: AvroType, column: pyarrow.DataType) -> Leaf | None:
    """Return the plan for a type without parts; None if a column of that type cannot become one."""
    import pyarrow as pa

    types = pa.types
    if isinstance(column, pa.UuidType):
        return Leaf(0 if kind.logical == "uuid" else 1, _uuids(kind)) if kind.kind in ("string", "fixed") else None
    if kind.logical and kind.logical != "uuid":
        return _logical(kind, column)
    if kind.kind == "null" and types.is_null(column):
        return Leaf(0, lambda values: repeated(b"", len(values)))
    if kind.kind == "boolean" and types.is_boolean(column):
        return Leaf(0, lambda values: fixed(numbers(values, "uint8")))
    if kind.kind in ("int", "long") and types.is_integer(column):
        is_narrow = column.bit_width < 32 or column == pa.int32()
        dtype = "int32" if kind.kind == "int" else "int64"
        return Leaf(int(is_narrow != (dtype == "int32")), lambda values: longs(numbers(values, dtype)))
    if kind.kind in ("float", "double") and (types.is_floating(column) or types.is_integer(column)):
        wide = kind.kind == "double"
        if types.is_float64(column) and not wide:
            return None
        far = 5 + (not wide) if types.is_integer(column) else int(wide != types.is_float64(column))
        dtype = "float64" if wide else "float32"
        return Leaf(far, lambda values: fixed(numbers(values, dtype).astype(f"<f{8 if wide else 4}")))
    return _text(kind, column)


def _text(kind: AvroType, column: pyarrow.DataType) -> Leaf | None:
    has_text, has_bytes = is_text(column), is_bytes(column)
    if not has_text and not has_bytes:
        return None
    if kind.kind == "string":
        return Leaf(0 if has_text else 2, lambda values: sized(values if has_text else utf8(values)))
    if kind.kind == "bytes":
        return Leaf(1 if has_text else 0, sized)
    if kind.kind == "enum" and has_text:
        return Leaf(1, lambda values: longs(_symbols(kind, values)))
    if kind.kind == "fixed" and has_bytes:
        return Leaf(1, lambda values: _of_size(kind, values))
    return None


def _symbols(kind: AvroType, values: pyarrow.Array) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = values.cast(pa.string())
    found = pc.index_in(texts, pa.array(kind.symbols, pa.string()))
    if found.null_count:
        raise ValueError(f"{texts.filter(found.is_null())[0].as_py()!r:.60} is no symbol of enum {kind.name}")
    return found.to_numpy()


def _of_size(kind: AvroType, values: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    data = values.cast(pa.binary())
    if not pc.all(pc.equal(pc.binary_length(data), kind.size)).as_py():
        raise ValueError(f"a value has not the {kind.size} bytes of fixed {kind.name}")
    return data


def _uuids(kind: AvroType) -> Plan:
    def encode(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow as pa

        if kind.kind == "fixed":
            return _of_size(kind, values.storage)
        return sized(pa.array([str(one) for one in values.to_pylist()], pa.string()))

    return encode


def _logical(kind: AvroType, column: pyarrow.DataType) -> Leaf | None:
    """Return the plan for a date, a time or a decimal; a time in a coarser unit must lose nothing."""
    import pyarrow as pa

    types = pa.types
    name, _, unit = kind.logical.rpartition("-")
    if kind.logical == "date" and types.is_date(column):
        return Leaf(0, lambda values: longs(numbers(values.cast(pa.date32()), "int32")))
    if name == "time" and types.is_time(column):
        wanted = pa.time32("ms") if unit == "millis" else pa.time64("us")
        return Leaf(_distance(column.unit, unit), lambda values: longs(_units(values.cast(wanted))))
    if name in ("timestamp", "local-timestamp") and types.is_timestamp(column):
        wanted = pa.timestamp(_UNITS[unit], column.tz)
        far = _distance(column.unit, unit) + 4 * ((name == "timestamp") != bool(column.tz))
        return Leaf(far, lambda values: longs(_units(values.cast(wanted))))
    if kind.logical == "decimal" and types.is_decimal(column):
        return Leaf(0, lambda values: _decimals(kind, values))
    return None


def _distance(unit: str, wanted: str) -> int:
    return 0 if _UNITS[wanted] == unit else 1


def _units(values: pyarrow.Array) -> Any:
    import pyarrow as pa

    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy()


def _decimals(kind: AvroType, values: pyarrow.Array) -> pyarrow.Array:
    """Return the unscaled numbers, of the same size each, the highest byte first."""
    import numpy as np
    import pyarrow as pa

    exact = values.cast(pa.decimal128(kind.precision, kind.scale))
    size = kind.size if kind.kind == "fixed" else ((10**kind.precision).bit_length() + 8) // 8
    start = exact.offset * _DECIMAL_BYTES
    data = np.frombuffer(exact.buffers()[1], np.uint8)[start : start + len(exact) * _DECIMAL_BYTES]
    rows = data.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    if size > _DECIMAL_BYTES:
        sign = np.where(rows[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
        rows = np.hstack([np.repeat(sign, size - _DECIMAL_BYTES, axis=1), rows])
    elif size < _DECIMAL_BYTES:
        cut = _DECIMAL_BYTES - size
        sign = np.where(rows[:, cut : cut + 1] >= 0x80, 0xFF, 0).astype(np.uint8)
        if (rows[:, :cut] != sign).any():
            raise ValueError(f"a decimal has more than the {size} bytes of fixed {kind.name}")
        rows = rows[:, cut:]
    found = fixed(np.ascontiguousarray(rows))
    return found if kind.kind == "fixed" else sized(found)
