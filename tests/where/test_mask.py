"""Masks against a plain evaluator, over random records and expressions; types and headers one by one."""

import re
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import where
from kafkalog.errors import IllegalArgument
from kafkalog.where.nodes import Node
from tests.where.expressions import HEADERS, NODES, RECORDS, SCHEMA, TERMS, batch_of, evaluate


@settings(max_examples=300)
@given(NODES, st.lists(RECORDS, max_size=20))
def test_a_mask_is_the_value_for_each_record(node: Node, records: list[dict[str, Any]]) -> None:
    mask = where.Expression(node).mask(batch_of(records))
    assert mask.type == pa.bool_()
    assert mask.to_pylist() == [evaluate(node, record) for record in records]


@settings(max_examples=300)
@given(TERMS, st.lists(RECORDS, min_size=1, max_size=8))
def test_each_condition_alone(node: Node, records: list[dict[str, Any]]) -> None:
    mask = where.Expression(node).mask(batch_of(records))
    assert mask.to_pylist() == [evaluate(node, record) for record in records], node


@settings(max_examples=80)
@given(TERMS, TERMS, st.lists(RECORDS, min_size=1, max_size=8), st.integers(1, 30))
def test_costly_conditions_on_the_few_rows_that_are_left(
    first: Node, second: Node, records: list[dict[str, Any]], times: int
) -> None:
    """One record in many decides: the others are left out before the second condition sees them."""
    expression = where.parse(f"offset == {records[0]['offset']} and ({first}) and header.trace like '%' and {second}")
    records = records[:1] + records[1:] * times
    assert expression.mask(batch_of(records)).to_pylist() == [evaluate(expression.node, one) for one in records]


@settings(max_examples=80)
@given(NODES, st.lists(RECORDS, min_size=2, max_size=8), st.data())
def test_a_slice_of_a_batch(node: Node, records: list[dict[str, Any]], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(records) - 1))
    part = batch_of(records).slice(first)
    assert where.Expression(node).mask(part).to_pylist() == [evaluate(node, record) for record in records[first:]]


@settings(max_examples=300)
@given(NODES, st.lists(RECORDS, min_size=1, max_size=8))
def test_the_two_parts_of_a_split_are_both_true_where_the_whole_is(node: Node, records: list[dict[str, Any]]) -> None:
    first, rest = where.Expression(node).split(frozenset({"value"}))
    assert first is None or not {"value"} & set(first.typed_roots)
    batch = batch_of(records)
    parts = [one.mask(batch).to_pylist() for one in (first, rest) if one is not None]
    both = [all(row) for row in zip(*parts, strict=True)]
    assert both == [evaluate(node, record) is True for record in records]


FORMS = (
    pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
)  # fmt: skip


@pytest.mark.parametrize("type", FORMS, ids=str)
def test_every_form_of_text_and_bytes(type: pa.DataType) -> None:
    keys = ["eu-1", None, "us-2", "eu-3"]
    stored = [None if one is None else one.encode() for one in keys] if "binary" in str(type) else keys
    batch = pa.record_batch({"key": pa.array(stored).cast(type)})
    for text, expected in [
        ("key like 'eu-%'", [True, None, False, True]), ("key like 'eu-_'", [True, None, False, True]),
        ("key == 'us-2'", [False, None, True, False]), ("key in ('eu-1', x'65752d33')", [True, None, False, True]),
        ("key >= x'7573'", [False, None, True, False]), ("key matches '[12]$'", [True, None, True, False]),
    ]:  # fmt: skip
        assert where.parse(text).mask(batch).to_pylist() == expected, text


@pytest.mark.parametrize("type", FORMS, ids=str)
def test_escapes_in_patterns(type: pa.DataType) -> None:
    """Each escape at each place beside wildcards: as a model says that goes through the pattern."""
    texts = ["", "\\", "a\\", "\\a", "a\\b", "%", "a%", "_", "a_b", "ab", "\\\\", "a\n\\"]
    batch = pa.record_batch({"key": pa.array([one.encode() for one in texts]).cast(type)})
    pieces = ("%", "", "_"), (r"\\", r"\%", r"\_", "a", ""), ("%", "", "a"), (r"\\", "%", "")
    for pattern in map("".join, product(*pieces)):
        parts = re.findall(r"\\.|.", pattern, re.DOTALL)
        model = re.compile("".join({"%": ".*", "_": "."}.get(one, re.escape(one[-1])) for one in parts), re.DOTALL)
        found = where.parse(f"key like '{pattern}'").mask(batch).to_pylist()
        assert found == [model.fullmatch(one) is not None for one in texts], pattern


def test_uuids() -> None:
    raw = [bytes(range(16)), None, bytes(16)]
    for type in (pa.binary(16), pa.uuid()):
        storage = pa.array(raw, pa.binary(16))
        keys = storage if type == pa.binary(16) else pa.ExtensionArray.from_storage(type, storage)
        batch = pa.record_batch({"key": keys})
        expression = where.parse("key == '00010203-0405-0607-0809-0a0b0c0d0e0f'")
        assert expression.mask(batch).to_pylist() == [True, None, False]
        expression = where.parse("key in ('00000000-0000-0000-0000-000000000000', 'x')")
        assert expression.mask(batch).to_pylist() == [False, None, True]


def test_the_last_header_of_a_name_counts() -> None:
    headers = [[("t", b"1"), ("t", b"2")], [("t", b"2"), ("t", None)], [], [("u", b"2")], [("t", b"2")]]
    batch = pa.record_batch({"headers": pa.array(headers, HEADERS)})
    assert where.parse("header.t == '2'").mask(batch).to_pylist() == [True, None, None, None, True]
    assert where.parse("header.t is null").mask(batch.slice(1)).to_pylist() == [True, True, True, False]


def test_sizes_are_those_of_the_bytes() -> None:
    batch = pa.record_batch({"key": pa.array([b"abc", None, b""]), "value": pa.array([b"", b"1234", None])})
    assert where.parse("key_size >= 1").mask(batch).to_pylist() == [True, None, False]
    assert where.parse("value_size > 3").mask(batch).to_pylist() == [False, True, None]
    with pytest.raises(IllegalArgument, match="needs the bytes of value"):
        where.parse("size > 1").mask(pa.record_batch({"value": pa.array([1, 2])}))


REFUSED = [
    ("key > 5", "key is bytes and 5 is a whole number.*write '5'"),
    ("key == true", "true is true or false"),
    ("value.nn == 1", "value has no field 'nn', at character 1 .*did you mean n?"),
    ("offset > 1 and value.in.y == 1", "value.in has no field 'y', at character 16 .*its fields are x"),
    ("value.s == 1", "value.s is text and 1 is a whole number"),
    ("value.n == '1'", "value.n is a whole number and '1' is text.*without quotes"),
    ("value == 'x'", "value is a record, list or map.*write a path into it"),
    ("value.s.t == 'x'", "value.s is text.*it has no parts"),
    ("key.a == 1", "key is bytes.*decode it, as with key='json' \\(in a command: -s key=json\\)"),
    ("value.n like 'a'", "like needs text"),
    ("value.s", "value.s is text and stands alone"),
    ("value.ok < true", "< needs an order"),
    ("value.s == value.n", "value.s is text and value.n is a whole number"),
    ("value.t > 'yesterday'", "'yesterday' is not a time, but value.t is a time, at character 1"),
    ("key matches '('", "missing \\): \\(, at character 13 .*RE2"),
    (r"key matches '(a)\1'", "invalid escape sequence"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_condition_that_does_not_fit_the_types_is_told_with_its_position(text: str, message: str) -> None:
    expression = where.parse(text)
    with pytest.raises(IllegalArgument, match=message):
        expression.check(value=SCHEMA.field("value").type)
    with pytest.raises(IllegalArgument, match=message):
        expression.mask(batch_of([]))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(IllegalArgument, match="header.a needs the column 'headers'"):
        where.parse("header.a == 'x'").mask(pa.record_batch({"key": pa.array([b"k"])}))


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(a*)*b$", "^(a?){30}a{30}$", "(.*)(.*)(.*)x"])
def test_expressions_that_backtracking_would_not_end(pattern: str) -> None:
    """An engine that goes back needs n^2 steps or more for these texts, of two million letters: it comes to no end."""
    batch = pa.record_batch({"key": pa.array([b"a" * 2_000_000 + b"!"])})
    assert where.parse(f"key matches '{pattern}'").mask(batch).to_pylist() == [False]
