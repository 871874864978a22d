"""Columns without parts as Protobuf values, and times, dates and decimals as the messages that stand for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.values.row_bytes import fixed, longs, numbers, sized, utf8, varints
from kafkalog.values.row_plan import Plan, is_bytes, is_text

if TYPE_CHECKING:
    import pyarrow

_VARINT, _64, _BYTES, _32 = 0, 1, 2, 5
_INTEGERS: Final = {  # by the number of a descriptor's type: its numbers, its wire type, whether it is a zigzag
    3: ("int64", _VARINT, False), 4: ("uint64", _VARINT, False), 5: ("int32", _VARINT, False),
    6: ("uint64", _64, False), 7: ("uint32", _32, False), 13: ("uint32", _VARINT, False), 15: ("int32", _32, False),
    16: ("int64", _64, False), 17: ("int32", _VARINT, True), 18: ("int64", _VARINT, True),
}  # fmt: skip
_DOUBLE, _FLOAT, _BOOL, _STRING, _DATA, _ENUM = 1, 2, 8, 9, 12, 14
MESSAGES: Final = {
    "google.protobuf.Timestamp": "a timestamp", "google.protobuf.Duration": "a duration", "google.type.Date": "a date",
    "google.type.TimeOfDay": "a time", "google.type.Decimal": "a decimal",
}  # fmt: skip
"""Messages that a column without parts becomes, and which column."""
_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of Timestamp: the years 1 to 9999."""
_MOST_SECONDS: Final = 315_576_000_000
"""Of Duration, either way."""


class Leaf(NamedTuple):
    """The wire type of a value, its bytes behind the tag, and the mask of those that a field without presence omits."""

    wire: int
    encode: Plan
    is_default: Plan


def leaf_plan(field: Any, column: pyarrow.DataType) -> Leaf | None:
    """Return the plan for a field that is no message; None if a column of that type cannot become one."""
    import pyarrow as pa

    types, kind = pa.types, field.type
    if kind in _INTEGERS and types.is_integer(column):
        return _integer(*_INTEGERS[kind])
    if kind in (_DOUBLE, _FLOAT) and (types.is_floating(column) or types.is_integer(column)):
        return None if types.is_float64(column) and kind == _FLOAT else _floating(8 if kind == _DOUBLE else 4)
    if kind == _BOOL and types.is_boolean(column):
        return Leaf(_VARINT, lambda values: fixed(numbers(values, "uint8")), _is_false)
    if kind == _ENUM and (is_text(column) or types.is_integer(column)):
        return _enum(field.enum_type, is_text(column))
    if kind == _STRING and isinstance(column, pa.UuidType):
        return _sized_leaf(lambda values: pa.array([str(one) for one in values.to_pylist()], pa.string()))
    if kind == _STRING and (is_text(column) or is_bytes(column)):
        return _sized_leaf((lambda values: values) if is_text(column) else utf8)
    if kind == _DATA and isinstance(column, pa.UuidType):
        return _sized_leaf(lambda values: values.storage)
    if kind == _DATA and (is_text(column) or is_bytes(column)):
        return _sized_leaf(lambda values: values)
    return None


def _integer(dtype: str, wire: int, is_zigzag: bool) -> Leaf:
    def encode(values: pyarrow.Array) -> pyarrow.Array:
        found = numbers(values, dtype)
        if wire != _VARINT:
            return fixed(found.astype(found.dtype.newbyteorder("<")))
        if is_zigzag:
            return longs(found)
        return varints(found.astype("int64").view("uint64") if found.dtype.kind == "i" else found)

    return Leaf(wire, encode, _is_zero)


def _floating(width: int) -> Leaf:
    dtype = f"float{8 * width}"

    def is_default(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow as pa

        return pa.array(numbers(values, dtype).view(f"int{8 * width}") == 0)  # -0.0 is written

    return Leaf(
        _64 if width == 8 else _32, lambda values: fixed(numbers(values, dtype).astype(f"<f{width}")), is_default
    )


def _sized_leaf(of: Plan) -> Leaf:
    def is_default(values: pyarrow.Array) -> pyarrow.Array:
        import pyarrow.compute as pc

        return pc.equal(pc.binary_length(of(values)), 0)

    return Leaf(_BYTES, lambda values: sized(of(values), varints), is_default)


def _is_zero(values: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.equal(values, pa.scalar(0, values.type))


def _is_false(values: pyarrow.Array) -> pyarrow.Array:
    import pyarrow.compute as pc

    return pc.invert(values)


def _enum(enum: Any, has_text: bool) -> Leaf:
    """Return the plan of names or numbers; a number without a name is one only of an enum that is open."""

    def found(values: pyarrow.Array) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pc.unique(values)
        number_of = {one.as_py(): _number(enum, one.as_py(), has_text) for one in words}
        taken = pc.index_in(values, words)
        return pa.array([number_of[one.as_py()] for one in words], pa.int32()).take(taken)

    return Leaf(
        _VARINT,
        lambda values: varints(numbers(found(values), "int64").view("uint64")),
        lambda values: _is_zero(found(values)),
    )


def _number(enum: Any, given: Any, has_text: bool) -> int:
    """Return the number of an enum's name, of its digits as a decoder writes them, or a number as it is."""
    known = enum.values_by_name.get(given) if has_text else None
    if known is not None:
        return int(known.number)
    try:
        number = int(given)
        is_plain = str(number) == str(given)
    except ValueError:
        is_plain = False
    is_open = not getattr(enum, "is_closed", False)
    if is_plain and -(2**31) <= number < 2**31 and (number in enum.values_by_number or is_open):
        return number
    raise ValueError(f"{given!r:.60} is no value of enum {enum.full_name}")


class _Parts(NamedTuple):
    """The struct that a column becomes: its type, and how."""

    type: pyarrow.DataType
    split: Callable[[pyarrow.Array], pyarrow.StructArray]


def message_parts(full_name: str, column: pyarrow.DataType) -> _Parts | None:
    """Return the parts of a message that stands for a column without parts; None for another message or column."""
    import pyarrow as pa

    types = pa.types
    is_moment = full_name == "google.protobuf.Timestamp" and types.is_timestamp(column)
    if is_moment or (full_name == "google.protobuf.Duration" and types.is_duration(column)):
        kind = pa.struct({"seconds": pa.int64(), "nanos": pa.int32()})
        return _Parts(kind, _moments if is_moment else _durations)
    if full_name == "google.type.Date" and types.is_date(column):
        return _Parts(pa.struct(dict.fromkeys(("year", "month", "day"), pa.int64())), _dates)
    if full_name == "google.type.TimeOfDay" and types.is_time(column):
        return _Parts(pa.struct(dict.fromkeys(("hours", "minutes", "seconds", "nanos"), pa.int64())), _times)
    if full_name == "google.type.Decimal" and types.is_decimal(column):
        return _Parts(pa.struct({"value": pa.string()}), _decimals)
    return None


def _ticks(values: pyarrow.Array) -> tuple[Any, int]:
    """Return times as whole numbers, and how many make a second."""
    import pyarrow as pa

    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return ticks.to_numpy().astype("int64"), _TICKS[values.type.unit]


def _struct(**parts: Any) -> pyarrow.StructArray:
    import pyarrow as pa

    return pa.StructArray.from_arrays([pa.array(one) for one in parts.values()], [*parts])


def _moments(values: pyarrow.Array) -> pyarrow.StructArray:
    ticks, of_second = _ticks(values)
    seconds, rest = ticks // of_second, ticks % of_second
    if ((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any():
        raise ValueError("a time is beyond the years 1 to 9999 of a Timestamp")
    return _struct(seconds=seconds, nanos=(rest * (10**9 // of_second)).astype("int32"))


def _durations(values: pyarrow.Array) -> pyarrow.StructArray:
    ticks, of_second = _ticks(values)
    seconds, rest = ticks // of_second, ticks % of_second
    up = (seconds < 0) & (rest > 0)  # both parts have the sign of the whole
    seconds, rest = seconds + up, rest - up * of_second
    if (abs(seconds) > _MOST_SECONDS).any():
        raise ValueError(f"a duration has more than the {_MOST_SECONDS:,} s of a Duration")
    return _struct(seconds=seconds, nanos=(rest * (10**9 // of_second)).astype("int32"))


def _dates(values: pyarrow.Array) -> pyarrow.StructArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    days = values.cast(pa.date32())
    years = pc.year(days)
    if not pc.all(pc.and_(pc.greater_equal(years, 1), pc.less_equal(years, 9999)), min_count=0).as_py():
        raise ValueError("a date is beyond the years 1 to 9999 of a Date")
    return _struct(year=years, month=pc.month(days), day=pc.day(days))


def _times(values: pyarrow.Array) -> pyarrow.StructArray:
    ticks, of_second = _ticks(values)
    seconds, rest = ticks // of_second, ticks % of_second
    return _struct(
        hours=seconds // 3600, minutes=seconds // 60 % 60, seconds=seconds % 60, nanos=rest * (10**9 // of_second)
    )


def _decimals(values: pyarrow.Array) -> pyarrow.StructArray:
    import pyarrow as pa

    return _struct(value=values.cast(pa.string()))
