"""Dates and times that Avro has and Python's calendar does not: each way to read them gives the value, or an error."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from kafkalog.values.avro_default import long_bytes
from tests import commands
from tests.trees import ROOT

DAYS = [0, 2932897, 1]
"""1970-01-01, 10000-01-01, 1970-01-02."""
SCHEMA = {
    "type": "record", "name": "R", "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "r.avsc").write_text(json.dumps(SCHEMA))
    with kafkalog.open(tmp_path / "data" / "r-0", "a") as log:
        log.append([long_bytes(day) + long_bytes(day * 86_400_000) for day in DAYS])
    return tmp_path / "data"


def test_records_before_such_a_time_are_yielded_and_it_is_an_error(data: Path) -> None:
    with kafkalog.open(data / "r-0") as log:
        records = log.records(value="avro", schema=SCHEMA)
        assert next(records).value["day"] == datetime.date(1970, 1, 1)
        with pytest.raises(InvalidRecord, match=r"value has a time beyond Python's calendar \(offset 1\)"):
            next(records)
        assert [one.offset for one in log.records(2, value="avro", schema=SCHEMA)] == [2]


def test_records_null_it_as_what_does_not_decode(data: Path) -> None:
    with kafkalog.open(data / "r-0") as log:
        found = list(log.records(value="avro", schema=SCHEMA, on_undecodable="null", where="offset > 0"))
    assert [(one.offset, one.value is None, one.value_error) for one in found] == [
        (1, True, "value has a time beyond Python's calendar"), (2, False, None),
    ]  # fmt: skip


def test_frames(data: Path) -> None:
    with kafkalog.open(data / "r-0") as log:
        scan = log.scan(value="avro", schema=SCHEMA, project=["value.day", "value.at"])
        assert scan.to_polars()["value.day"].to_physical().to_list() == DAYS
        with pytest.raises(InvalidRecord, match="pandas has no object"):
            scan.to_pandas()


@pytest.mark.parametrize("condition", ["value.day in (253402300800000)", "value.at in (253402300800000, 1)"])
def test_a_list_of_such_times(data: Path, condition: str) -> None:
    with kafkalog.open(data / "r-0") as log:
        scan = log.scan(value="avro", schema=SCHEMA, where=condition, project=["offset"])
        assert scan.table().to_pylist() == [{"offset": 1}]


def test_commands(data: Path, tmp_path: Path) -> None:
    given = ["-d", data, "-t", "r", "-s", "value=avro", "--schema", tmp_path / "r.avsc"]
    projected = commands.kafkalog("consume", *given, "--project", "value.day")
    assert projected.returncode == 1
    assert projected.stdout == b'{"value.day":"1970-01-01"}\n'
    assert b"value.day has a time beyond Python's calendar" in projected.stderr
    assert b"offset 1" in projected.stderr
    printed = commands.kafkalog("consume", *given, "-o", "1")
    assert printed.returncode == 1
    assert b"it has a time beyond Python's calendar" in printed.stderr
    counted = commands.kafkalog("stats", "-d", data, "-t", "r", *given[4:], "--by", "value.day")
    assert counted.returncode == 0
    assert b"2932897" in counted.stdout
    lines = commands.kafkalog("export", *given, tmp_path / "out", "--format", "jsonl", "--on-undecodable", "null")
    assert lines.returncode == 0
    (exported,) = (tmp_path / "out").glob("topic=r/*.jsonl")
    rows = [json.loads(line) for line in exported.read_text().splitlines()]
    assert [row.get("payload") is None for row in rows] == [False, True, False]
    assert rows[1]["value_error"] == "value has a time beyond Python's calendar"


NANOSECONDS = {"type": "record", "name": "R", "fields": [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
]}  # fmt: skip
WITHOUT_PANDAS = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: None if name == "pandas" else find(name, path, target)
import kafkalog
from kafkalog.tools.decoders.named import by_schema
with kafkalog.open(sys.argv[1]) as log:
    for one in log.records(value="avro", schema=sys.argv[2], on_undecodable="null"):
        print(one.value_error)
    try:
        by_schema("avro", schema=sys.argv[2], message=None)(log[0].value)
    except ValueError as error:
        print(error)
"""


def test_nanoseconds_are_printed_and_need_pandas_as_objects(tmp_path: Path) -> None:
    schema = tmp_path / "r.avsc"
    schema.write_text(json.dumps(NANOSECONDS))
    with kafkalog.open(tmp_path / "data" / "r-0", "a") as log:
        log.append([long_bytes(1_700_000_000 * 10**9 + 1), long_bytes(1_700_000_000 * 10**9)])
    flags = ("-d", tmp_path / "data", "-t", "r", "-s", "value=avro", "--schema", schema, "--project", "value.at")
    lines = [json.loads(line)["value.at"] for line in commands.ok("consume", *flags).splitlines()]
    assert lines == ["2023-11-14T22:13:20.000000001Z", "2023-11-14T22:13:20Z"]
    run = [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path / "data" / "r-0"), str(schema)]
    found = subprocess.run(run, capture_output=True, check=True, text=True, cwd=ROOT)
    assert found.stdout.splitlines() == [
        "value has a time with nanoseconds, which needs pandas", "None",
        "it has a time with nanoseconds, which needs pandas",
    ]  # fmt: skip
