"""Comparisons of a column with constants and with another column, exact for every type.

A constant is not rounded to the column's type: `offset > 1.5` is `offset >= 2`, and a number beyond the type is above
or below all of its values. Whole numbers beside binary fractions (float, double) are exact too; only decimal fractions
are compared with the nearest value of their type, so that 0.1 is equal to a double that was written as 0.1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import nextafter
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import IllegalArgument
from kafkalog.where.kinds import EXACT_DOUBLE, NUMBERS, STRINGS, TIMES, Kind
from kafkalog.where.literals import milliseconds
from kafkalog.where.nodes import MIRRORED, Literal

Test = Callable[[pa.Array], pa.BooleanArray]
_KERNELS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_UNITS_PER_MS: Final = {"s": Decimal("0.001"), "ms": Decimal(1), "us": Decimal(1000), "ns": Decimal(1_000_000)}
_DAY_MS: Final = 86_400_000
_MOST_DIGITS: Final = 76
"""Digits of Arrow's largest decimal."""
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_EXACT: Final = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Steps(NamedTuple):
    """A type whose values are whole numbers of steps: `least` to `most`, `per_one` of them in a constant's unit."""

    least: int
    most: int
    per_one: Decimal
    scalar: Callable[[int], pa.Scalar]


def comparison(type: pa.DataType, kind: Kind, sign: str, literal: Literal) -> Test:
    """Return the test `column sign literal`, for a column of `type`; the two fit, and the constant is not null."""
    if kind is Kind.NULL:
        return lambda column: pa.nulls(len(column), pa.bool_())
    steps = _steps(type, kind)
    if steps is None:
        value = _scalar(type, kind, literal)
        if value is None:  # text that is no UUID
            return partial_constant(sign == "!=")
        if kind is Kind.FLOAT and (gap := _gap(value, literal)):  # no value of the type is equal
            if sign in ("==", "!="):
                return partial_constant(sign == "!=")
            sign = sign[0] + "=" * ((gap > 0) == (sign[0] == ">"))
        kernel = _KERNELS[sign]
        if value.type == pa.binary() and type in (pa.string(), pa.large_string()):
            return lambda column: kernel(column.cast(_binary(type)), value)
        return lambda column: kernel(column, value)
    return _stepped(steps, sign, _in_steps(steps, kind, literal))


def _gap(nearest: pa.Scalar, literal: Literal) -> int:
    """Return 1 if the nearest binary fraction lies above a whole number, -1 below it, 0 for another constant."""
    exact, number = literal.value, nearest.as_py()
    return (number > exact) - (number < exact) if isinstance(exact, int) else 0


def _stepped(steps: Steps, sign: str, number: Decimal) -> Test:
    if number < steps.least or number > steps.most:
        return partial_constant((sign in ("<", "<=", "!=")) if number > steps.most else (sign in (">", ">=", "!=")))
    low, high = (int(number.to_integral_value(way)) for way in (ROUND_FLOOR, ROUND_CEILING))
    if low != high:
        if sign in ("==", "!="):
            return partial_constant(sign == "!=")
        sign, low = ("<=", low) if sign in ("<", "<=") else (">=", high)
    kernel, value = _KERNELS[sign], steps.scalar(low)
    return lambda column: kernel(column, value)


def partial_constant(value: bool) -> Test:
    """Return a test that has one value for all rows that are not null."""
    return lambda column: pc.if_else(pc.is_valid(column), value, pa.scalar(None, pa.bool_()))


def membership(type: pa.DataType, kind: Kind, literals: Iterable[Literal]) -> Test:
    """Return the test `column in (literals)`: null where no constant is equal and one of them is null."""
    known = [one for one in literals if one.value is not None]
    has_null = len(known) < len(tuple(literals))
    if kind is Kind.NULL:
        return lambda column: pa.nulls(len(column), pa.bool_())
    values = [value for one in known if (value := _member(type, kind, one)) is not None]
    if kind is Kind.FLOAT and any(one.as_py() == 0 for one in values):
        values += [pa.scalar(0.0, type), pa.scalar(-0.0, type)]  # equal, but not the same bits
    as_bytes = type in (pa.string(), pa.large_string()) and any(one.type == pa.binary() for one in values)
    stored = _binary(type) if as_bytes else type
    chosen = pa.array([_raw(one, as_bytes) for one in values], stored)
    absent = pa.scalar(None, pa.bool_())

    def test(column: pa.Array) -> pa.BooleanArray:
        found = pc.is_in(column.cast(stored) if as_bytes else column, value_set=chosen)
        if has_null:
            return pc.if_else(found, True, absent)
        return pc.if_else(pc.is_valid(column), found, absent)

    return test


def _raw(value: pa.Scalar, as_bytes: bool) -> Any:
    found = value if pa.types.is_temporal(value.type) else value.as_py()
    return found.encode() if as_bytes and isinstance(found, str) else found


def _member(type: pa.DataType, kind: Kind, literal: Literal) -> pa.Scalar | None:
    """Return the value of the column's type that is equal to the constant; None if there is none."""
    steps = _steps(type, kind)
    if steps is None:
        value = _scalar(type, kind, literal)
        return None if kind is Kind.FLOAT and value is not None and _gap(value, literal) else value
    number = _in_steps(steps, kind, literal)
    whole = number == number.to_integral_value() and steps.least <= number <= steps.most
    return steps.scalar(int(number)) if whole else None


def _binary(type: pa.DataType) -> pa.DataType:
    return pa.large_binary() if type == pa.large_string() else pa.binary()


def _steps(type: pa.DataType, kind: Kind) -> Steps | None:
    """Return the steps of a type; None for one that has none."""
    if kind is Kind.INTEGER:
        bits = type.bit_width
        signed = pa.types.is_signed_integer(type)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return Steps(least, most, Decimal(1), lambda number: pa.scalar(number, type))
    if kind is Kind.DECIMAL:
        most = 10**type.precision - 1
        scale = type.scale
        return Steps(
            -most, most, Decimal(1).scaleb(scale),
            lambda number: pa.scalar(Decimal(number).scaleb(-scale, _EXACT), type),
        )  # fmt: skip
    if kind is Kind.TIME:
        return Steps(-(2**63), 2**63 - 1, _UNITS_PER_MS[type.unit], lambda number: pa.scalar(number, type))
    if kind is Kind.DATE:
        days = pa.types.is_date32(type)
        bits = 31 if days else 63
        per_ms = Decimal(1) / _DAY_MS if days else Decimal(1)
        return Steps(-(2**bits), 2**bits - 1, per_ms, lambda number: pa.scalar(number, type))
    return None


def _in_steps(steps: Steps, kind: Kind, literal: Literal) -> Decimal:
    if kind is Kind.DATE and steps.per_one != 1:
        whole, rest = _EXACT.divmod(milliseconds(literal), Decimal(_DAY_MS))
        if rest < 0:
            whole, rest = whole - 1, rest + _DAY_MS
        return whole if not rest else whole + Decimal("0.5")  # only between which days it lies matters
    value = milliseconds(literal) if kind in TIMES else literal.value
    assert isinstance(value, (int, Decimal))
    return _EXACT.multiply(Decimal(value), steps.per_one)


def _scalar(type: pa.DataType, kind: Kind, literal: Literal) -> pa.Scalar | None:
    """Return the constant as a value to compare with; None for text that is no UUID."""
    value = literal.value
    if kind is Kind.BOOLEAN:
        return pa.scalar(value, pa.bool_())
    if kind is Kind.FLOAT:
        assert isinstance(value, (int, Decimal))
        return pa.scalar(_nearest(value), type)
    if kind is Kind.UUID:
        if isinstance(value, str):
            try:
                value = UUID(value).bytes
            except ValueError:
                return None
        assert isinstance(value, bytes)
        return pa.scalar(value, pa.binary(16)) if len(value) == 16 else None
    if isinstance(value, str) and kind is Kind.BYTES:
        value = value.encode()
    return pa.scalar(value, type) if kind is Kind.BYTES or isinstance(value, str) else pa.scalar(value, pa.binary())


def _nearest(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def compare_fields(
    left: pa.DataType, left_kind: Kind, sign: str, right: pa.DataType, right_kind: Kind
) -> Callable[[pa.Array, pa.Array], pa.BooleanArray]:
    """Return the test `left sign right` of two columns; raise IllegalArgument if their kinds are not compared."""
    kinds = {left_kind, right_kind}
    kernel = _KERNELS[sign]
    if Kind.NULL in kinds:
        return lambda one, other: pa.nulls(len(one), pa.bool_())
    common: pa.DataType | None = None
    if kinds <= STRINGS:
        common = pa.large_binary()
    elif kinds <= NUMBERS:
        common = _common_number(left, right, kinds)
    elif not kinds <= TIMES and (len(kinds) > 1 or kinds & {Kind.NESTED, Kind.OTHER}):
        raise IllegalArgument("these are not compared")
    if left == right:
        return kernel
    if kinds <= TIMES:
        return lambda one, other: kernel(_in_nanoseconds(one), _in_nanoseconds(other))
    if Kind.FLOAT in kinds and len(kinds) > 1:
        if left_kind is Kind.FLOAT:
            mirrored = _beside_fractions(MIRRORED[sign], right)
            return lambda one, other: mirrored(other, one)
        return _beside_fractions(sign, left)
    if Kind.DECIMAL in kinds and common is None:
        return lambda one, other: _by_row(_OPERATORS[sign], one, other)
    if common is None:
        return kernel
    return lambda one, other: kernel(one.cast(common), other.cast(common))


def _common_number(left: pa.DataType, right: pa.DataType, kinds: set[Kind]) -> pa.DataType | None:
    """Return a type that holds the values of both; None if there is none, or if the kernels take both as they are."""
    if Kind.FLOAT in kinds:
        return pa.float64()
    if Kind.DECIMAL in kinds:
        scale = max(getattr(left, "scale", 0), getattr(right, "scale", 0))
        return pa.decimal256(_MOST_DIGITS, scale) if scale + max(map(_digits, (left, right))) <= _MOST_DIGITS else None
    unsigned = {pa.types.is_unsigned_integer(left), pa.types.is_unsigned_integer(right)}
    return pa.decimal128(20, 0) if len(unsigned) > 1 else None


def _beside_fractions(sign: str, type: pa.DataType) -> Callable[[pa.Array, pa.Array], pa.BooleanArray]:
    """Return the test of a column of whole or decimal numbers with one of binary fractions."""
    kernel = _KERNELS[sign]
    if pa.types.is_decimal(type):
        if type.scale <= 0:
            compare = _OPERATORS[sign]
            return lambda numbers, fractions: _by_row(lambda one, other: compare(int(one), other), numbers, fractions)

        def fractional(numbers: pa.Array, fractions: pa.Array) -> pa.BooleanArray:
            nearest = numbers.cast(pa.string()).cast(pa.float64())  # Arrow's own conversion may give another double
            return kernel(nearest.cast(fractions.type), fractions)

        return fractional
    most = (1 << type.bit_width - pa.types.is_signed_integer(type)) - 1
    highest = float(most) if most < EXACT_DOUBLE else nextafter(float(most), 0)

    def test(numbers: pa.Array, fractions: pa.Array) -> pa.BooleanArray:
        fractions = fractions.cast(pa.float64())
        nearest = pc.min_element_wise(numbers.cast(pa.float64(), safe=False), highest, skip_nulls=False)
        is_equal = pc.equal(nearest, fractions)  # only then the number may be another one than its nearest double
        same = pc.if_else(is_equal, fractions, 0.0).cast(type)
        return pc.if_else(is_equal, kernel(numbers, same), kernel(nearest, fractions))

    return test


def _digits(type: pa.DataType) -> int:
    """Return the digits before the point of a number's type."""
    return int(type.precision - type.scale) if pa.types.is_decimal(type) else 20


def _in_nanoseconds(times: pa.Array) -> pa.Array:
    """Return times as whole numbers of nanoseconds, which 64 bits do not hold for each of them."""
    if pa.types.is_date32(times.type):
        numbers, factor = times.view(pa.int32()), 1_000_000 * _DAY_MS
    else:
        unit = "ms" if pa.types.is_date64(times.type) else times.type.unit
        numbers, factor = times.view(pa.int64()), int(1_000_000 / _UNITS_PER_MS[unit])
    scaled = pc.multiply(numbers.cast(pa.decimal128(19, 0)), pa.scalar(Decimal(factor), pa.decimal128(14, 0)))
    return scaled.cast(pa.decimal128(38, 0))


def _by_row(compare: Callable[[Any, Any], bool], left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Compare numbers that no common type of Arrow's holds."""
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([None if one is None or other is None else compare(one, other) for one, other in rows], pa.bool_())
