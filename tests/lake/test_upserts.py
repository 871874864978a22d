"""`sync_topic(upsert=True)`: the table is the compacted topic, compared with a dict."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import values
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake import delta, iceberg_files, sync
from kafkalog.lake.rows import Piece
from kafkalog.lake.sync import follow_topic, sync_topic
from kafkalog.lake.upserts import Latest
from tests.lake.tables import FORMATS, Lake

Step = tuple[str, int, bytes, Any]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 1), st.sampled_from([b"a", b"b", b"c", b""]), st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.integers(0, 1), st.sampled_from([b"a", b"b", b"c"]), st.none()),
        st.tuples(st.just("sync"), st.just(0), st.just(b""), st.none()),
        st.tuples(st.just("clean"), st.integers(0, 1), st.just(b""), st.none()),
    ),
    max_size=25,
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partition_by", [(), ("partition",)])
@settings(deadline=None, max_examples=15)
@given(steps=STEPS)
def test_the_table_is_the_dict_of_the_latest_values(
    new_path: Callable[[str], Path], format: str, partition_by: tuple[str, ...], steps: list[Step]
) -> None:
    root = new_path("upserts")
    lake = Lake(root / "lake", format)
    model: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    with kafkalog.open_dirs(root / "data", "a") as dirs:
        dirs.create_topic("orders", 2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 1})
        for kind, number, key, value in [*steps, ("sync", 0, b"", None)]:
            if kind == "sync":
                sync_topic(dirs, "orders", lake.target, upsert=True, partition_by=partition_by)
                check(lake, model)
            elif kind == "clean":
                dirs.clean("orders", number)
            else:
                offset = dirs["orders", number].append([(key, value)]).last_offset
                if kind == "set":
                    model[number, key] = offset, value
                else:
                    model.pop((number, key), None)


def check(lake: Lake, model: dict[tuple[int, bytes], tuple[int, bytes]]) -> None:
    if not lake.exists():
        assert not model
        return
    rows = lake.read().to_pylist()
    assert {(one["partition"], one["key"]): (one["offset"], one["value"]) for one in rows} == model
    assert len(rows) == len(model)


def append(data: Path, rows: list[Any]) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        if "orders" not in dirs.topics:
            dirs.create_topic("orders", 1)
        dirs["orders", 0].append(rows)


def test_more_rows_than_one_commit_holds(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "UPSERT_BYTES", 1 << 10)
    for start in range(0, 200, 50):
        append(tmp_path / "data", [(b"k%d" % (n % 40), b"v%d" % n) for n in range(start, start + 50)])
    commits = sync_topic(tmp_path / "data", "orders", lake.target, upsert=True)
    assert sum(one.records for one in commits) == 200 and len(commits) > 1
    assert sorted(lake.places()) == [(0, n) for n in range(160, 200)]


def test_only_files_with_replaced_keys_are_written_again(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, [(b"a", b"1"), (b"b", b"1")])
    sync_topic(data, "orders", lake.target, upsert=True)
    append(data, [(b"c", b"1")])
    sync_topic(data, "orders", lake.target, upsert=True)
    before = set(lake.files())
    append(data, [(b"c", None), (b"d", b"1")])
    (commit,) = sync_topic(data, "orders", lake.target, upsert=True)
    assert (commit.removed, commit.files) == (1, 1)
    assert len(before & set(lake.files())) == 1
    assert [one["key"] for one in lake.read().to_pylist()] == [b"a", b"b", b"d"]


def test_a_value_that_does_not_decode_is_no_tombstone(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, [(b"a", b'{"id": 1}'), (b"b", b"{no"), (b"c", b'{"id": 2}'), (b"c", None)])
    sync_topic(data, "orders", lake.target, upsert=True, value="json", on_undecodable="null")
    rows = [(one["key"], one["value"], bool(one["value_error"])) for one in lake.read().to_pylist()]
    assert rows == [(b"a", {"id": 1}, False), (b"b", None, True)]


def test_what_cannot_be_an_identity(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, [(b"a", b"1"), b"2"])
    with pytest.raises(InvalidRecord, match="the record has no key") as failure:
        sync_topic(data, "orders", lake.target, upsert=True)
    assert failure.value.offset == 1
    with pytest.raises(IllegalArgument, match="an upsert needs the column key"):
        sync_topic(data, "orders", lake.target, upsert=True, project=["partition", "offset"])
    with pytest.raises(IllegalArgument, match="an upsert needs the partition in its column, which has offset"):
        sync_topic(data, "orders", lake.target, upsert=True, project={"key": "key", "partition": "offset"})
    append(data, [(b"c", b"3"), (b"\xff", b"4")])
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].delete_before(2)
    other = Lake(tmp_path / "other", lake.format)
    with pytest.raises(InvalidRecord, match="the key does not decode") as failure:
        sync_topic(data, "orders", other.target, upsert=True, key="string", on_undecodable="null")
    assert failure.value.offset == 3 and failure.value.hint


@pytest.mark.parametrize(
    ("schema", "kind"),
    [({"type": "number"}, "double"), ({"properties": {"id": {"type": "integer"}}}, "struct"),
     ({"type": "array", "items": {"type": "string"}}, "list")],
)  # fmt: skip
def test_keys_that_cannot_be_compared(tmp_path: Path, lake: Lake, schema: dict[str, Any], kind: str) -> None:
    decoder = values.decoder("json", schema=schema)
    append(tmp_path / "data", [(b"1", b"1")])
    with pytest.raises(IllegalArgument, match=f"an upsert cannot compare keys of {kind}") as failure:
        sync_topic(tmp_path / "data", "orders", lake.target, upsert=True, key=decoder)
    assert failure.value.hint == "leave keys as bytes" and not lake.stored()


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [(sync_topic, {"upserts": True}, "upsert"), (sync_topic, {"partitions_by": "offset"}, "partition_by"),
     (follow_topic, {"commit_every": 1}, "commit_every_s"), (sync_topic, {"key_schema": {}}, "schema"),
     (sync_topic, {"zz": 1}, None)],
)  # fmt: skip
def test_a_keyword_that_a_sync_does_not_have(
    tmp_path: Path, lake: Lake, call: Any, given: dict[str, Any], meant: str | None
) -> None:
    append(tmp_path / "data", [(b"a", b"1")])
    words = f"did you mean {meant}[?]" if meant else "it takes "
    with pytest.raises(TypeError, match=rf"{call.__name__}\(\) takes no keyword '{[*given][0]}': {words}"):
        list(call(tmp_path / "data", "orders", lake.target, value="json", **given))
    assert not lake.exists()
    with pytest.raises(IllegalArgument, match="a sync takes no where"):
        list(call(tmp_path / "data", "orders", lake.target, where="key = 'a'"))


def test_a_key_in_any_part_of_a_large_file_is_replaced(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read in parts of so many rows."""
    for module in (delta, iceberg_files):
        monkeypatch.setattr(module, "_READ_ROWS", 2)
    data = tmp_path / "data"
    append(data, [(b"%d" % n, b"") for n in range(6)])
    sync_topic(data, "orders", lake.target, upsert=True)
    for key in (b"0", b"5"):
        append(data, [(key, b"new")])
        sync_topic(data, "orders", lake.target, upsert=True)
    found = [(one["key"], one["value"]) for one in lake.read().to_pylist()]
    assert found == [*((b"%d" % n, b"") for n in range(1, 5)), (b"0", b"new"), (b"5", b"new")]


def test_rows_of_others_without_a_partition_or_a_key_stay(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, [(b"a", b"1"), (b"b", b"1")])
    sync_topic(data, "orders", lake.target, upsert=True)
    lake.append(pa.table({"partition": pa.array([None, 0, 1], pa.int32()), "key": [b"a", None, b"a"]}))
    append(data, [(b"a", b"2"), (b"b", None)])
    sync_topic(data, "orders", lake.target, upsert=True)
    found = {(one["partition"], one["key"], one["value"]) for one in lake.read().to_pylist()}
    assert found == {(None, b"a", None), (0, None, None), (1, b"a", None), (0, b"a", b"2")}


def test_columns_that_came_later_are_null_in_rows_that_are_written_again(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    typed: dict[str, Any] = {"upsert": True, "value": "json"}
    append(data, [(b"a", b'{"id": 1}'), (b"b", b'{"id": 2}')])
    sync_topic(data, "orders", lake.target, schema=fields_of(id="integer"), **typed)
    append(data, [(b"b", b'{"id": 3, "by": "x"}')])
    sync_topic(data, "orders", lake.target, schema=fields_of(id="integer", by="string"), **typed)
    assert lake.read()["value"].to_pylist() == [{"id": 1, "by": None}, {"id": 3, "by": "x"}]


def fields_of(**types: str) -> dict[str, Any]:
    return {"properties": {name: {"type": kind} for name, kind in types.items()}}


def test_rows_that_somebody_else_deleted_stay_deleted(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    sync_topic(data, "orders", lake.target, upsert=True)
    if lake.format == "iceberg":
        lake.loaded().delete("offset = 0")
    else:
        lake.loaded().delete("\"offset\" = 0")
    append(data, [(b"b", b"2")])
    sync_topic(data, "orders", lake.target, upsert=True)
    assert lake.read().select(["key", "value"]) == pa.table({"key": [b"c", b"b"], "value": [b"1", b"2"]})


def test_values_above_2_gib_in_a_partition() -> None:
    """They do not fit one Arrow array. Their memory is never touched, so it takes no room."""
    size = 1100 << 20
    ends = pa.py_buffer(np.array([0, size], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(np.zeros(size, np.uint8))])
    latest = Latest()
    for offset in range(4):
        columns = {"partition": [0], "offset": [offset], "key": [b"k%d" % offset], "value": value}
        rows = pa.record_batch(columns)
        latest.add(Piece(rows, rows, 0, offset + 1), rows)
    (found,) = latest.latest().values()
    assert found.column("offset").to_pylist() == [0, 1, 2, 3]
    assert latest.keys()[0].to_pylist() == [b"k0", b"k1", b"k2", b"k3"]
