"""Comparisons of two columns are exact, whatever their types: no overflow, no lost fraction."""

import operator
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog.where.comparing import compare_fields
from kafkalog.where.kinds import kind_of

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
