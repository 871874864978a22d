"""Bounds: no record outside of them matches; what follows from single conditions."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import where
from kafkalog.where.bounds import MAX, MIN
from kafkalog.where.nodes import And, Node, Not, Or
from tests.where.expressions import EPOCH, NODES, NUMBERS, RECORDS, TIMES, compared, evaluate

BOUNDED = st.recursive(
    st.one_of(compared(([("offset",), ("partition",)], NUMBERS)), compared(([("time",)], TIMES))),
    lambda inner: st.one_of(
        st.builds(Not, inner), st.tuples(inner, inner).map(And), st.tuples(inner, inner, inner).map(Or)
    ),
    max_leaves=6,
)


def has(spans: tuple[tuple[int, int], ...], number: int) -> bool:
    return any(start <= number < stop for start, stop in spans)


@settings(max_examples=300)
@given(st.one_of(BOUNDED, NODES), st.lists(RECORDS, max_size=10))
def test_no_record_outside_of_the_bounds_matches(node: Node, records: list[dict[str, Any]]) -> None:
    bounds = where.Expression(node).bounds()
    for spans in bounds:
        assert list(spans) == sorted(spans) and all(start < stop for start, stop in spans)
        assert all(one[1] < other[0] for one, other in zip(spans, spans[1:], strict=False))
    for record in records:
        if evaluate(node, record) is True:
            time = round((record["timestamp"] - EPOCH).total_seconds() * 1000)
            assert has(bounds.offsets, record["offset"]) and has(bounds.partitions, record["partition"])
            assert has(bounds.times, time)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("offset > 5", ((6, MAX),)), ("offset <= 5", ((MIN, 6),)), ("offset > 5.5", ((6, MAX),)),
        ("offset == 5.5", ()), ("offset != 5", ((MIN, 5), (6, MAX))), ("offset == 5", ((5, 6),)),
        ("offset in (7, 5, 6, null, 9)", ((5, 8), (9, 10))), ("not offset in (7)", ((MIN, MAX),)),
        ("not (offset < 5 or offset >= 9)", ((5, 9),)), ("offset < 3 and offset > 5", ()),
        ("offset < 3 or offset > 5", ((MIN, 3), (6, MAX))), ("offset < 3 or key == 'a'", ((MIN, MAX),)),
        ("offset < 3 and key == 'a'", ((MIN, 3),)), ("offset is null", ()), ("offset is not null", ((MIN, MAX),)),
        ("offset > 1e40", ()), ("offset < 1e40", ((MIN, MAX),)), ("offset < 5 and time < 0 and time > 0", ()),
        ("offset > 5 or partition == 1 and partition == 2", ((6, MAX),)),
    ],
)  # fmt: skip
def test_offsets(text: str, offsets: tuple[tuple[int, int], ...]) -> None:
    bounds = where.parse(text).bounds()
    assert bounds.offsets == offsets and bounds.nothing == (not offsets)


def test_times_to_the_microsecond() -> None:
    assert where.parse("time >= '1970-01-01T00:00:01.0005Z'").bounds().times == ((1001, MAX),)
    assert where.parse("time <= '1970-01-01T00:00:01.0005Z'").bounds().times == ((MIN, 1001),)
    assert where.parse("time == '1970-01-01T01:00:01+01:00'").bounds().times == ((1000, 1001),)
    assert where.parse("time < 5 and partition in (1, 2)").bounds()[1:] == (((MIN, 5),), ((1, 3),))


