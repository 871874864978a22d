"""Counts by a path: exact for every kind of value, over partitions, around damage, in bounded memory or an error."""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import IllegalArgument, UnknownTopicOrPartition
from kafkalog.inspect.counts import PathCounts, ValueCount, ValueTally, json_value
from kafkalog.log.counting import count_by
from tests.raw_batches import batches, write_segment

ODD: list[Any] = [0.5, 1.0, 1e300, "1", "true", "null", "é\\"]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(ODD)
JSON_VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2)


def as_python(value: Any) -> tuple[str, str]:
    """The identity of a JSON value: 1 and 1.0 are one number, True is none."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, str(value)
    if isinstance(value, int | float):
        return "number", str(Decimal(repr(value)).normalize())
    return "text", json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def identity(value: Any) -> tuple[str, str]:
    return ("text", value) if isinstance(value, str) and value[:1] in ("{", "[") else as_python(value)


@given(rows=st.lists(st.tuples(JSON_VALUES, st.booleans()), max_size=60), top=st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_counts_of_json_are_those_of_python(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, bool]], top: int
) -> None:
    """Whatever kinds a field has, with other escapes and spaces, and over two partitions."""
    path = tmp_path_factory.mktemp("counts")
    texts = [
        json.dumps({"a": {"b": value}}, ensure_ascii=is_odd, indent=1 if is_odd else None) for value, is_odd in rows
    ]
    logs = []
    for part in (0, 1):
        with kafkalog.open(path / f"t-{part}", "a") as log:
            if chosen := [(b"key", text.encode()) for text in texts[part::2]]:
                log.append(chosen, compression="zstd" if part else None)
        logs.append(kafkalog.open(path / f"t-{part}"))
    wanted, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (value, _), text in zip(rows, texts, strict=True):
        wanted[as_python(value)] += 1
        sizes[as_python(value)] += 3 + len(text.encode())
    found = count_by(logs, "value.a.b", value="json", most_rows=top)
    every = count_by(logs, "value.a.b", value="json", most_rows=1000)
    for log in logs:
        log.close()
    assert {identity(one.value): (one.records, one.bytes) for one in every.top} == {
        one: (wanted[one], sizes[one]) for one in wanted
    }
    assert found.top == every.top[:top] and (found.records, found.distinct) == (len(rows), len(wanted))
    assert found.rest.records == len(rows) - sum(one.records for one in found.top)
    assert found.rest.bytes + sum(one.bytes for one in found.top) == sum(sizes.values()) == found.bytes
    assert [one.records for one in every.top] == sorted(wanted.values(), reverse=True)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kafkalog.Log]:
    path = tmp_path / "orders-3"
    with kafkalog.open(path, "a") as log:
        for n in range(200):
            headers = {"trace": b"t%d" % (n % 2)} if n % 4 else {}
            value = None if n % 10 == 9 else b'{"country": "%s", "n": %d}' % ((b"DE", b"FR")[n % 3 == 0], n)
            log.append([kafkalog.Record(value, (n % 5).to_bytes(8), 1_700_000_000_000, headers)])
    with kafkalog.open(path) as log:
        yield log


def top_of(found: PathCounts) -> dict[Any, int]:
    return {one.value: one.records for one in found.top}


def test_every_kind_of_path(log: kafkalog.Log) -> None:
    assert top_of(count_by([log], "key")) == {n.to_bytes(8): 40 for n in range(5)}
    assert top_of(count_by([log], "key", key="int64")) == dict.fromkeys(range(5), 40)
    assert top_of(count_by([log], "partition")) == {3: 200} and top_of(count_by([log], "topic")) == {"orders": 200}
    assert top_of(count_by([log], "header.trace")) == {b"t1": 100, b"t0": 50, None: 50}
    assert top_of(count_by([log], "value.country", value="json")) == {"DE": 120, "FR": 60, None: 20}
    assert count_by([log], "time").distinct == 1
    by_key = count_by([log], "key", where="value.n < 50 and value.country == 'FR'", value="json", key="int64")
    assert by_key.where == "value.n < 50 and value.country == 'FR'"
    wanted = Counter(n % 5 for n in range(50) if n % 3 == 0 and n % 10 != 9)
    assert top_of(by_key) == wanted and by_key.records == wanted.total()
    assert top_of(count_by([log], "value.country", where="offset >= 190", value="json")) == {"DE": 6, "FR": 3, None: 1}


def test_what_does_not_decode_is_counted_apart(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b'{"a": 1}'), (b"k", b"{bad"), (b"k", b'{"a": 1'), (b"k", None), (b"k", b"\xff")])
        found = count_by([log], "value.a", value="json")
        assert top_of(found) == {1: 1, None: 1} and found.records == 2
        assert found.undecodable == ValueCount(None, 3, 3 + 4 + 7 + 1) and "no JSON" in str(found.reason)
        assert found.cells()[-1] == ("(not decoded)", 3, 15) and "3 records not decoded" in found.notes[1]
        filtered = count_by([log], "key", where="value.a == 1", value="json")
        assert (filtered.records, filtered.unfiltered) == (1, 3) and "for the condition" in filtered.notes[1]
        # a name with a dot: the types are those of a sample, and another kind is reported
        log.append([(b"k", b'{"x.y": "text"}'), (b"k", b'{"x.y": 5}'), (b"k", b'{"x.y": "text"}')])
        dotted = count_by([log], 'value."x.y"', value="json")
        assert dotted.records + dotted.undecodable.records == 8


@pytest.mark.parametrize(
    ("path", "typed", "said"),
    [
        ("value.country", {}, "value is bytes"), ("value", {"value": "json"}, "value is a record, list or map"),
        ("nothing", {}, "there is no field 'nothing'"), ("value.a", {"value": "jsn"}, "unknown decoder 'jsn'"),
        ("key", {"where": "value.n > 1"}, "value is bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted(log: kafkalog.Log, path: str, typed: dict[str, Any], said: str) -> None:
    with pytest.raises(IllegalArgument, match=said):
        count_by([log], path, **typed)


def test_the_public_calls(log: kafkalog.Log) -> None:
    """`Log.count_by` and, over all partitions, that of a topic: the words are those of `scan`."""
    shares: list[float] = []
    found = log.count_by("value.country", value="json", where="value.n < 100", top=1, progress=shares.append)
    assert found == count_by([log], "value.country", value="json", where="value.n < 100", most_rows=1)
    assert len(found.top) == 1 and found.rest.records == found.records - found.top[0].records > 0
    assert shares == sorted(shares) and shares[-1] == 1.0
    with pytest.raises(TypeError, match="did you mean where"):
        log.count_by("key", wher="offset > 5")
    with pytest.raises(IllegalArgument, match="top is -1"):
        log.count_by("key", top=-1)


def test_the_counts_of_a_topic(tmp_path: Path) -> None:
    shares: list[float] = []
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 2)
        for partition in (0, 1):
            dirs["orders", partition].append([b'{"n": %d}' % n for n in range(partition, 3)])
        found = dirs["orders"].count_by("value.n", value="json", progress=shares.append)
        assert [(one.value, one.records) for one in found.top] == [(1, 2), (2, 2), (0, 1)]
        assert dirs["orders"].count_by("partition").distinct == 2
        with pytest.raises(UnknownTopicOrPartition):
            dirs["order"].count_by("partition")
    assert len(shares) >= 2 and shares == sorted(shares) and shares[-1] == 1.0


def test_damage_is_passed_over_and_listed(tmp_path: Path) -> None:
    file = write_segment(tmp_path / "t-0", 0, batches(0, 100, 10))
    write_segment(tmp_path / "t-0", 1000, batches(1000, 10, 10))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with kafkalog.open(tmp_path / "t-0") as log:
        found = count_by([log], "partition")
    assert (found.records, len(found.damage)) == (1090, 1) and "1 damaged place" in found.notes[-1]
    with (tmp_path / "t-0" / f"{1000:020d}.log").open("ab") as end:
        end.write(b"\xff" * 70)
    (tmp_path / ".kafka_cleanshutdown").touch()  # so it is no write in progress
    with kafkalog.open(tmp_path / "t-0") as log:
        assert len(count_by([log], "partition").damage) == 2


@pytest.mark.parametrize("where", [None, 'value."a.b" > 1'])
def test_types_are_those_of_values_behind_damage(tmp_path: Path, where: str | None) -> None:
    """A path that needs types of the first values, in a log whose first batch is damaged."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for number in range(4):
            log.append([(b"k", b'{"a.b": %d}' % number)])
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with kafkalog.open(tmp_path / "t-0") as log:
        found = count_by([log], 'value."a.b"', where=where, value="json")
    assert [one.value for one in found.top] == ([1, 2, 3] if where is None else [2, 3]) and len(found.damage) == 1


def test_sums_are_exact_over_many_batches_and_bounded() -> None:
    tally = ValueTally("value.id", most_values=70_000)
    for n in range(30):
        tally.add(pa.array([f"v{(n * 5000 + i) % 60_000}" for i in range(5000)]), pa.array([n] * 5000, pa.int64()))
    found = tally.counts()
    assert len(found) == 60_000 and sum(one.records for one in found) == 150_000
    assert {one.records for one in found} == {2, 3} and sum(one.bytes for one in found) == sum(range(30)) * 5000
    small = ValueTally("value.id", most_values=59_999)
    with pytest.raises(IllegalArgument, match="value.id has more than 59,999 different values"):
        for n in range(30):
            small.add(pa.array([f"v{n * 5000 + i}" for i in range(5000)]), pa.array([n] * 5000, pa.int64()))
    large = ValueTally("value", most_bytes=1 << 20)
    with pytest.raises(IllegalArgument, match="value has more than 1.0 MiB of different values"):
        for n in range(30):
            large.add(pa.array([b"%d" % n * 100_000]), pa.array([1], pa.int64()))
    assert ValueTally("x").counts() == []
    nulls = ValueTally("x")
    nulls.add(pa.nulls(3), pa.array([1, 2, 3], pa.int64()))
    assert nulls.counts() == [ValueCount(None, 3, 6)]
    times = ValueTally("time")
    times.add(pa.array([2**62], pa.timestamp("ms")), pa.array([1], pa.int64()))
    assert times.counts() == [ValueCount(2**62, 1, 1)]


def test_json_texts_of_one_value_are_one() -> None:
    for one, other in (('"\\u00e9"', '"é"'), ("1", "1.0"), ("1e2", "100"), ('{"a":1, "b":2}', '{"b":2,"a":1}')):
        assert json_value(one)[0] == json_value(other)[0] and json_value(one)[1] == json_value(other)[1]
    texts = ["1", '"1"', "true", '"true"', "null", '"null"', "[1]", '"[1]"', "9007199254740993", "9007199254740992"]
    assert len({json_value(text)[0] for text in texts}) == len(texts)
    huge = "1" + "0" * 5000
    assert json_value(huge)[1] and json_value("1e999999999")[1] and json_value("[" * 5000 + "]" * 5000)[1]


def test_the_counts_as_json_and_as_a_table(log: kafkalog.Log) -> None:
    found = count_by([log], "key", most_rows=2)
    text = json.dumps(found.as_dict())
    assert json.loads(text)["rest"] == {"values": 3, "records": 120, "bytes": found.rest.bytes}
    assert json.loads(text)["values"][0]["value"] == "\\x00" * 8
    assert found.rows["value"][-1] == "(3 other values)" and found.rows.notes[0] == "200 records; 5 different values"
