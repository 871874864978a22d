"""Paths into lists: one element by its number, or each of them, against a plain evaluation; what is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import where
from kafkalog.errors import IllegalArgument
from kafkalog.where.nodes import Field, Step

ITEM = pa.struct([("sku", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
VALUE = pa.struct([("items", pa.list_(ITEM)), ("codes", pa.list_(pa.int64()))])
TEXTS = st.none() | st.sampled_from("abc")
NUMBERS = st.none() | st.integers(-2, 2)
ITEMS = st.none() | st.fixed_dictionaries(
    {"sku": TEXTS, "n": NUMBERS, "tags": st.none() | st.lists(TEXTS, max_size=3)}
)
VALUES = st.none() | st.fixed_dictionaries(
    {"items": st.none() | st.lists(ITEMS, max_size=4), "codes": st.none() | st.lists(NUMBERS, max_size=3)}
)
TESTS: dict[str, Any] = {
    "== 'a'": lambda one: None if one is None else one == "a",
    "!= 'a'": lambda one: None if one is None else one != "a",
    "in ('a', 'b')": lambda one: None if one is None else one in ("a", "b"),
    "like 'b%'": lambda one: None if one is None else one.startswith("b"),
    "matches '^[ab]$'": lambda one: None if one is None else one in ("a", "b"),
    "is null": lambda one: one is None,
}


def reached(value: Any, path: list[str | int | None]) -> tuple[list[Any], bool]:
    """The values that a path leads to, and whether a list of which each element is wanted is null."""
    if not path:
        return [value], False
    first, rest = path[0], path[1:]
    if isinstance(first, str):
        return reached(None if value is None else value[first], rest)
    if isinstance(first, int):
        is_there = value is not None and -len(value) <= first < len(value)
        return reached(value[first] if is_there else None, rest)
    if value is None:
        return [], True
    found = [reached(one, rest) for one in value]
    return [one for values, _ in found for one in values], any(unknown for _, unknown in found)


def any_of(found: list[bool | None], is_unknown: bool) -> bool | None:
    return True if True in found else None if is_unknown or None in found else False


def batch_of(values: list[Any], type: pa.DataType = VALUE) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, type)})


PATHS: dict[str, list[str | int | None]] = {
    "value.items[0].sku": ["items", 0, "sku"], "value.items[-2].sku": ["items", -2, "sku"],
    "value.items[*].sku": ["items", None, "sku"], "value.items[*].tags[*]": ["items", None, "tags", None],
    "value.items[ 1 ].tags[*]": ["items", 1, "tags", None], "value.items[*].tags[0]": ["items", None, "tags", 0],
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@given(values=st.lists(VALUES, max_size=8), test=st.sampled_from(sorted(TESTS)), start=st.integers(0, 3))
def test_conditions_are_those_of_a_plain_evaluation(path: str, values: list[Any], test: str, start: int) -> None:
    """`[*]` is true for a record if the condition is true for any element; null as in SQL's ANY; also of a slice."""
    mask = where.parse(f"{path} {test}").mask(batch_of(values).slice(start))
    negated = where.parse(f"not ({path} {test})").mask(batch_of(values).slice(start))
    expected = []
    for value in values[start:]:
        found, is_unknown = reached(value, PATHS[path])
        is_single = None not in PATHS[path]
        own = [TESTS[test](one) for one in found]
        expected.append(own[0] if is_single else any_of(own, is_unknown))
    assert mask.to_pylist() == expected
    assert negated.to_pylist() == [None if one is None else not one for one in expected]


@given(values=st.lists(VALUES, max_size=8))
def test_numbers_in_lists(values: list[Any]) -> None:
    mask = where.parse("value.codes[*] > 0.5 or value.items[*].n == value.codes[0] or value.codes[1] in (1, 2)")
    with pytest.raises(IllegalArgument, match=r"value.items\[\*\].n is a whole number and there are many of it"):
        mask.mask(batch_of(values))
    mask = where.parse("value.codes[*] > 0.5 or value.items[0].n == value.codes[0]")
    for found, value in zip(mask.mask(batch_of(values)).to_pylist(), values, strict=True):
        codes = (value or {}).get("codes") or []
        first = ((value or {}).get("items") or [None])[0]
        if any(one is not None and one > 0 for one in codes):
            assert found is True
        elif first is not None and codes and first["n"] is not None and codes[0] is not None:
            assert bool(found) == (first["n"] == codes[0])
        else:
            assert not found


@pytest.mark.parametrize(
    "type", [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2), pa.list_view(pa.string())],
    ids=str,
)  # fmt: skip
def test_every_kind_of_list(type: pa.DataType) -> None:
    """A null list may lie over values, which count for nothing."""
    rows = [["a", "b"], None, ["b", None], ["c", "c"]]
    batch = batch_of([{"l": one} for one in rows], pa.struct([("l", type)]))
    assert where.parse("value.l[*] == 'b'").mask(batch).to_pylist() == [True, None, True, False]
    assert where.parse("value.l[1] == 'b'").mask(batch).to_pylist() == [True, None, None, False]
    assert where.parse("value.l[-3] is null").mask(batch).to_pylist() == [True] * 4
    if type == pa.list_(pa.string()):
        over = pa.ListArray.from_arrays(
            pa.array([0, 2, 4], pa.int32()), pa.array(["a", "b", "b", "b"]), mask=pa.array([False, True])
        )
        masked = pa.record_batch({"value": pa.StructArray.from_arrays([over], ["l"])})
        assert where.parse("value.l[*] == 'b'").mask(masked).to_pylist() == [True, None]


def test_the_text_of_a_path_means_the_same() -> None:
    for text in ("value.items[0].sku == 'a'", "value.a[-1][*].\"[0]\" is null", "key[*] in (1, 2)"):
        expression = where.parse(text)
        assert str(expression) == text and where.parse(str(expression)) == expression
    assert where.parse("value[0] == 1") != where.parse('value."[0]" == 1')
    assert hash(Step(0)) == hash(Step(0)) != hash(Step(None)) and Step(0) != "[0]" != Step(0)
    assert where.parse_field("value.items[*].sku") == Field(("value", "items", Step(None), "sku"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value.items.sku == 'a'", r"value.items is a record, list or map.*items\[0\].sku for one.*\[\*\].sku for"),
        ("value.items[0].skus == 'a'", r"value.items\[0\] has no field 'skus'.*did you mean sku"),
        ("value.items[0].sku[0] == 'a'", r"sku is text.*\[0\] and \[\*\] go into lists"),
        ("value.items[*] == 'a'", r"value.items\[\*\] is a record, list or map"),
        ("header.a[0] == 'a'", r'a header is no list.*header."a\[0\]"'), ("offset[0] == 1", "offset has no parts"),
        ("value.items[a] == 1", r"unexpected '\[a\]'.*value.items\[0\].sku"),
        ("value.items[1.5] == 1", "unexpected"), ("value.items[99999999999] == 1", "unexpected"),
        ("offset in [1, 2]", r"unexpected '\[1,'.*a list of constants is in parentheses"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(IllegalArgument, match=said):
        where.parse(text).mask(batch_of([]))


@pytest.fixture
def log(tmp_path: Path) -> kafkalog.Log:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([
            b'{"items": [{"sku": "A1", "n": 2}, {"sku": "B2", "n": 1}]}', b'{"items": []}', b'{"other": 1}',
            b'{"items": [{"sku": "B2", "n": 7}]}',
        ])  # fmt: skip
    return kafkalog.open(tmp_path / "orders-0")


def test_json_without_a_schema(log: kafkalog.Log) -> None:
    with log:
        condition = "value.items[*].sku == 'B2' and value.items[0].n > 1"
        assert [one.offset for one in log.records(where=condition, value="json")] == [0, 3]
        found = log.scan(project=["value.items[*].n", "value.items[-1].sku"], value="json").table()
        assert found.to_pydict() == {
            "value.items[*].n": [[2, 1], [], None, [7]], "value.items[-1].sku": ["B2", None, None, "B2"],
        }  # fmt: skip
        assert [one.offset for one in log.records(where="not value.items[*].sku == 'A1'", value="json")] == [1, 3]
        assert log.count_by("value.items[0].sku", value="json").distinct == 3
        with pytest.raises(IllegalArgument, match="is any number of values"):
            log.count_by("value.items[*].sku", value="json")
