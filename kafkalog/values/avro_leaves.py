"""Columns without parts as Avro values: numbers, texts, bytes, times and decimals, each a column at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.values.avro_schema import AvroType

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Leaf", "Plan", "joined", "leaf_plan", "longs", "repeated", "scalar"]

Plan = Callable[["pyarrow.Array"], "pyarrow.Array"]
"""Encodes a column; ValueError for a value beyond the type of the schema."""
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_MOST_VARINT: Final = 10
_DECIMAL_BYTES: Final = 16


class Leaf(NamedTuple):
    """A plan, and how far its type is from the column's: 0 is the same type."""

    rank: int
    encode: Plan


def scalar(data: bytes) -> pyarrow.Scalar:
    """Return bytes that all rows have."""
    import pyarrow as pa

    return pa.scalar(data, pa.binary())


def repeated(data: bytes, rows: int) -> pyarrow.Array:
    """Return a column of the same bytes."""
    import pyarrow as pa

    return pa.repeat(scalar(data), rows)


def joined(rows: int, parts: list[Any]) -> pyarrow.Array:
    """Return the bytes of all parts of each row, back to back."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not any(isinstance(one, pa.Array) for one in parts):
        return repeated(b"".join(one.as_py() for one in parts), rows)
    return pc.binary_join_element_wise(*parts, scalar(b""))


def longs(values: Any) -> pyarrow.Array:
    """Return whole numbers as zigzag varints.

    >>> import numpy
    >>> [value.hex() for value in longs(numpy.array([0, -1, 64])).to_pylist()]
    ['00', '01', '8001']
    """
    import numpy as np

    signed = np.asarray(values, np.int64)
    coded = ((signed << 1) ^ (signed >> 63)).astype(np.uint64)
    sizes = np.ones(len(coded), np.int64)
    for step in range(1, _MOST_VARINT):
        sizes += coded >= np.uint64(1 << 7 * step)
    ends = np.cumsum(sizes)
    starts, data = ends - sizes, np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for step in range(int(sizes.max()) if len(sizes) else 0):
        has = sizes > step
        more = np.where(sizes[has] > step + 1, 0x80, 0).astype(np.uint8)
        data[starts[has] + step] = (coded[has] >> np.uint64(7 * step)).astype(np.uint8) & 0x7F | more
    return _binary(np.concatenate(([0], ends)), data)


def _binary(offsets: Any, data: Any) -> pyarrow.Array:
    import numpy as np
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _fixed(values: Any) -> pyarrow.Array:
    """Return the bytes of an array's items, or of the rows of an array of bytes."""
    import numpy as np

    size = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    return _binary(np.arange(len(values) + 1) * size, values)


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
        return Leaf(0, lambda values: _fixed(_numbers(values, "uint8")))
    if kind.kind in ("int", "long") and types.is_integer(column):
        is_narrow = column.bit_width < 32 or column == pa.int32()
        dtype = "int32" if kind.kind == "int" else "int64"
        return Leaf(int(is_narrow != (dtype == "int32")), lambda values: longs(_numbers(values, dtype)))
    if kind.kind in ("float", "double") and (types.is_floating(column) or types.is_integer(column)):
        wide = kind.kind == "double"
        if types.is_float64(column) and not wide:
            return None
        far = 5 + (not wide) if types.is_integer(column) else int(wide != types.is_float64(column))
        dtype = "float64" if wide else "float32"
        return Leaf(far, lambda values: _fixed(_numbers(values, dtype).astype(f"<f{8 if wide else 4}")))
    return _text(kind, column)


def _numbers(values: pyarrow.Array, dtype: str) -> Any:
    import pyarrow as pa

    return values.cast(pa.type_for_alias(dtype)).to_numpy(zero_copy_only=False)


def _text(kind: AvroType, column: pyarrow.DataType) -> Leaf | None:
    import pyarrow as pa

    types = pa.types
    is_text = types.is_string(column) or types.is_large_string(column) or types.is_string_view(column)
    is_bytes = types.is_binary(column) or types.is_large_binary(column) or types.is_fixed_size_binary(column)
    if not is_text and not is_bytes:
        return None
    if kind.kind == "string":
        return Leaf(0 if is_text else 2, lambda values: _sized(values if is_text else _utf8(values)))
    if kind.kind == "bytes":
        return Leaf(1 if is_text else 0, _sized)
    if kind.kind == "enum" and is_text:
        return Leaf(1, lambda values: longs(_symbols(kind, values)))
    if kind.kind == "fixed" and is_bytes:
        return Leaf(1, lambda values: _of_size(kind, values))
    return None


def _utf8(values: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa

    return values.cast(pa.binary()).cast(pa.string())


def _sized(values: pyarrow.Array) -> pyarrow.Array:
    """Return texts or bytes with their sizes before them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    data = values.cast(pa.large_binary()) if pa.types.is_large_string(values.type) else values
    data = data.cast(pa.binary())
    return joined(len(data), [longs(pc.binary_length(data).to_numpy(zero_copy_only=False)), data])


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
        return _sized(pa.array([str(one) for one in values.to_pylist()], pa.string()))

    return encode


def _logical(kind: AvroType, column: pyarrow.DataType) -> Leaf | None:
    """Return the plan for a date, a time or a decimal; a time in a coarser unit must lose nothing."""
    import pyarrow as pa

    types = pa.types
    name, _, unit = kind.logical.rpartition("-")
    if kind.logical == "date" and types.is_date(column):
        return Leaf(0, lambda values: longs(_numbers(values.cast(pa.date32()), "int32")))
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
    found = _fixed(np.ascontiguousarray(rows))
    return found if kind.kind == "fixed" else _sized(found)
