"""Typed scans: filtered, decoded and projected columns for every reader; what is refused."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord
from kafkalog.log.scan import LogScan
from kafkalog.log.typed_scan import first_values
from tests.trees import ROOT
from tests.where.logs import JsonDecoder

T = 1_700_000_000_000
ORDER = pa.struct([("n", pa.int64()), ("customer", pa.struct([("country", pa.string())])), ("ok", pa.bool_())])
COUNTRIES = ["DE", "FR", None]


def order(n: int) -> bytes:
    return json.dumps({"n": n, "customer": {"country": COUNTRIES[n % 3]}, "ok": n % 2 == 0}).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """300 orders, plain and compressed; every 100th value is no JSON, one is null."""
    directory = tmp_path / "orders-0"
    with kafkalog.open(directory, "a") as log:
        for base in range(0, 300, 50):
            rows = []
            for n in range(base, base + 50):
                value = b"{" if n % 100 == 99 else None if n == 7 else order(n)
                rows.append((b"k%d" % (n % 4), value, T + n))
            log.append(rows, compression="zstd" if base % 100 else "none")
        log.append([kafkalog.Record(order(300), b"k0", T + 300, {"trace": b"x"})])
    return directory


def decoder() -> JsonDecoder:
    return JsonDecoder(ORDER)


def test_where_and_project(path: Path) -> None:
    with kafkalog.open(path) as log:
        scan = log.scan(
            where="value.customer.country == 'FR' and value.n > 290", value=decoder(), on_undecodable="null",
            project={"offset": "offset", "country": "value.customer.country", "size": "size", "k": "key"},
        )  # fmt: skip
        rows = scan.table().to_pylist()
        wanted = [n for n in range(291, 301) if n % 3 == 1 and n != 299]
        assert [row["offset"] for row in rows] == wanted
        assert rows[0] == {
            "offset": 292, "country": "FR", "size": len(order(292)), "k": b"k0", "value_error": None
        }
        assert scan.columns == ("offset", "country", "size", "k", "value_error") == tuple(scan.schema.names)
        assert repr(scan).startswith("<TypedScan orders-0 [0, 301): offset, country, size, k, value_error where val")


def test_typed_columns_without_a_condition(path: Path) -> None:
    with kafkalog.open(path) as log:
        scan = log.scan(["offset", "value"], value=decoder(), on_undecodable="null")
        table = scan.table()
        assert table.schema == scan.schema and table.schema.field("value").type == ORDER
        assert table["value"].to_pylist()[:2] == [json.loads(order(0)), json.loads(order(1))]
        assert [table["value"][n].as_py() for n in (7, 99)] == [None, None]
        assert [n for n, text in enumerate(table["value_error"].to_pylist()) if text] == [99, 199, 299]
        assert scan.undecodable == 3
        assert list(scan) and scan.undecodable == 3  # of the last reading, not of all


def test_what_does_not_decode_raises_with_its_offset(path: Path) -> None:
    with kafkalog.open(path) as log:
        with pytest.raises(InvalidRecord, match="the value does not decode: .*on_undecodable='null'") as error:
            log.scan(["value"], value=decoder()).table()
        assert error.value.offset == 99
        with pytest.raises(InvalidRecord) as error:
            list(log.records(where="value.n > 5 and offset > 150", value=decoder()))
        assert error.value.offset == 199
        assert log.scan(["value"], value=decoder(), where="offset < 90").table().num_rows == 90


def test_rows_that_cheap_conditions_rule_out_are_not_decoded(path: Path) -> None:
    with kafkalog.open(path) as log:
        used = decoder()
        scan = log.scan(["offset"], where="value.n >= 0 and key == 'k1' and offset < 50", value=used)
        used.rows = 0
        assert scan.table()["offset"].to_pylist() == list(range(1, 50, 4)) and used.rows == 13


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("key == 'k3'", lambda row: row["key"] == b"k3"),
        ("key == 'k3' and size > 1100", lambda row: row["key"] == b"k3" and len(row["value"] or b"") > 1100),
        ("key in ('k3', 'k4') and offset < 70", lambda row: row["key"] in (b"k3", b"k4") and row["offset"] < 70),
        ("key == 'k3' or size > 1100", lambda row: row["key"] == b"k3" or len(row["value"] or b"") > 1100),
        ("key != 'k3'", lambda row: row["key"] != b"k3"),
    ],
)
def test_values_beside_keys_that_a_condition_rules_out_are_not_copied(
    tmp_path: Path, where: str, passes: Callable[[dict[str, Any]], bool]
) -> None:
    """Some values are null, some compressed: the rows are the same, and the scan itself has all values."""
    with kafkalog.open(tmp_path / "a-0", "a") as log:
        for base in range(0, 400, 20):
            rows = [(b"k%d" % (n % 10), None if n % 20 == 13 else b"%03d" % n * 400, T) for n in range(base, base + 20)]
            log.append(rows, compression="zstd" if base == 100 else "none")
        everything = pa.table(log.scan(["key", "value", "offset"])).to_pylist()
        scan = log.scan(["value", "offset", "key"], where=where)
        wanted = [row for row in everything if passes(row)]
        assert [{name: row[name] for name in ("key", "value", "offset")} for row in scan.table().to_pylist()] == wanted
        assert [record.offset for record in log.records(where=where)] == [row["offset"] for row in wanted]
        copied = pa.table(scan.scan.with_values_of(scan.selection.keys_of_values)).to_pylist()
        if where.startswith(("key == 'k3' and", "key in")):
            assert {row["key"] for row in copied if row["value"]} == set(scan.selection.keys_of_values or ())
            assert any(row["value"] == b"" for row in copied) and any(row["value"] is None for row in copied)
        elif "or" in where or "!=" in where:
            assert copied == pa.table(scan.scan).to_pylist() and scan.selection.keys_of_values is None
        assert all(row["value"] != b"" for row in pa.table(scan.scan).to_pylist())


def test_records_by_a_condition_on_their_values(path: Path) -> None:
    with kafkalog.open(path) as log:
        found = list(log.records(where="value.ok and value.n < 10", value=decoder(), on_undecodable="null"))
        assert [one.offset for one in found] == [0, 2, 4, 6, 8] and found[0].record == log[0]
        assert [one.value for one in found] == [json.loads(order(n)) for n in (0, 2, 4, 6, 8)]
        assert [one.offset for one in log.records(where="header.trace == 'x'")] == [300]


def test_records_with_decoded_values(path: Path) -> None:
    """Each beside the record as it is stored; a value that does not decode is None, with the reason."""
    with kafkalog.open(path) as log:
        found = list(log.records(value=decoder(), key="string", on_undecodable="null"))
        assert [one.record for one in found] == list(log)
        for one in found:
            is_sound = one.offset % 100 != 99 and one.offset != 7
            assert one.value == (json.loads(order(one.offset)) if is_sound else None)
            assert (one.value_error is None) == (one.offset % 100 != 99) and one.key_error is None
            assert one.key == (one.record.key or b"").decode()
            assert (one.timestamp, one.headers) == (one.record.timestamp, one.record.headers)
        part = list(log.records(98, 101, value=decoder(), key="string", on_undecodable="null"))
        assert part == found[98:101]
        assert [one.value["n"] for one in log.records(-1, value="json")] == [300]
        assert next(log.records(key="string")).value == order(0)


def test_a_condition_beside_decoded_values_takes_the_types_of_its_constants(tmp_path: Path) -> None:
    """A field of several kinds is JSON text in the decoded value, and a number where it is compared with one."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b'{"n": 1, "a": "x"}', b'{"n": "one", "a": "y"}', b'{"n": 7, "a": "z"}'])
        found = list(log.records(where="value.n > 0", value="json"))
        assert [(one.offset, one.value["n"], one.value["a"]) for one in found] == [(0, "1", "x"), (2, "7", "z")]
        assert [one.value for one in log.records(where="offset == 1", key="string")] == [b'{"n": "one", "a": "y"}']


def test_a_value_that_does_not_decode_ends_the_records_behind_those_before_it(path: Path) -> None:
    with kafkalog.open(path) as log:
        offsets = []
        with pytest.raises(InvalidRecord, match="the value does not decode") as error:
            for one in log.records(value=decoder()):
                offsets.append(one.offset)
        assert error.value.offset == 99 and offsets == list(range(99))


def test_decoded_records_around_damage(path: Path) -> None:
    file = path / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    skipped: list[object] = []
    with kafkalog.open(path) as log:
        found = list(log.records(value=decoder(), on_undecodable="null", on_damage="skip", skipped=skipped))
    assert [one.offset for one in found] == list(range(50, 301)) and len(skipped) == 1
    assert found[1].value == json.loads(order(51))


def test_keywords_of_decoders_without_one(path: Path) -> None:
    with kafkalog.open(path) as log:
        with pytest.raises(IllegalArgument, match="schema is given, but nothing is decoded"):
            log.records(schema="{}")
        with pytest.raises(TypeError, match="did you mean value"):
            log.records(valu="json")


def test_the_face_for_asyncio(path: Path) -> None:
    async def offsets() -> list[int]:
        async with await kafkalog.aio.open(path) as log:
            return [record.offset async for record in log.records(where="key == 'k1' and offset < 10")]

    assert asyncio.run(offsets()) == [1, 5, 9]


def test_slices(path: Path) -> None:
    with kafkalog.open(path) as log:
        part = log[100:120]
        assert part.scan(["offset"], where="key == 'k1'").table()["offset"].to_pylist() == [101, 105, 109, 113, 117]
        assert part.table(["offset"], where="key == 'k1'").num_rows == len(part.to_polars(["offset"])) // 4 == 5


def test_whole_numbers_beside_nulls_stay_whole_in_pandas(tmp_path: Path) -> None:
    """As floats, those beyond 2^53 would be other numbers."""
    large = 2**53 + 1
    values = [b'{"id": %d, "in": {"id": %d}, "ids": [%d, null]}' % (large, large, large), b"{}"]
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append(values)
        options = {"value": "json", "project": ["offset", "value.id", "value.in", "value.ids"]}
        for frame in (dirs["orders", 0].to_pandas(**options), dirs["orders"].to_pandas(**options)):
            assert frame["value.id"][0] == frame["value.in"][0]["id"] == frame["value.ids"][0][0] == large
            assert frame["value.id"].isna().tolist() == [False, True]
            assert [str(frame[name].dtype) for name in ("offset", "value.id")] == ["int64", "Int64"]


def test_every_reader(path: Path) -> None:
    with kafkalog.open(path) as log:
        options = {"value": decoder(), "on_undecodable": "null", "where": "value.n >= 298"}
        options["project"] = ["value.n", "time"]
        scan = log.scan(**options)
        assert pa.table(scan)["value.n"].to_pylist() == [298, 300]
        assert duckdb.sql('SELECT sum("value.n") FROM scan').fetchall() == [(598,)]
        assert pl.DataFrame(scan)["value.n"].to_list() == log.to_polars(**options)["value.n"].to_list() == [298, 300]
        assert log.to_pandas(**options)["value.n"].tolist() == log.table(**options)["value.n"].to_pylist() == [298, 300]
        assert pa.schema(scan) == scan.schema
        assert log.to_polars(["offset"])["offset"].to_list() == list(range(301))
        assert log.scan(["key"], where="offset > 500").table().num_rows == 0


def test_keys_and_values_by_name(path: Path) -> None:
    pytest.importorskip("kafkalog.values")
    with kafkalog.open(path) as log:
        scan = log.scan(["key"], key="string", where="key == 'k1' and key_size == 2")
        assert scan.schema.field("key").type == pa.string() and scan.table().num_rows == 75
        with pytest.raises(IllegalArgument, match="key is text and 5 is a whole number"):
            log.scan(key="string", where="key == 5")


def test_a_plain_scan_stays_plain(path: Path) -> None:
    with kafkalog.open(path) as log:
        assert type(log.scan(["key"], where=None, value=None)) is LogScan
    code = f"""
import sys, kafkalog
with kafkalog.open({str(path)!r}) as log:
    list(log.scan(["key"])), list(log.records()), log.table()
assert not {{"pyarrow", "lark", "kafkalog.where.grammar"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


REFUSED = [
    ({"where": "ofset > 5"}, "did you mean offset?"),
    ({"where": "value.n > 5"}, "value is bytes.*value='json'"),
    ({"where": "key > 5"}, "key is bytes and 5 is a whole number"),
    ({"project": ["value.nn"], "value": JsonDecoder(ORDER)}, "value has no field 'nn'.*did you mean n?"),
    ({"project": []}, "no field is given"),
    ({"project": ["key", "key"]}, "given twice"),
    ({"project": {"\ud800": "key"}}, r"'\\ud800' is no name of a column"),
    ({"project": ["key"], "columns": ["key"]}, "both columns and project"),
    ({"on_undecodable": "skip", "value": JsonDecoder(ORDER)}, "on_undecodable is 'skip'"),
    ({"on_undecodable": "null"}, "nothing is decoded"),
    ({"schema": "x.avsc"}, "schema is given, but nothing is decoded"),
    ({"columns": ["vlaue"], "where": "offset > 1"}, "did you mean value?"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_is_refused(path: Path, options: dict[str, object], message: str) -> None:
    with kafkalog.open(path) as log, pytest.raises(IllegalArgument, match=message):
        log.scan(**options)


def test_types_that_are_refused(path: Path) -> None:
    with kafkalog.open(path) as log:
        for options in ({"where": 5}, {"project": "key"}, {"project": {5: "key"}}, {"value": 5}):
            with pytest.raises(TypeError):
                log.scan(**options)
        with pytest.raises(TypeError, match="did you mean where?"):
            log.scan(wher="offset > 5")
        with pytest.raises(TypeError, match="did you mean where?"):
            log.records(wher="offset > 5")


def test_damage_comes_after_the_rows_before_it(path: Path) -> None:
    segment = path / f"{0:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:-40])
    with kafkalog.open(path) as log:
        rows = 0
        with pytest.raises(CorruptRecord):
            for batch in log.scan(["offset"], where="key like 'k%'"):
                rows += batch.num_rows
        assert rows == 300


def test_a_sample_of_large_values_has_few_of_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.log.typed_scan.SAMPLE_BYTES", 500)
    with kafkalog.open(path) as log:
        found = first_values([log.scan(["value"], batch_rows=10)] * 2, "value")
    assert 500 <= sum(map(len, found)) < 1500


@pytest.mark.parametrize("form", ["to_polars", "to_pandas", "table"])
def test_what_does_not_decode_is_the_same_error_in_every_form(path: Path, form: str) -> None:
    with kafkalog.open_dirs(path.parent) as dirs:
        for scan in (dirs["orders", 0].scan(value=decoder()), dirs.scan("orders", value=decoder(), order="time")):
            with pytest.raises(InvalidRecord, match="the value does not decode") as caught:
                getattr(scan, form)()
            assert caught.value.offset == 99
