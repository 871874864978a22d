"""JSON as the reference's tools print it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.records.json_text import java_double, json_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (-(2**63), "-9223372036854775808"),
        (b"\x00\xffx", '"AP94"'),
        ('q"b\\s/\b\t\n\f\r\x00\x1f\x7f', '"q\\"b\\\\s/\\b\\t\\n\\f\\r\\u0000\\u001F\x7f"'),
        ("π🎉", '"π🎉"'),
        ({"a": [1, {}], "b\n": []}, '{"a":[1,{}],"b\\n":[]}'),
        ((1, "x"), '[1,"x"]'),
        ({3: complex(1, 2)}, '{"3":"(1+2j)"}'),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-2.5, "-2.5"), (100.0, "100.0"), (9999999.0, "9999999.0"),
        (1e7, "1.0E7"), (12345678.5, "1.23456785E7"), (0.001, "0.001"), (0.00099, "9.9E-4"), (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (0.1, "0.1"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_what_is_written_reads_back(value: object) -> None:
    assert json.loads(json_text(value)) == value
