"""Comparisons are exact, whatever the types: no overflow, no lost fraction; whole numbers beside doubles as well."""

import math
import operator
import pickle
from datetime import date
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog import where
from kafkalog.where.comparing import compare_fields, comparison, membership
from kafkalog.where.kinds import Kind, kind_of
from kafkalog.where.nodes import MIRRORED, Literal

SIGNS: dict[str, Any] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
Column = tuple[pa.DataType, int, int]
"""A type, a stored number, and what it stands for in units that all of the kind share."""


def near(limit: int) -> st.SearchStrategy[int]:
    """Numbers near 0 and near both ends."""
    some = st.integers(-3, 3)
    return st.one_of(some, some.map(lambda n: max(-limit, -limit + n)), some.map(lambda n: min(limit, limit + n)))


def column(type: pa.DataType, most: int, unit: int) -> st.SearchStrategy[Column]:
    return st.one_of(near(most), near(min(most, 1000)), st.integers(-most, most)).map(lambda n: (type, n, n * unit))


TIMES = st.one_of(
    *(column(pa.timestamp(unit, zone), 2**63 - 1, ns) for unit, ns in NS.items() for zone in ("UTC", None)),
    column(pa.date32(), 2**31 - 1, 86_400 * 10**9),
    st.integers(-(10**11), 10**11).map(lambda day: (pa.date64(), day * 86_400_000, day * 86_400 * 10**9)),
)
INTEGERS = st.one_of(
    column(pa.int8(), 2**7 - 1, 1), column(pa.int32(), 2**31 - 1, 1), column(pa.int64(), 2**63 - 1, 1),
    *(st.one_of(near(2**bits - 1), st.integers(0, 2**bits - 1)).map(abs).map(lambda n, kind=kind: (kind, n, n))
      for bits, kind in ((8, pa.uint8()), (64, pa.uint64()))),
)  # fmt: skip
SCALE = 80
DECIMALS = st.tuples(st.integers(1, 76), st.integers(0, 76)).flatmap(
    lambda pair: column(
        (pa.decimal128 if max(pair) <= 38 else pa.decimal256)(max(pair), pair[1]), 10 ** max(pair) - 1,
        10 ** (SCALE - pair[1]),
    )  # fmt: skip
).filter(lambda one: abs(one[1]) < 10 ** one[0].precision)  # fmt: skip
NUMBERS = st.one_of(INTEGERS.map(lambda one: (one[0], one[1], one[2] * 10**SCALE)), DECIMALS)
EXACT = Context(prec=200)


def array(one: Column) -> pa.Array:
    type, number, _ = one
    if pa.types.is_decimal(type):
        return pa.array([Decimal(number).scaleb(-type.scale, EXACT), None], type)
    if pa.types.is_integer(type):
        return pa.array([number, None], type)
    return pa.array([number, None], pa.int32() if type == pa.date32() else pa.int64()).view(type)


def check(left: Column, right: Column) -> None:
    for sign, compare in SIGNS.items():
        test = compare_fields(left[0], kind_of(left[0]), sign, right[0], kind_of(right[0]))
        assert test(array(left), array(right)).to_pylist() == [compare(left[2], right[2]), None], sign


@settings(max_examples=500)
@given(TIMES, TIMES)
@example((pa.timestamp("ns", "UTC"), 1, 1), (pa.timestamp("ms", "UTC"), 0, 0))
@example((pa.timestamp("ms", "UTC"), 2**63 - 1, (2**63 - 1) * 10**6), (pa.timestamp("us", "UTC"), 0, 0))
@example((pa.date32(), 2**31 - 1, (2**31 - 1) * 86_400 * 10**9), (pa.timestamp("ms", "UTC"), 0, 0))
def test_times_of_any_units(left: Column, right: Column) -> None:
    check(left, right)


@settings(max_examples=500)
@given(NUMBERS, NUMBERS)
@example((pa.decimal256(76, 0), 10**76 - 1, (10**76 - 1) * 10**SCALE), (pa.decimal128(38, 38), 1, 10 ** (SCALE - 38)))
@example((pa.decimal256(76, 70), 1, 10 ** (SCALE - 70)), (pa.int64(), 2**63 - 1, (2**63 - 1) * 10**SCALE))
def test_whole_numbers_and_decimals_of_any_size(left: Column, right: Column) -> None:
    check(left, right)


FLOATS = st.sampled_from([pa.float32(), pa.float64()])
WHOLE_TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.decimal128(38, 0), pa.decimal256(76, 0)]


def ends(type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(type):
        return 1 - 10**type.precision, 10**type.precision - 1
    signed = pa.types.is_signed_integer(type)
    return (-(1 << type.bit_width - 1), (1 << type.bit_width - 1) - 1) if signed else (0, (1 << type.bit_width) - 1)


@st.composite
def beside(draw: st.DrawFn) -> tuple[pa.DataType, int, pa.DataType, float]:
    """A whole number of a type, and a binary fraction that is often next to it."""
    type, other = draw(st.sampled_from(WHOLE_TYPES)), draw(FLOATS)
    least, most = ends(type)
    powers = st.integers(0, 63).map(lambda n: 1 << n)
    number = draw(st.one_of(st.integers(least, most), st.sampled_from([least, most]), powers))
    number = max(least, min(most, number + draw(st.integers(-2, 2))))
    fraction = float(number) + draw(st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0]))
    fraction = draw(st.one_of(st.just(fraction), st.just(math.nextafter(fraction, math.inf)), st.floats()))
    if other == pa.float32():
        fraction = pa.scalar(fraction, other).as_py()
    return type, number, other, fraction


@settings(max_examples=1000)
@given(beside())
@example((pa.int64(), 2**53 + 1, pa.float64(), 2.0**53))
@example((pa.int64(), 2**63 - 1, pa.float64(), 2.0**63))
@example((pa.int64(), -(2**63), pa.float64(), -(2.0**63)))
@example((pa.uint64(), 2**64 - 1, pa.float64(), 2.0**64))
@example((pa.int32(), 2**24 + 1, pa.float32(), 2.0**24))
@example((pa.decimal128(38, 0), 10**37 + 1, pa.float64(), math.nan))
def test_whole_numbers_beside_binary_fractions(case: tuple[pa.DataType, int, pa.DataType, float]) -> None:
    """As Python compares an int with a float: exactly."""
    type, number, other, fraction = case
    whole = pa.array([Decimal(number) if pa.types.is_decimal(type) else number, None, number], type)
    fractions = pa.array([fraction, fraction, None], other)
    for sign, compare in SIGNS.items():
        expected = [compare(number, fraction), None, None]
        test = compare_fields(type, kind_of(type), sign, other, Kind.FLOAT)
        assert test(whole, fractions).to_pylist() == expected, sign
        test = compare_fields(other, Kind.FLOAT, MIRRORED[sign], type, kind_of(type))
        assert test(fractions, whole).to_pylist() == expected, sign
        found = comparison(other, Kind.FLOAT, MIRRORED[sign], Literal(number))(fractions)
        assert found.to_pylist() == [expected[0], expected[0], None], sign
    found = membership(other, Kind.FLOAT, [Literal(number)])(fractions)
    assert found.to_pylist() == [number == fraction, number == fraction, None]


@settings(max_examples=300)
@given(st.integers(1, 38).flatmap(lambda scale: st.tuples(st.just(scale), st.integers(1 - 10**38, 10**38 - 1))))
@example((1, 3))
def test_decimal_fractions_stand_for_the_nearest_double(case: tuple[int, int]) -> None:
    scale, number = case
    value = Decimal(number).scaleb(-scale, EXACT)
    column, fractions = pa.array([value], pa.decimal128(38, scale)), pa.array([float(value)], pa.float64())
    for sign, expected in [("==", True), ("<=", True), ("<", False), (">", False)]:
        test = compare_fields(column.type, Kind.DECIMAL, sign, fractions.type, Kind.FLOAT)
        assert test(column, fractions).to_pylist() == [expected]
        assert comparison(fractions.type, Kind.FLOAT, sign, Literal(value))(fractions).to_pylist() == [expected]


@pytest.mark.parametrize("other", [pa.float32(), pa.float64()])
def test_decimal_fields_stand_for_the_nearest_value_of_the_fractions_beside_them(other: pa.DataType) -> None:
    numbers, fractions = pa.array([Decimal("0.1"), Decimal("0.3"), None]), pa.array([0.1, 0.2, 0.1], other)
    test = compare_fields(numbers.type, Kind.DECIMAL, "==", other, Kind.FLOAT)
    assert test(numbers, fractions).to_pylist() == [True, False, None]
    test = compare_fields(other, Kind.FLOAT, ">=", numbers.type, Kind.DECIMAL)
    assert test(fractions, numbers).to_pylist() == [True, False, None]


def test_constants_beyond_all_days() -> None:
    days = pa.array([date(2020, 1, 1), None])
    for number in (10**40, -(10**40), Decimal("1e400")):
        found = comparison(days.type, Kind.DATE, "<", Literal(number))(days)
        assert found.to_pylist() == [number > 0, None]
        assert membership(days.type, Kind.DATE, [Literal(number)])(days).to_pylist() == [False, None]


def test_constants_of_many_digits() -> None:
    numbers = pa.array([Decimal("12345678901234567890123456789012.5"), Decimal("12345678901234567890123456789012.6")])
    batch = pa.record_batch({"value": numbers})
    assert where.parse("value == 12345678901234567890123456789012.5").mask(batch).to_pylist() == [True, False]
    assert where.parse("value <= 12345678901234567890123456789012.55").mask(batch).to_pylist() == [True, False]


@pytest.mark.parametrize(
    "text", [f".{'7' * 59}", f"-.{'7' * 58}", f"{'7' * 56}e-61", f".{'7' * 56}e-5", f"{'7' * 58}e9", f".{'7' * 55}e-99"]
)
def test_the_text_of_a_long_number_is_read_again(text: str) -> None:
    expression = where.parse(f"value > {text}")
    assert where.parse(str(expression)) == expression
    assert pickle.loads(pickle.dumps(expression)) == expression


@pytest.mark.parametrize(
    ("constant", "below", "equal"),
    [
        ("2023-11-14T22:13:20.000000001Z", 1, 1), ("2023-11-14 22:13:20,000000001", 1, 1),
        ("2023-11-14T22:13:20.0000000005Z", 1, 0), ("2023-11-14T23:13:20+01:00", 0, 1),
        ("2023-11-14T22:13:20.000001Z", 2, 1),
    ],
)
def test_times_count_with_all_their_digits(constant: str, below: int, equal: int) -> None:
    second = 1_700_000_000 * 10**9
    times = pa.array([second, second + 1, second + 1000]).view(pa.timestamp("ns", "UTC"))
    batch = pa.record_batch({"value": times})
    for sign, count in (("<", below), ("==", equal), (">=", 3 - below), (">", 3 - below - equal)):
        assert where.parse(f"value {sign} '{constant}'").mask(batch).true_count == count, sign
    stored = pa.record_batch({"timestamp": times[:1].cast(pa.timestamp("ms", "UTC"))})
    expression = where.parse(f"time < '{constant}'")
    assert expression.mask(stored).true_count == (below > 0)
    assert expression.bounds().times[0][1] == 1_700_000_000_000 + (below > 0)
