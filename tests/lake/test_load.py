"""Tables as sources of topics: every row once, by snapshots, with its key, value, headers and time."""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    InvalidRecord,
    PartitionNotFound,
)
from kafkalog.lake.load_state import read_state
from kafkalog.lake.sync import sync_topic
from kafkalog.lake.table_load import load_table
from kafkalog.landing.commit import Committer
from tests.commands import environment, ok
from tests.commands import kafkalog as kafkalog_command
from tests.lake.loads import COLUMNS, SCHEMA, rows
from tests.lake.tables import Lake, T, write
from tests.trees import ROOT


def load(lake: Lake, data: Path, **given: Any) -> list[tuple[int, bool]]:
    """Load into the topic `back`; records of each batch, and whether it ended its snapshot."""
    given = {"columns": COLUMNS, "partitions": 2} | given
    return [(one.records, one.is_whole) for one in load_table(lake.target, data, "back", **given)]


def back(data: Path) -> list[Any]:
    """The records of the topic, by partition."""
    with kafkalog.open_dirs(data) as dirs:
        return [record for log in dirs.logs("back") for record in log]


def values(data: Path) -> list[int]:
    return sorted(int(bytes(one.value or b"")) for one in back(data))


def test_a_synced_topic_comes_back_with_keys_headers_and_times(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "data", {0: 9000, 1: 45})  # more rows than become records at once
    sync_topic(tmp_path / "data", "orders", lake.target)
    assert load(lake, tmp_path / "other", columns=None) == [(9045, True)]

    def content(record: Any) -> tuple[Any, ...]:
        return bytes(record.key), bytes(record.value), record.timestamp, tuple(record.headers)

    with kafkalog.open_dirs(tmp_path / "data") as dirs:
        wanted = Counter(content(record) for log in dirs.logs("orders") for record in log)
    assert Counter(map(content, back(tmp_path / "other"))) == wanted


def test_each_load_appends_what_later_snapshots_appended(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    lake.append(rows(10, 5))
    assert sum(count for count, _ in load(lake, tmp_path / "data")) == 15
    assert load(lake, tmp_path / "data") == []
    for first in (15, 20):
        lake.append(rows(first, 5))
    assert load(lake, tmp_path / "data") == [(5, True), (5, True)]
    assert values(tmp_path / "data") == [*range(25)]
    assert [int(bytes(one.value or b"")) for one in back(tmp_path / "data")][-1] >= 20, "snapshots come in their order"
    where = {(bytes(one.key or b""), one.timestamp - T) for one in back(tmp_path / "data")}
    assert where == {(b"n%d" % (n % 7), n) for n in range(25)}


def test_each_key_is_in_one_partition(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 50))
    load(lake, tmp_path / "data")
    with kafkalog.open_dirs(tmp_path / "data") as dirs:
        first, second = ({bytes(one.key or b"") for one in log} for log in dirs.logs("back"))
    assert first and second and not first & second


def test_whole_rows_as_json(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 3))
    load(lake, tmp_path / "data", columns={"key": "id", "timestamp": "at"}, value_format="json", partitions=1)
    found = back(tmp_path / "data")
    assert [bytes(one.key) for one in found] == [b"0", b"1", b"2"]
    assert json.loads(bytes(found[2].value)) == {
        "id": 2, "name": "n2", "at": datetime.fromtimestamp((T + 2) / 1000, UTC).isoformat(), "data": "2"
    }  # fmt: skip


def test_removed_rows_stop_a_load_before_anything_is_appended(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    load(lake, tmp_path / "data")
    if lake.format == "iceberg":
        lake.loaded().delete("id = 3")
    else:
        lake.loaded().delete("id = 3")
    with pytest.raises(IllegalState, match="removed or changed rows"):
        load(lake, tmp_path / "data")
    assert values(tmp_path / "data") == [*range(10)]
    assert sum(count for count, _ in load(lake, tmp_path / "another")) == 9


def test_a_rolled_back_table_stops_a_load(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    kept = lake.loaded().current_snapshot().snapshot_id if lake.format == "iceberg" else lake.loaded().version()
    lake.append(rows(10, 10))
    load(lake, tmp_path / "data")
    if lake.format == "iceberg":
        lake.loaded().manage_snapshots().rollback_to_snapshot(kept).commit()
        lake.append(rows(30, 1))
    else:
        lake.loaded().restore(kept)
    with pytest.raises(IllegalState, match="rolled back|removed or changed"):
        load(lake, tmp_path / "data")


def test_files_that_are_arranged_anew_have_nothing_new(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "delta")
    lake.create(SCHEMA)
    for first in (0, 10):
        lake.append(rows(first, 10))
    load(lake, tmp_path / "data")
    assert lake.loaded().optimize.compact()["numFilesRemoved"] == 2
    lake.append(rows(20, 1))
    assert load(lake, tmp_path / "data") == [(1, True)]
    assert values(tmp_path / "data") == [*range(21)]


def test_what_cannot_be_loaded(lake: Lake, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(PartitionNotFound, match="no such table"):
        load(lake, data)
    lake.create(SCHEMA)
    lake.append(rows(0, 1))
    for given, match in (
        ({"columns": {"value": "dat"}}, "no column 'dat' for the value"),
        ({"columns": {}}, "no column 'value'"),
        ({"columns": {"value": "id"}}, "int64 cannot be the value"),
        ({"columns": {"offset": "id"}}, "offset is not a part"),
        ({"value_format": "xml"}, "value_format is 'xml'"),
    ):
        with pytest.raises(IllegalArgument, match=match):
            load(lake, data, **given)
    assert not [*data.glob("*-0")]


def test_one_load_at_a_time_and_a_damaged_state_is_found(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    lake.append(rows(10, 10))
    running = load_table(lake.target, tmp_path / "data", "back", columns=COLUMNS, batch_bytes=1)
    next(running)
    with pytest.raises(DirectoryLocked, match="already being loaded"):
        load(lake, tmp_path / "data")
    running.close()
    (state,) = (tmp_path / "data").glob("kafkalog.table-load.*.json")
    content = state.read_bytes()
    state.write_bytes(content.replace(b'"batch":0', b'"batch":1'))
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        load(lake, tmp_path / "data")
    state.write_bytes(content)
    load(lake, tmp_path / "data")
    assert values(tmp_path / "data") == [*range(20)]


def test_a_topic_that_was_deleted_is_not_taken_for_full(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    load(lake, tmp_path / "data")
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.delete_topic("back")
    with pytest.raises(InconsistentTopicId, match="was deleted"):
        load(lake, tmp_path / "data")
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("back", 1, {})
    with pytest.raises(InconsistentTopicId, match="was deleted") as raised:
        load(lake, tmp_path / "data")
    Path(str(raised.value.path)).unlink()
    load(lake, tmp_path / "data")
    assert values(tmp_path / "data") == [*range(10)]


def test_a_topic_that_was_deleted_after_a_crash_is_not_taken_for_full(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    load(lake, data)
    lake.append(rows(10, 10))

    def crash(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            load(lake, data)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.delete_topic("back")
    with pytest.raises(InconsistentTopicId, match="was deleted"):
        load(lake, data)


def test_a_number_that_has_no_json_is_an_error(lake: Lake, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "ratio": pa.float64()})
    lake.create(schema)
    lake.append(pa.table({"id": [1], "ratio": [float("nan")]}, schema=schema))
    with pytest.raises(InvalidRecord, match="no JSON"):
        load(lake, tmp_path / "data", columns={"key": "id"}, value_format="json")


def test_a_number_that_is_no_partition_is_an_error(lake: Lake, tmp_path: Path) -> None:
    schema = pa.schema({"value": pa.string(), "to": pa.int64()})
    lake.create(schema)
    lake.append(pa.table({"value": ["a"], "to": [2**40]}, schema=schema))
    with pytest.raises(InvalidRecord, match="no partition"):
        load(lake, tmp_path / "data", columns={"partition": "to"})


def test_the_command(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 10))
    columns = ["--column", "key=name", "--column", "value=data", "--column", "timestamp=at"]
    line = ["table", "load", "-d", tmp_path / "data", "-t", "back", *columns, lake.target]
    assert ok(*line).startswith(b"10 records of 1 file; snapshot ")
    assert ok(*line, "-q") == b""
    lake.append(rows(10, 1))
    found = json.loads(ok(*line, "--json"))
    assert (found["records"], found["files"], found["is_whole"]) == (1, 1, True)
    assert kafkalog_command(*line, "-d", tmp_path).returncode == 2
    wrong = kafkalog_command("table", "load", "-d", tmp_path / "data", "-t", "back", "--column", "key=nam", lake.target)
    assert wrong.returncode != 0 and b"did you mean name?" in wrong.stderr
    assert values(tmp_path / "data") == [*range(11)]


@pytest.mark.crash
@pytest.mark.slow
def test_every_row_is_appended_once_through_kills_at_every_step(lake: Lake, tmp_path: Path) -> None:
    data = tmp_path / "data"
    line = [sys.executable, "-m", "tests.lake.killed_load", str(data), str(lake.directory), lake.format]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    kills, count = map(int, done.stdout.split())
    assert kills >= 20
    assert values(data) == [*range(count)]
    assert load(lake, data) == []
    (state,) = data.glob("kafkalog.table-load.*.json")
    found = read_state(str(state))
    assert found is not None and found.done and found.stop == found.files
    assert not [*data.glob("kafkalog-stage.*")]
