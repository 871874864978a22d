"""A condition on JSON without a schema selects the same records, whatever columns are returned beside it."""

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest

import kafkalog
from kafkalog.exchange.export import export_records
from kafkalog.log.json_conditions import conditioned
from kafkalog.values.json_columns import JsonDecoder
from kafkalog.where import parse
from tests.commands import ok

ROWS: list[Any] = [
    {"s": "b", "n": 1, "in": {"x": 1}}, {"s": 1, "n": 2.5, "in": "x"}, {"s": "a", "n": "1"}, {"n": 3}, {"s": None},
    {"s": '"b"', "n": 2**53 + 1, "in": {"x": "1"}},
]  # fmt: skip
CONDITIONS = {
    "value.s == 'b'": [0], "value.s >= 'a'": [0, 2], "value.n > 1": [1, 3, 5], "value.n == 9007199254740992": [],
    "value.in.x == 1": [0], "value.s is not null and value.n == 1": [0], "not value.n > 1 or value.s == 'a'": [0, 2],
    "offset < 3 and value.s like '%b%'": [0],
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("events", 1)
        dirs["events", 0].append([json.dumps(row).encode() for row in ROWS])
    return tmp_path / "data"


def exported(data: Path, where: str, runs: int) -> list[int]:
    out = data.parent / f"out{len([*data.parent.iterdir()])}"
    for run in range(runs):
        export_records(data, out, "jsonl", where=where, value="json", resume=run > 0, topics=["events"])
        if run + 1 < runs:
            with kafkalog.open_dirs(data, "a") as dirs:
                dirs["events", 0].append([json.dumps(row).encode() for row in ROWS])
    lines = [line for path in out.rglob("events-*.jsonl") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["offset"] for line in lines)


@pytest.mark.parametrize("where", CONDITIONS)
def test_the_columns_do_not_change_the_rows(data: Path, where: str) -> None:
    expected = CONDITIONS[where]
    with kafkalog.open_dirs(data) as dirs:
        scans = [
            *(dirs["events", 0].scan(columns, where=where, value="json") for columns in (["offset"], None)),
            *(dirs.scan("events", order=order, where=where, value="json") for order in ("partition", "time")),
            *(dirs.scan("events", project=["offset", field], where=where, value="json")
              for field in ("value", "value.s", "value.n", 'value."in"')),
        ]  # fmt: skip
        found = [scan.table()["offset"].to_pylist() for scan in scans]
        found.append([one.offset for one in dirs["events", 0].records(where=where, value="json")])
        frame = kafkalog.polars.scan(dirs, "events", value="json", where=where)
        found.append(frame.collect()["offset"].to_list())
        text = polars.col("value").struct.field("s").str.len_bytes() > 0
        found.append(frame.filter(text.is_not_null() | (polars.col("offset") >= 0)).collect()["offset"].to_list())
    options = ("-s", "value=json", "--where", where, "--project", "offset,value.s")
    lines = ok("consume", "-d", data, "-t", "events", *options)
    found += [[json.loads(line)["offset"] for line in lines.splitlines()], exported(data, where, 1)]
    assert found == [expected] * len(found)


def test_a_resumed_export_goes_on_with_the_same_condition(data: Path) -> None:
    assert exported(data, "value.s >= 'a'", 2) == [0, 2, 6, 8]


def test_what_does_not_decode_is_counted_once(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["events", 0].append([b"{", b"}"])
    with kafkalog.open_dirs(data) as dirs:
        scan = dirs["events", 0].scan(where="value.s == 'b' or offset == 6", value="json", on_undecodable="null")
        assert scan.table()["offset"].to_pylist() == [0, 6]
        assert scan.undecodable == 2


WHOLE = [
    b'{"in": {"x": 1, "s": "b"}, "n": 2.5, "t": true}', b'{"in": {"x": 9007199254740993}, "n": -0.0, "more": [1]}',
    b'{"in": null, "t": false, "more": [2, 3]}', b'{"in": {}, "n": 3}', b"{}", b'{"in": {"x": 1, "x": 7}}', b"null",
    None,
]  # fmt: skip


@pytest.mark.parametrize(
    "where", ["value.in.x > 1", "value.in.s == 'b' and value.n < 3", "value.t or value.in.x in (7)"]
)  # fmt: skip
def test_a_condition_sees_in_whole_values_what_it_decodes_itself(where: str) -> None:
    """The values are decoded once then; an integer is the double that the condition compares."""
    both = conditioned("value", JsonDecoder(sample=WHOLE), parse(where))
    column = pyarrow.array(WHOLE, pyarrow.binary())
    for part in (column, column.slice(2, 4), column.slice(0, 0)):
        assert both.seen_in(both.decode(part).values).equals(both.test.decode(part).values)


@pytest.mark.parametrize(
    "where", ["value.n == 'a'", "value.s == 1", "value.in.y > 1", "value.j == 'a'", "value.i == 'a'"]
)  # fmt: skip
def test_a_condition_on_other_types_decodes_for_itself(where: str) -> None:
    sample = [b'{"n": 1, "s": "a", "in": {"x": 1}, "j": 1, "i": {}}', b'{"j": "a", "i": {"a": 1}}']
    both = conditioned("value", JsonDecoder(sample=sample), parse(where))
    assert both.seen_in(both.decode(pyarrow.array(sample, pyarrow.binary())).values) is None


@pytest.mark.parametrize("odd", [1, 2, 4])
def test_values_that_pass_and_others_change_from_batch_to_batch(tmp_path: Path, odd: int) -> None:
    """A value that a condition rules out need not fit the types, also where most pass; one that passes must."""
    with kafkalog.open(tmp_path / "log-0", "a") as log:
        for run, least in enumerate((0, 9, 0, 10, 3)):
            values = [{"n": n % 10 if n % 10 >= least else -1, "s": "x" * 20} for n in range(1200)]
            values[700] |= {"n": -1, "s": 5} if run == odd else {}
            log.append([json.dumps(value).encode() for value in values])
        found = log.scan(["offset", "value"], where="value.n >= 0", value="json", batch_rows=1200).table()
        expected = [
            (run * 1200 + n, n % 10) for run, least in enumerate((0, 9, 0, 10, 3)) for n in range(1200)
            if n % 10 >= least and (run, n) != (odd, 700)
        ]  # fmt: skip
        assert [(row["offset"], row["value"]["n"]) for row in found.to_pylist()] == expected
        log.append([b'{"n": 1, "s": 5}'])
        with pytest.raises(kafkalog.InvalidRecord) as raised:
            log.scan(["offset", "value"], where="value.n >= 0", value="json").table()
        assert raised.value.offset == 6000


LATER: list[Any] = [  # behind a sample that has whole numbers alone
    {"n": 2.5, "a.b": 2.5, "o": {"n": 2.5}, "l": [{"n": 2.5}], "x": 9, "y": 10}, {"n": "x", "o": "x", "l": 7},
    {"n": 2, "a.b": 2, "o": {"n": 2}, "l": [{"n": 0}, {"n": 2}], "x": 10, "y": 9}, None, 2.5, {"a.b": "x"},
]  # fmt: skip
SAMPLE = {"n": 1, "a.b": 1, "o": {"n": 1}, "l": [{"n": 1}], "x": 9, "y": 9}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("value.n > 1", [0, 2]), ('value."a.b" > 1', [0, 2]), ("value.l[0].n > 1", [0]), ("value.l[*].n > 1", [0, 2]),
        ("value is not null and value.n > 1", [0, 2]), ("value.o is not null and value.o.n > 1", [0, 2]),
        ("value.n > 1 and value.x < value.y", [0]), ("value.o.n > 1 and value.x > value.y", [2]),
        ("value.n is null", [3, 4, 5]), ("value.n not in (0, null)", []), ("value.o is null", [3, 4, 5]),
        ("value is null", [3]), ("value.n == 'x' and value is not null", [1]), ("value.\"a.b\" == x'78'", [5]),
        ("value.o is not null and value.o.n < value.x", [2]),
        ("value.l[0] is not null and value.l[0].n < value.y", [2]), ("value.x is not null and value.x > value.y", [2]),
        ("value.l[1].n == 2 and value.l[0].n is not null", [2]), ("value.l is null or value.n is null", [3, 4, 5]),
    ],
)
def test_values_behind_a_sample_of_other_kinds_are_found(tmp_path: Path, where: str, rows: list[int]) -> None:
    with kafkalog.open(tmp_path / "events-0", "a") as log:
        log.append([json.dumps(SAMPLE).encode()] * 1000)
        log.append([json.dumps(row).encode() for row in LATER])
        options: dict[str, Any] = {"where": f"offset >= 1000 and ({where})", "value": "json"}
        found = [log.scan(["offset"], **options).table()["offset"].to_pylist()]
        options["on_undecodable"] = "null"
        found += [log.scan(columns, **options).table()["offset"].to_pylist() for columns in (["offset"], None)]
        for field in ("value.n", 'value."a.b"', "value.o", "value.o.n", "value.l", "value.nothing"):
            found.append(log.scan(project=["offset", field], **options).table()["offset"].to_pylist())
        found.append([one.offset for one in log.records(**options)])
    assert found == [[1000 + row for row in rows]] * len(found)


def test_whole_numbers_are_numbers_beside_a_constant(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "numbers-0", "a") as log:
        log.append([b"1"] * 1000)
        log.append([b"2.5", b"2", b"9007199254740993"])
        for where, offsets in (("value > 1", [1000, 1001, 1002]), ("value == 9007199254740992", [])):
            assert log.scan(["offset"], where=where, value="json").table()["offset"].to_pylist() == offsets


def test_a_field_of_another_kind_than_in_the_sample_is_no_null(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "events-0", "a") as log:
        log.append([b'{"n": 1, "s": 1}', b'{"n": 1, "s": "x"}'] * 500)
        log.append([b'{"n": 2.5, "s": {}}'])
        project = ["offset", "value.n", "value.s"]
        scan = log.scan(project=project, where="value.s is not null", value="json", on_undecodable="null")
        *_, last = scan.table().to_pylist()
        assert last["value.n"] is None and "fraction" in last["value_error"]
        with pytest.raises(kafkalog.InvalidRecord, match="n: the number has a fraction"):
            log.scan(project=project, value="json").table()
        assert log.scan(project=["value.s"], value="json", start=-1).table().to_pylist() == [{"value.s": "{}"}]


def test_paths_into_lists_that_are_whole_values(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "pairs-0", "a") as log:
        log.append([b"[1, 2]", b"[2, 1]", b"null", b"[]"])
        for where, offsets in (
            ("value[0] < value[1]", [0]), ("value is not null and value[0] < value[1]", [0]),
            ("value[0] != offset", [0, 1]), ("value[1] is null", [2, 3]), ("value[*] == 1 and value[0] > 1.5", [1]),
        ):  # fmt: skip
            scan = log.scan(project=["offset", "value[0]"], where=where, value="json")
            assert scan.table()["offset"].to_pylist() == offsets, where
            assert [one.offset for one in log.records(where=where, value="json")] == offsets, where
