"""`sync_topic`: every record of a topic is in the table once, with its columns, however often it runs."""

import io
import json
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    InvalidRecord,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from kafkalog.lake.failures import TableMismatch
from kafkalog.lake.sync import follow_topic, sync_topic
from tests.builder import R, batch
from tests.commands import kafkalog as command
from tests.commands import ok
from tests.lake.tables import FORMATS, Lake, T, logged, order, query, write
from tests.tiny_disk import run_on_tiny_disk
from tests.transactional import made


def expected(data: Path, partitions: int = 2) -> list[tuple[Any, ...]]:
    return [
        (number, one.offset, one.key, one.value, datetime.fromtimestamp(one.timestamp / 1000, UTC), list(one.headers))
        for number in range(partitions)
        for one in logged(data / f"orders-{number}")
    ]


def found(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [
        (
            one["partition"], one["offset"], one["key"], one["value"], one["timestamp"],
            [(header["key"], header["value"]) for header in one["headers"]],
        )
        for one in rows.to_pylist()
    ]  # fmt: skip


def test_every_record_with_all_its_columns(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 100, 1: 50})
    (commit,) = sync_topic(data, "orders", lake.target)
    assert (commit.records, commit.files, commit.next_offsets) == (150, 1, {0: 100, 1: 50})
    assert found(lake.read()) == expected(data)


def test_sums_of_typed_columns_are_those_of_the_log(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 300, 1: 200})
    sync_topic(data, "orders", lake.target, value="json", key="string")
    documents = [json.loads(row[3]) for row in expected(data)]
    columns = "count(*), sum(value.id), sum(value.total), count(DISTINCT key), min(value.tags[1])"
    sums = query(lake.read(), f"SELECT {columns} FROM rows")
    assert sums == [(500, sum(one["id"] for one in documents), sum(one["total"] for one in documents), 5, "t0")]


def test_a_second_sync_adds_only_what_is_new(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10, 1: 5})
    sync_topic(data, "orders", lake.target)
    before = lake.snapshots()
    assert sync_topic(data, "orders", lake.target) == []
    assert lake.snapshots() == before
    write(data, {0: 0, 1: 7}, first=5)
    (commit,) = sync_topic(data, "orders", lake.target)
    assert (commit.records, commit.next_offsets) == (7, {0: 10, 1: 12})
    assert found(lake.read()) == expected(data)


def test_a_partition_that_is_added_later(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.alter_topic("orders", partitions=2)
    write(data, {1: 4})
    sync_topic(data, "orders", lake.target)
    assert found(lake.read()) == expected(data)


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None, max_examples=12)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["plain", "data", "data", "abort", "commit", "roll"]), st.integers(1, 3), st.integers(1, 5)
        ),
        min_size=1, max_size=25,
    ),
    cut=st.integers(0, 25),
)  # fmt: skip
def test_only_committed_records_up_to_the_last_stable_offset(
    new_path: Callable[[str], Path], format: str, events: list[Any], cut: int
) -> None:
    """A sync in the middle and one at the end: what was open between them comes with the second, in order."""
    root = new_path("events")
    partition = root / "data" / "orders-0"
    partition.mkdir(parents=True)
    lake = Lake(root / "lake", format)
    for part in (events[:cut], events):
        for file in partition.iterdir():
            file.unlink()
        log = made(part)
        log.write(partition)
        sync_topic(root / "data", "orders", lake.target)
        wanted = log.committed()
        assert ([offset for _, offset in lake.places()] if lake.exists() else []) == wanted


def test_rows_are_gathered_to_the_size_of_files(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1, {"retention.ms": -1})
        for start in range(40):
            dirs["orders", 0].append([(b"%d" % n, random.Random(500 * start + n).randbytes(64)) for n in range(500)])
    commits = sync_topic(data, "orders", lake.target, target_file_bytes=128 << 10)
    sizes = [size for _, size in lake.files()]
    assert len(sizes) == sum(one.files for one in commits) > 5
    assert sum(128 << 10 <= size <= 256 << 10 for size in sizes) >= len(sizes) - len(commits)
    assert lake.places() == [(0, n) for n in range(20_000)]


def test_a_backfill_is_committed_in_parts(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 20_000, 1: 20_000})
    commits = sync_topic(data, "orders", lake.target, target_file_bytes=1 << 10)
    assert len(commits) > 1
    assert [one.next_offsets for one in commits][-1] == {0: 20_000, 1: 20_000}
    assert len(lake.places()) == len(set(lake.places())) == 40_000


@pytest.mark.parametrize("words", [["day(timestamp)"], ["hour(timestamp)", "partition"], ["value.tags_"], ["key"]])
def test_partitions_of_the_table(tmp_path: Path, lake: Lake, words: list[str]) -> None:
    data = tmp_path / "data"
    write(data, {0: 60, 1: 30})
    if words == ["value.tags_"]:
        with pytest.raises(IllegalArgument, match=r"value\.tags_: there is no such column"):
            sync_topic(data, "orders", lake.target, value="json", partition_by=words)
        words = ["value.id"]
    sync_topic(data, "orders", lake.target, value="json", key="string", partition_by=words)
    write(data, {0: 10}, first=60)
    sync_topic(data, "orders", lake.target, value="json", key="string")
    kept = [
        (row[0], row[1], row[2].decode(), json.loads(row[3])["id"], row[4].date(), row[4].hour)
        for row in expected(data)
    ]
    rows = lake.read().to_pylist()
    assert [
        (one["partition"], one["offset"], one["key"], one["value"]["id"], time.date(), time.hour)
        for one in rows
        for time in [one["timestamp"]]
    ] == kept
    groups = {
        "day(timestamp)": {row[4] for row in kept}, "hour(timestamp)": {row[:1] + row[4:] for row in kept},
        "value.id": {row[3] for row in kept}, "key": {row[2] for row in kept},
    }  # fmt: skip
    assert len({path for path, _ in lake.files()}) >= len(groups[words[0]])
    day = kept[30][4]
    if lake.format == "iceberg":
        tasks = lake.loaded().scan(row_filter=f"timestamp >= '{day}T00:00:00+00:00'").plan_files()
        assert words[0] != "day(timestamp)" or len(list(tasks)) < len(lake.files())
        assert lake.loaded().scan(row_filter="key = 'k3'").to_arrow().num_rows == sum(row[2] == "k3" for row in kept)
    elif words[0] == "day(timestamp)":
        rows = lake.loaded().to_pyarrow_table(filters=[("timestamp_day", "=", day)])
        assert rows.num_rows == sum(row[4] == day for row in kept)


@pytest.mark.parametrize(("key", "kind", "reason"), [
    (b"\xe9\x00", None, "is not UTF-8"), (b"", None, "is empty"), (b"", "string", "is empty"),
    ("a/b=%c é\n".encode(), None, None), ("a/b=%c é\n".encode(), "string", None), (None, None, None),
])  # fmt: skip
def test_partitions_of_any_text(tmp_path: Path, lake: Lake, key: bytes | None, kind: str | None, reason: str) -> None:
    """A Delta table has the values of its partitions as text alone, and empty text is null: other ones are refused."""
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([(key, b"v")])
    if lake.format == "delta" and reason is not None:
        with pytest.raises(InvalidRecord, match=f"a key {reason}"):
            sync_topic(data, "orders", lake.target, key=kind, partition_by=["key"])
        return
    sync_topic(data, "orders", lake.target, key=kind, partition_by=["key"])
    assert lake.read()["key"].to_pylist() == [key.decode() if kind and key is not None else key]


def test_times_beyond_the_years_of_python(tmp_path: Path, lake: Lake) -> None:
    """A producer gave microseconds as milliseconds."""
    data, far = tmp_path / "data", T * 1000
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1, {"message.timestamp.after.max.ms": 2**63 - 1, "retention.ms": -1})
        dirs["orders", 0].append([kafkalog.Record(b"v", b"k", one) for one in (T, far, T + 1)])
    for by in ("hour(timestamp)", "day(timestamp)", "timestamp"):
        with pytest.raises(InvalidRecord, match="a timestamp among 3 records is beyond the years 1 to 9999"):
            sync_topic(data, "orders", Lake(tmp_path / by, lake.format).target, partition_by=[by])
    sync_topic(data, "orders", lake.target)
    times = lake.read()["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [T * 1000, far * 1000, (T + 1) * 1000]


@pytest.mark.parametrize("kind", ["string", "double", "boolean", "bytes"])
def test_projected_columns_have_any_type_by_any_name(tmp_path: Path, lake: Lake, kind: str) -> None:
    data, given = tmp_path / "data", {"string": "x", "double": 0.5, "boolean": True, "bytes": b"\xff"}[kind]
    schema = {"type": "record", "name": "One", "fields": [{"name": "x", "type": kind}]}
    names = ("partition", "offset", "timestamp", "schema_id")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"x": given})
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([out.getvalue()])
    project = dict.fromkeys(names, "value.x")
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(schema), project=project)
    assert lake.read_files().to_pylist() == [dict.fromkeys(names, given)]
    if lake.format == "delta":
        assert DeltaTable(lake.directory / "orders").to_pyarrow_table(filters=[("offset", "=", given)]).num_rows == 1


def test_a_long_value_is_found_by_a_condition(tmp_path: Path, lake: Lake) -> None:
    """Parquet has no bounds of row groups with a value of more than 4 KiB."""
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1)
        for part in range(3):
            rows = [(b"a%d" % n, b"v" * 200) for n in range(2000)]
            dirs["orders", 0].append([*rows, (b"z" * 5000, b"")] if part == 1 else rows)
    sync_topic(data, "orders", lake.target, key="string", target_file_bytes=100_000)
    found = (
        lake.loaded().scan(row_filter="key > 'b'").to_arrow()
        if lake.format == "iceberg"
        else lake.loaded().to_pyarrow_table(filters=[("key", ">", "b")])
    )
    assert found["key"].to_pylist() == ["z" * 5000]
    assert max(pq.read_metadata(one).num_row_groups for one in lake.stored()) > 1


def test_values_that_do_not_decode(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 3})
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append([b"{no", None])
    with pytest.raises(InvalidRecord, match="value does not decode") as failure:
        sync_topic(data, "orders", lake.target, value="json", schema='{"properties": {"id": {"type": "integer"}}}')
    assert failure.value.offset == 3
    assert lake.stored() == []
    (commit,) = sync_topic(data, "orders", lake.target, value="json", on_undecodable="null")
    assert commit.undecodable == 1
    rows = lake.read().to_pylist()
    assert [one["value"] and one["value"]["id"] for one in rows] == [0, 1, 2, None, None]
    assert [bool(one["value_error"]) for one in rows] == [False, False, False, True, False]


def test_ids_of_schemas_are_a_column(tmp_path: Path, lake: Lake) -> None:
    data, schemas = tmp_path / "data", tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text('{"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]}')
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([bytes([0, 0, 0, 0, 7, 8]), None, b"\x01"])
    sync_topic(data, "orders", lake.target, value="avro", schemas=str(schemas), on_undecodable="null")
    rows = lake.read().to_pylist()
    assert [(one["value"], one["schema_id"]) for one in rows] == [({"id": 4}, 7), (None, None), (None, None)]


def test_a_log_that_lost_what_comes_next(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    write(data, {0: 10}, first=10)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].delete_before(12)
    with pytest.raises(OffsetOutOfRange, match="offsets 10 to 11 were deleted before they were written") as lost:
        sync_topic(data, "orders", lake.target)
    assert lost.value.offset == 10 and "another table" in str(lost.value.hint)
    other = Lake(tmp_path / "other", lake.format)
    sync_topic(data, "orders", other.target)
    assert other.places() == [(0, n) for n in range(12, 20)]
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_log_that_was_truncated(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 6})
    write(data, {0: 4}, first=6)
    sync_topic(data, "orders", lake.target)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].truncate_to(6)
    with pytest.raises(IllegalState, match="before offset 10, but the log was truncated and ends at 6"):
        sync_topic(data, "orders", lake.target)
    write(data, {0: 8}, first=100)
    with pytest.raises(IllegalState, match="record 9 is not the one that the table has"):
        sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_log_that_was_truncated_to_before_a_gap(tmp_path: Path, lake: Lake) -> None:
    """The table's position is behind a gap that compaction left; afterwards records are where the gap was."""
    data = tmp_path / "data"
    rows = [R(order(n), b"k%d" % n, timestamp=T) for n in range(9)]
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("orders", 1, {"retention.ms": -1})
        dirs["orders", 0].replicate(batch(rows[:3], base_offset=0, last_delta=5, leader_epoch=0))
        assert dirs["orders", 0].end_offset == 6
    assert sync_topic(data, "orders", lake.target)[0].next_offsets == {0: 6}
    assert sync_topic(data, "orders", lake.target) == []
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["orders", 0].truncate_to(0)
        dirs["orders", 0].replicate(batch(rows, base_offset=0, leader_epoch=0))
    with pytest.raises(IllegalState, match=r"record 5 is not the one that the table has \(there was none when"):
        sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(3)]


def test_a_topic_that_is_deleted_as_a_sync_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is gone after its logs were opened."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "delta")
    write(data, {0: 10})
    with kafkalog.open_dirs(data, "a") as dirs:
        logs = LogDirs.logs

        def opened(self: LogDirs, topic: str) -> list[Any]:
            found = logs(self, topic)
            self.delete_topic(topic)
            return found

        monkeypatch.setattr(LogDirs, "logs", opened)
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'orders'"):
            sync_topic(dirs, "orders", lake.target)
    assert not lake.exists()


def test_another_topic_of_the_same_name(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.delete_topic("orders")
    write(data, {0: 20})
    with pytest.raises(InconsistentTopicId, match="the table is that of the topic with id"):
        sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_topic_that_is_made_again_while_it_is_followed(tmp_path: Path, lake: Lake) -> None:
    """Each pass looks the topic's id up: the new topic has the records that the table ends with, and others before."""
    data = tmp_path / "data"
    write(data, {0: 10})
    following = follow_topic(data, "orders", lake.target, commit_every_s=0.01)
    assert next(following).records == 10
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.delete_topic("orders")
    write(data, {0: 9}, first=1)
    write(data, {0: 1}, first=9)
    write(data, {0: 5}, first=10)
    with pytest.raises(InconsistentTopicId, match="the table is that of the topic with id"):
        next(following)
    assert lake.places() == [(0, n) for n in range(10)]


def test_damage_ends_a_sync_with_nothing_of_it_in_the_table(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    for first in (10, 20, 30):
        write(data, {0: 10}, first=first)
    (segment,) = (data / "orders-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) * 5 // 8] ^= 255
    segment.write_bytes(content)
    with pytest.raises(CorruptRecord):
        sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(10)]
    assert len(lake.stored()) == 1
    skipped: list[Any] = []
    sync_topic(data, "orders", lake.target, on_damage="skip", skipped=skipped)
    assert lake.places() == [(0, n) for n in (*range(20), *range(30, 40))] and len(skipped) == 1


@pytest.mark.crash
@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_fills_up_leaves_the_table_as_it_was(tmp_path: Path, format: str) -> None:
    script = f"""
import os, shutil
import kafkalog
from kafkalog.errors import StorageError
from kafkalog.lake.sync import sync_topic
from tests.lake.tables import Lake
from pathlib import Path
data, lake = Path({str(tmp_path)!r}) / "data", Lake(Path("lake"), {format!r})
with kafkalog.open_dirs(data, "a") as dirs:
    dirs.create_topic("orders", 1)
    dirs["orders", 0].append([b"small"] * 10)
sync_topic(data, "orders", lake.target)
with kafkalog.open_dirs(data, "a") as dirs:
    for _ in range(40):
        dirs["orders", 0].append([os.urandom(50_000)])
before = lake.snapshots()
try:
    sync_topic(data, "orders", lake.target)
except StorageError as error:
    print("failed", error.errno == 28 or "No space" in str(error), lake.snapshots() == before, len(lake.places()))
print(len(lake.stored()))
"""
    done = run_on_tiny_disk(script)
    assert done.stdout.split() == ["failed", "True", "True", "10", "1"], done.stderr


# Following, and the command


def test_following_a_topic(tmp_path: Path, lake: Lake) -> None:
    data, stop = tmp_path / "data", threading.Event()
    write(data, {0: 10})
    commits = follow_topic(data, "orders", lake.target, commit_every_s=0.05, is_stopped=stop.is_set)
    assert next(commits).records == 10
    write(data, {0: 5}, first=10)
    assert next(commits).records == 5
    stop.set()
    assert list(commits) == []
    assert lake.places() == [(0, n) for n in range(15)]


def test_the_command(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    options = ["-t", "orders", "-s", "value=json", "--project", "offset,partition,cents=value.total", lake.target]
    (line,) = ok("table", "sync", "-J", "-d", data, *options).splitlines()
    assert json.loads(line)["records"] == 10 and json.loads(line)["next_offsets"] == {"0": 10}
    assert lake.read().schema.names == ["offset", "partition", "cents"]
    assert lake.read()["cents"].to_pylist() == [n / 4 for n in range(10)]
    done = command("table", "sync", "-d", data, *options)
    assert (done.returncode, done.stdout) == (0, b"") and b"the table has all records" in done.stderr
    for wrong in (["--schemas", "x"], ["--target-file-bytes", "1"], ["--partition-by", "week(timestamp)"]):
        assert command("table", "sync", "-d", data, "-t", "orders", *wrong, lake.target).returncode == 2
    assert command("table", "sync", "-d", data, "-t", "orders", "iceberg:here/orders").returncode == 2
    assert command("table", "sync", "-d", data, "-t", "missing", lake.target).returncode == 1


# Columns


def test_a_table_of_somebody_else_takes_rows_that_fit(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    lake.create(
        pa.schema([
            pa.field("id", pa.int64(), nullable=False), ("partition", pa.int32()), ("offset", pa.int64()),
            ("by", pa.string()),
        ])
    )  # fmt: skip
    wrong = {"id": "value.tags", "total": "value.total", "partition": "partition", "offset": "offset"}
    with pytest.raises(TableMismatch, match="total is not a column of the table") as failure:
        sync_topic(data, "orders", lake.target, value="json", project=wrong)
    assert failure.value.columns == ("id", "total")
    with pytest.raises(TableMismatch, match="id is required by the table"):
        sync_topic(data, "orders", lake.target, project=["partition", "offset"])
    assert lake.stored() == []
    fitting = {"id": "value.id", "partition": "partition", "offset": "offset"}
    sync_topic(data, "orders", lake.target, value="json", project=fitting)
    assert lake.read().to_pylist() == [{"id": n, "partition": 0, "offset": n, "by": None} for n in range(10)]
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append(b'{"id": null, "total": 1, "tags": []}')
    with pytest.raises(InvalidRecord, match="a id is null, and the table requires one"):
        schema = {"properties": {"id": {"type": "integer"}}}
        sync_topic(data, "orders", lake.target, value="json", schema=schema, project=fitting)
