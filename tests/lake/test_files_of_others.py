"""Data files of other writers, whose columns are not those of the table: loads find each value, or are refused."""

import json
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import kafkalog
from kafkalog.errors import IllegalState
from kafkalog.lake.compact import compact_table
from kafkalog.lake.iceberg_files import named_by_ids
from kafkalog.lake.sync import sync_topic
from kafkalog.lake.table_load import load_table
from tests.lake.tables import Lake, write

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int32()})
TIME = pa.timestamp("us", "UTC")
ROWS = pa.table({"word": ["a", "b"], "n": pa.array([1, 2], pa.int32())})


@pytest.fixture
def iceberg(tmp_path: Path) -> Lake:
    found = Lake(tmp_path / "lake", "iceberg")
    found.create(SCHEMA)
    return found


def loaded(lake: Lake, data: Path, **given: Any) -> list[Any]:
    """The values of a topic that is loaded from the table."""
    list(load_table(lake.target, data, "back", **given))
    with kafkalog.open_dirs(data) as dirs:
        return [record.value and bytes(record.value) for log in dirs.logs("back") for record in log]


def rows_of(lake: Lake, data: Path) -> list[Any]:
    return [json.loads(value) for value in loaded(lake, data, value="json")]


def add_file(lake: Lake, rows: pa.Table) -> None:
    """Add a file without field ids, which sets the table's mapping of names."""
    path = lake.directory / f"{len(lake.stored())}-of-another.parquet"
    pq.write_table(rows, path)
    lake.loaded().add_files([str(path)])


def drop_column(lake: Lake, name: str) -> None:
    """Write the files again without a column."""
    for path in lake.stored():
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns([name]), path)


def test_a_renamed_column_of_files_without_ids(iceberg: Lake, tmp_path: Path) -> None:
    add_file(iceberg, ROWS)
    with iceberg.loaded().update_schema() as update:
        update.rename_column("word", "text")
    assert rows_of(iceberg, tmp_path / "data") == [{"text": "a", "n": 1}, {"text": "b", "n": 2}]


def test_names_are_mapped_at_all_levels() -> None:
    def field(name: str, kind: pa.DataType, id: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(id)})

    point = pa.struct([field("across", pa.int32(), 3), field("up", pa.int32(), 4)])
    wanted = [
        field("points", pa.list_(field("element", point, 2)), 1),
        field("places", pa.map_(field("key", pa.string(), 6).with_nullable(False), field("value", point, 7)), 5),
    ]
    names = pa.struct([("x", pa.int32()), ("y", pa.int32()), ("z", pa.int32())])
    stored = [pa.field("points", pa.list_(pa.field("item", names))), pa.field("places", pa.map_(pa.string(), names))]
    from pyiceberg.table.name_mapping import MappedField

    def mapped(names: list[str], id: int | None, *fields: Any) -> Any:
        return MappedField(**{"names": names, "field-id": id, "fields": fields})

    parts = mapped(["x"], 3), mapped(["y", "up"], 4), mapped(["z"], None)
    mapping = [
        mapped(["points"], 1, mapped(["element"], 2, *parts)),
        mapped(["places"], 5, mapped(["key"], 6), mapped(["value"], 7, *parts)),
        mapped(["none"], None),
    ]
    list_field, map_field = (named_by_ids(one, wanted, mapping) for one in stored)
    for found in (list_field.type.value_type, map_field.type.item_type):
        assert [one.name for one in found] == ["across", "up", "\0dropped: z"]
    for name in ("other", "none"):
        assert named_by_ids(pa.field(name, pa.int32()), wanted, mapping).name == f"\0dropped: {name}"
    assert named_by_ids(pa.field("points", pa.int32()), wanted).name == "points", "there is no mapping"
    assert named_by_ids(field("points", pa.int32(), 5), wanted, mapping).name == "places", "it has an id"
    for name, kind in (("points", names), ("points", pa.map_(pa.string(), names)), ("places", names)):
        assert named_by_ids(pa.field(name, kind), wanted, mapping).type == kind, "not of the table's kind"


def test_files_without_the_column_of_their_partition(iceberg: Lake, tmp_path: Path) -> None:
    with iceberg.loaded().update_spec() as update:
        update.add_field("n", IdentityTransform(), "n")
    iceberg.append(ROWS)
    drop_column(iceberg, "n")
    found = sorted(rows_of(iceberg, tmp_path / "data"), key=str)
    assert found == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]


def test_the_day_of_a_partition_is_no_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "iceberg")
    write(tmp_path / "from", {0: 2})
    sync_topic(tmp_path / "from", "orders", lake.target, partition_by=["day(timestamp)"])
    drop_column(lake, "timestamp")
    assert [row["timestamp"] for row in rows_of(lake, tmp_path / "data")] == [None, None]


def test_files_without_any_of_the_columns_have_nulls(iceberg: Lake, tmp_path: Path) -> None:
    iceberg.append(ROWS)
    iceberg.add_column(pa.field("late", pa.string()))
    iceberg.append(pa.table({"late": ["x"]}))
    assert sorted(loaded(iceberg, tmp_path / "data", columns={"value": "late"}), key=str) == [None, None, b"x"]


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_default_for_rows_before_the_column(iceberg: Lake, tmp_path: Path, is_inside: bool) -> None:
    iceberg.append(ROWS)
    if is_inside:
        iceberg.add_column(pa.field("at", pa.struct([("x", pa.int64())])))
    else:
        with iceberg.loaded().update_schema() as update:
            update.add_column("late", LongType())
    iceberg.upgrade(
        lambda fields: (fields[-1]["type"]["fields"][0] if is_inside else fields[-1]).update({"initial-default": 42})
    )
    if is_inside:
        with pytest.raises(IllegalState, match=r"at\.x has a default for rows that were written before it"):
            rows_of(iceberg, tmp_path / "data")
    else:
        expected = [{"word": "a", "n": 1, "late": 42}, {"word": "b", "n": 2, "late": 42}]
        assert rows_of(iceberg, tmp_path / "data") == expected


@pytest.mark.parametrize("write_again", [sync_topic, partial(sync_topic, upsert=True)])
def test_a_table_that_was_upgraded_gets_no_file(tmp_path: Path, write_again: Any) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    for first in (0, 5):
        write(data, {0: 5}, first)
        sync_topic(data, "orders", lake.target)
    lake.upgrade()
    write(data, {0: 5}, 10)
    with pytest.raises(IllegalState, match="format version 3, which pyiceberg only reads"):
        write_again(data, "orders", lake.target)
    with pytest.raises(IllegalState, match="format version 3, which pyiceberg only reads"):
        compact_table(lake.target)
    assert len(lake.stored()) == len(lake.files()) == 2


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_times_of_96_bits_of_all_years(tmp_path: Path, format: str) -> None:
    rows = pa.table({"at": pa.array([datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)], TIME)})
    lake = Lake(tmp_path / "lake", format)
    lake.create(rows.schema)
    lake.append(rows)
    (path,) = lake.stored()
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    assert [row["at"][:10] for row in rows_of(lake, tmp_path / "data")] == ["9999-12-31", "0001-01-01"]


@pytest.mark.parametrize("mode", ["name", "none"])
def test_a_delta_table_with_other_names_in_its_files(tmp_path: Path, mode: str) -> None:
    lake = Lake(tmp_path / "lake", "delta")
    log = lake.directory / "orders" / "_delta_log"
    log.mkdir(parents=True)
    names = {"word": "col-1", "n": "col-2"} if mode == "name" else {"word": "word", "n": "n"}
    pq.write_table(ROWS.rename_columns([*names.values()]), log.parent / "p.parquet")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {
            "delta.columnMapping.id": number, "delta.columnMapping.physicalName": names[name],
        }} for number, (name, kind) in enumerate([("word", "string"), ("n", "integer")], 1)
    ]  # fmt: skip
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {
            "id": "1", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 1,
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "2"},
        }},
        {"add": {
            "path": "p.parquet", "partitionValues": {}, "size": os.path.getsize(log.parent / "p.parquet"),
            "modificationTime": 1, "dataChange": True,
        }},
    ]  # fmt: skip
    (log / f"{0:020}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    if mode == "none":
        assert rows_of(lake, tmp_path / "data") == ROWS.to_pylist()
        return
    with pytest.raises(IllegalState, match=r"in its files are mapped \(delta.columnMapping.mode is name\)"):
        rows_of(lake, tmp_path / "data")
