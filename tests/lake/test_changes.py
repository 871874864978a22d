"""Snapshots of tables as loads find them: those that a load or an upsert must refuse, and those with nothing new."""

import json
import struct
from base64 import b85encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)

import kafkalog
from kafkalog.errors import FormatError, IllegalState, StorageError
from kafkalog.lake.compact import compact_table
from kafkalog.lake.sync import sync_topic
from kafkalog.lake.table_load import load_table
from tests.lake.loads import COLUMNS, SCHEMA, rows
from tests.lake.tables import Lake, write

Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def load(lake: Lake, data: Path) -> list[int]:
    return [one.records for one in load_table(lake.target, data, "back", columns=COLUMNS)]


def loaded_once(root: Path, format: str) -> Lake:
    """A table of three rows that is loaded into `data`."""
    lake = Lake(root / "lake", format)
    lake.create(SCHEMA)
    lake.append(rows(0, 3))
    assert load(lake, root / "data") == [3]
    return lake


def path_of(lake: Lake) -> str:
    return "iceberg:shop.orders" if lake.format == "iceberg" else lake.target


def change_metadata(lake: Lake, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the newest metadata file of an Iceberg table."""
    path = Path(lake.loaded().metadata_location.removeprefix("file://"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def commit_of(lake: Lake, version: int) -> Path:
    return lake.directory / "orders" / "_delta_log" / f"{version:020}.json"


def hide_a_row(lake: Lake) -> None:
    """Delete a row as engines do that leave the data file as it is."""
    if lake.format == "iceberg":
        hide_in_iceberg(lake)
    else:
        hide_in_delta(lake)


def hide_in_delta(lake: Lake) -> None:
    version = lake.loaded().version()
    actions = [json.loads(line) for line in commit_of(lake, version).read_text().splitlines()]
    add = next(one["add"] for one in actions if "add" in one)
    bitmap = struct.pack("<IQIIIHHIHH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0, 0)  # row 0; padded to words
    vector = {
        "storageType": "i", "pathOrInlineDv": b85encode(bitmap).translate(bytes.maketrans(B85, Z85)).decode(),
        "sizeInBytes": len(bitmap) - 2, "cardinality": 1,
    }  # fmt: skip
    features = ["deletionVectors"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    lines: list[dict[str, Any]] = [
        {"protocol": versions}, {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": add | {"deletionVector": vector}},
    ]  # fmt: skip
    commit_of(lake, version + 1).write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert pa.table(lake.loaded().deletion_vectors()).num_rows == 1


class DeleteManifest(ManifestWriterV2):
    """pyiceberg (0.12) writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def hide_in_iceberg(lake: Lake) -> None:
    table = lake.loaded()
    snapshot, place = table.current_snapshot(), table.location()
    before = table.scan().to_arrow().num_rows
    task = next(iter(table.scan().plan_files()))
    path = Path(f"{place.removeprefix('file://')}/data/deletes.parquet")
    pq.write_table(pa.table({"file_path": [task.file.file_path], "pos": pa.array([0], pa.int64())}), path)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"file://{path}", file_format=FileFormat.PARQUET,
        partition=task.file.partition, record_count=1, file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot.snapshot_id, data_file=file,
        sequence_number=snapshot.sequence_number, file_sequence_number=snapshot.sequence_number,
    )  # fmt: skip
    output = table.io.new_output(f"{place}/metadata/deletes.avro")
    with DeleteManifest(table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as manifest:
        manifest.add_entry(entry)
    listed = f"{place}/metadata/with-deletes.avro"
    output = table.io.new_output(listed)
    with write_manifest_list(
        2, output, snapshot.snapshot_id, None, snapshot.sequence_number, "null"
    ) as manifests:
        manifests.add_manifests([*snapshot.manifests(table.io), manifest.to_manifest_file()])
    change_metadata(lake, lambda content: content["snapshots"][-1].update({"manifest-list": listed}))
    assert lake.loaded().scan().to_arrow().num_rows == before - 1


def test_rows_that_are_hidden_are_not_loaded(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    for first in (0, 3):
        lake.append(rows(first, 3))
    hide_a_row(lake)
    with pytest.raises(IllegalState, match=r"delet\w+ \w+, which a load does not apply") as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path == path_of(lake)
    assert not [*(tmp_path / "data").glob("back-*")]


def test_rows_that_an_append_hides_stop_a_load(tmp_path: Path) -> None:
    lake = loaded_once(tmp_path, "iceberg")
    lake.append(rows(3, 3))
    hide_in_iceberg(lake)
    with pytest.raises(IllegalState, match=r"removed or changed rows \(append with delete files\)") as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path == path_of(lake)
    lake.append(rows(6, 3))
    with pytest.raises(IllegalState, match=r"removed or changed rows \(append with delete files\)"):
        load(lake, tmp_path / "data")


@pytest.mark.parametrize("work", ["upsert", "compact"])
def test_rows_that_are_hidden_are_not_written_again(lake: Lake, tmp_path: Path, work: str) -> None:
    for first in (0, 3):
        write(tmp_path / "data", {0: 3}, first)
        sync_topic(tmp_path / "data", "orders", lake.target, upsert=True)
    hide_a_row(lake)
    write(tmp_path / "data", {0: 1}, 6)
    files = set(lake.stored())
    with pytest.raises(IllegalState, match=r"delet\w+ \w+, which an upsert cannot keep"):
        if work == "upsert":
            sync_topic(tmp_path / "data", "orders", lake.target, upsert=True)
        else:
            compact_table(lake.target)
    assert set(lake.stored()) == files


MALFORMED = [
    b"{", b"3", b"[]", b"null", b'"add"', b"\xff", b"[" * 100_000, b'{"add": 3}', b'{"add": {}}',
    b'{"add": {"path": 3, "dataChange": true}}', b'{"add": {"path": "a"}}', b'{"remove": []}', b'{"remove": {}}',
    b'{"commitInfo": 3}',
]  # fmt: skip


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: ascii(line[:30]))
def test_a_malformed_commit_is_an_error(tmp_path: Path, line: bytes) -> None:
    """A commit before a checkpoint: Delta's library does not read it again."""
    lake = loaded_once(tmp_path, "delta")
    lake.append(rows(3, 3))
    lake.append(rows(6, 3))
    lake.loaded().create_checkpoint()
    commit_of(lake, 2).write_bytes(b"%s\n%s\n" % (line, commit_of(lake, 2).read_bytes()))
    with pytest.raises(FormatError, match=r"_delta_log/0{19}2.json is malformed: \w") as error:
        load(lake, tmp_path / "data")
    assert error.value.path == lake.target and error.value.hint


def test_a_commit_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    lake = loaded_once(tmp_path, "delta")
    for first in (3, 6):
        lake.append(rows(first, 3))
    lake.loaded().create_checkpoint()
    commit_of(lake, 2).unlink()
    commit_of(lake, 2).mkdir()
    with pytest.raises(StorageError, match="cannot read the table's log") as error:
        load(lake, tmp_path / "data")
    assert error.value.path == lake.target


def test_files_that_cannot_be_listed_are_an_error(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 3))
    if lake.format == "iceberg":
        Path(lake.loaded().current_snapshot().manifest_list.removeprefix("file://")).unlink()
    else:
        hide_in_delta(lake)
        actions = [json.loads(line) for line in commit_of(lake, 2).read_text().splitlines()]
        actions[2]["add"]["stats"] = None  # without the number of rows, no vector is read
        commit_of(lake, 2).write_text("".join(f"{json.dumps(one)}\n" for one in actions))
    with pytest.raises(StorageError, match="cannot list the table's files") as error:
        load(lake, tmp_path / "data")
    assert error.value.path == path_of(lake)


def test_actions_that_are_null_are_none(tmp_path: Path) -> None:
    """Some writers name all kinds of actions in each line."""
    lake = loaded_once(tmp_path, "delta")
    lake.append(rows(3, 2))
    kinds = dict.fromkeys(("add", "remove", "metaData", "protocol", "txn", "cdc"))
    lines = [kinds | json.loads(line) for line in commit_of(lake, 2).read_text().splitlines()]
    commit_of(lake, 2).write_text("".join(f"{json.dumps(line)}\n\n" for line in lines))
    assert load(lake, tmp_path / "data") == [2]


def test_a_removal_names_its_operation(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 3))
    load(lake, tmp_path / "data")
    lake.loaded().delete("id = 1")
    number = str(lake.loaded().current_snapshot().snapshot_id) if lake.format == "iceberg" else "2"
    operation = "overwrite" if lake.format == "iceberg" else "DELETE"
    with pytest.raises(IllegalState, match=rf"snapshot {number} removed or changed rows \({operation}\)") as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path == path_of(lake)
    if lake.format == "iceberg":
        change_metadata(lake, lambda content: content["snapshots"][-1].pop("summary"))
    else:
        lines = [json.loads(line) for line in commit_of(lake, 2).read_text().splitlines()]
        commit_of(lake, 2).write_text("".join(f"{json.dumps(one)}\n" for one in lines if "commitInfo" not in one))
    with pytest.raises(IllegalState, match=rf"snapshot {number} removed or changed rows \(unknown\)"):
        load(lake, tmp_path / "data")


def expire_in_delta(lake: Lake) -> str:
    lake.loaded().create_checkpoint()
    commit_of(lake, 2).unlink()
    return "snapshot 2 was expired before all of it was loaded"


def expire_in_iceberg(lake: Lake) -> str:
    first, second, last = (one.snapshot_id for one in lake.loaded().snapshots())
    lake.loaded().maintenance.expire_snapshots().by_ids([first, second]).commit()
    return f"rows of snapshot {first}, which is not among those before the newest, {last}: it was expired"


@pytest.mark.parametrize("expire", [expire_in_delta, expire_in_iceberg])
def test_snapshots_that_were_expired_stop_a_load(tmp_path: Path, expire: Callable[[Lake], str]) -> None:
    lake = loaded_once(tmp_path, expire.__name__.rpartition("_")[2])
    for first in (3, 6):
        lake.append(rows(first, 3))
    message = expire(lake)
    with pytest.raises(IllegalState, match=message) as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path
    assert sum(load(lake, tmp_path / "another")) == 9


def test_a_snapshot_that_was_expired_while_it_was_loaded(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "iceberg")
    lake.create(SCHEMA)
    for first in (0, 3):
        lake.append(rows(first, 3))
    loading = load_table(lake.target, tmp_path / "data", "back", columns=COLUMNS, batch_bytes=1)
    assert next(loading).records == 3
    loading.close()
    number = lake.loaded().current_snapshot().snapshot_id
    lake.append(rows(6, 3))
    lake.loaded().maintenance.expire_snapshots().by_ids([number]).commit()
    with pytest.raises(IllegalState, match=f"snapshot {number} was expired before all of it was loaded") as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path == path_of(lake)


def test_a_table_with_fewer_versions_than_the_topic(tmp_path: Path) -> None:
    lake = loaded_once(tmp_path, "delta")
    lake.append(rows(3, 3))
    assert load(lake, tmp_path / "data") == [3]
    assert load(lake, tmp_path / "data") == []
    commit_of(lake, 2).unlink()
    with pytest.raises(IllegalState, match="has the rows of version 2, and the table ends at 1") as error:
        load(lake, tmp_path / "data")
    assert error.value.hint and error.value.path == lake.target


def test_files_that_were_only_rewritten_have_nothing_new(lake: Lake, tmp_path: Path) -> None:
    for first in (0, 3):
        write(tmp_path / "source", {0: 3}, first)
        sync_topic(tmp_path / "source", "orders", lake.target)
    columns = {"key": "key", "value": "value"}

    def more() -> list[int]:
        return [one.records for one in load_table(lake.target, tmp_path / "data", "back", columns=columns)]

    assert sum(more()) == 6
    (commit,) = compact_table(lake.target)
    assert (commit.removed, commit.files) == (2, 1)
    assert more() == []
    write(tmp_path / "source", {0: 2}, 6)
    sync_topic(tmp_path / "source", "orders", lake.target)
    assert more() == [2]
    for first in (8, 10):
        write(tmp_path / "source", {0: 2}, first)
        sync_topic(tmp_path / "source", "orders", lake.target)
    assert compact_table(lake.target)
    assert more() == [2, 2], "the snapshots of which the files are replaced since"


def test_files_of_partitions_with_special_characters(tmp_path: Path) -> None:
    """Delta's log has their paths as URLs, and their columns only there."""
    lake = Lake(tmp_path / "lake", "delta")
    names = ["a/b", "100 %", "é=1", "?#&+", "%25"]
    for number in range(2):
        new = rows(number * 5, 5).set_column(1, "name", pa.array(names))
        write_deltalake(lake.directory / "orders", new, mode="append", partition_by=["name"])
        assert sum(load(lake, tmp_path / "data")) == 5
    with kafkalog.open_dirs(tmp_path / "data") as dirs:
        keys = [bytes(record.key or b"").decode() for log in dirs.logs("back") for record in log]
    assert sorted(keys) == sorted(names * 2)
