"""A task of an export: the records of a range in Parquet files, by date, as they are in the log."""

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from kafkalog.exchange.manifest import ExportedRange, ExportSettings
from kafkalog.exchange.parquet_files import MAX_OPEN, NO_DATE, export_range
from kafkalog.exchange.planning import ExportTask
from kafkalog.exchange.ranges import OffsetRange
from tests.tiny_disk import run_on_tiny_disk

ALL = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
DAY = 86_400_000


def task(log: Path, staging: Path, start: int, stop: int, **changes: Any) -> ExportTask:
    staging.mkdir(exist_ok=True)
    topic, _, number = log.name.rpartition("-")
    settings = ExportSettings(
        changes.pop("columns", ALL), changes.pop("isolation", "read_uncommitted"), changes.pop("by_date", True)
    )
    values = {"compression": "zstd", "file_bytes": 1 << 20, **changes}
    return ExportTask(OffsetRange(topic, int(number), str(log), start, stop), 1, None, settings,
                      staging=str(staging), **values)  # fmt: skip


def read(staging: Path, exported: ExportedRange) -> list[tuple[str, list[dict[str, Any]]]]:
    """The records of each file, by the name of its place."""
    return [
        (file.place, pq.read_table(staging.parent / file.staged, partitioning=None).to_pylist())
        for file in exported.files
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "t-0"
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        for n in range(20):
            log.append([(b"k", b"%02d" % n, n // 5 * DAY + n)])
    return path


def test_each_date_has_its_file_named_by_the_offsets_in_it(log: Path, tmp_path: Path) -> None:
    done = export_range(task(log, tmp_path / "s", 3, 12))
    assert [(place, [row["offset"] for row in rows]) for place, rows in read(tmp_path / "s", done)] == [
        (f"topic=t/date=1970-01-01/t-0-{3:020d}-{4:020d}.parquet", [3, 4]),
        (f"topic=t/date=1970-01-02/t-0-{5:020d}-{9:020d}.parquet", [5, 6, 7, 8, 9]),
        (f"topic=t/date=1970-01-03/t-0-{10:020d}-{11:020d}.parquet", [10, 11]),
    ]
    assert [file.bytes for file in done.files] == [
        os.path.getsize(tmp_path / file.staged) for file in done.files
    ]  # fmt: skip
    assert (done.start, done.stop, done.records) == (3, 12, 9)


def test_columns_are_those_of_the_source_but_the_topic(log: Path, tmp_path: Path) -> None:
    done = export_range(task(log, tmp_path / "s", 0, 5))
    schema = pq.read_schema(tmp_path / done.files[0].staged)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert {field.name: field.type for field in schema} == {
        "key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"), "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }  # fmt: skip
    assert schema.names == list(ALL)


def test_only_the_columns_asked_for_are_there(log: Path, tmp_path: Path) -> None:
    done = export_range(task(log, tmp_path / "s", 0, 5, columns=("value",)))
    assert read(tmp_path / "s", done)[0][1] == [{"value": b"%02d" % n} for n in range(5)]
    assert "date=1970-01-01" in done.files[0].place


def test_without_dates_there_is_one_file(log: Path, tmp_path: Path) -> None:
    done = export_range(task(log, tmp_path / "s", 0, 20, by_date=False))
    assert [file.place for file in done.files] == [f"topic=t/t-0-{0:020d}-{19:020d}.parquet"]


def test_records_of_days_that_take_turns_go_each_to_their_day(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        log.append([(None, b"%d" % n, n % 3 * DAY) for n in range(3000)])
    done = export_range(task(path, tmp_path / "s", 0, 3000))
    found = {place.split("/")[1]: [row["offset"] for row in rows] for place, rows in read(tmp_path / "s", done)}
    assert found == {f"date=1970-01-0{day + 1}": list(range(day, 3000, 3)) for day in range(3)}


def test_more_days_than_files_may_be_open_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    days = MAX_OPEN * 2
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        for _ in range(3):
            log.append([(None, b"v", n * DAY) for n in range(days)])
    done = export_range(task(path, tmp_path / "s", 0, 3 * days))
    found = read(tmp_path / "s", done)
    assert sorted(row["offset"] for _, rows in found for row in rows) == list(range(3 * days))
    assert len({place for place, _ in found}) == len(found)


def test_times_that_no_calendar_has_have_no_date_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    times = [-1, 0, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1]
    with kafkalog.open(path, "a", retention_ms=-1, message_timestamp_after_max_ms=2**63 - 1) as log:
        log.replicate(encode_batch([(None, b"v", time) for time in times], timestamp=-1, leader_epoch=0))
    done = export_range(task(path, tmp_path / "s", 0, 5))
    found = {}
    for file in done.files:
        table = pq.read_table(tmp_path / file.staged, partitioning=None)
        found[file.place.split("/")[1]] = table["timestamp"].cast(pa.int64()).to_pylist()
    assert found == {
        f"date={NO_DATE}": [-1, 253_402_300_800_000, 2**63 - 1],
        "date=1970-01-01": [0],
        "date=9999-12-31": [253_402_300_799_999],
    }


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        for n in range(40):
            log.append([(None, os.urandom(1000), n) for _ in range(100)])
    done = export_range(task(path, tmp_path / "s", 0, 4000, file_bytes=1 << 20))
    assert len(done.files) == 4
    assert all(file.bytes < 1.5 * (1 << 20) for file in done.files)
    offsets = [row["offset"] for _, rows in read(tmp_path / "s", done) for row in rows]
    assert offsets == list(range(4000))


def test_what_is_gone_meanwhile_is_no_empty_file(log: Path, tmp_path: Path) -> None:
    with kafkalog.open(log, "a") as writer:
        writer.delete_before(4)
    with pytest.raises(OffsetOutOfRange, match="offset 2"):
        export_range(task(log, tmp_path / "s", 2, 12))
    with pytest.raises(OffsetOutOfRange):
        export_range(task(log, tmp_path / "s", 10, 25))
    assert os.listdir(tmp_path / "s") == []


def test_a_corrupt_batch_is_named_and_no_file_stays(log: Path, tmp_path: Path) -> None:
    with kafkalog.open(log, "a") as writer:
        writer.roll()
        writer.append(b"behind it")
    segment = log / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 20 * 11 - 1] ^= 1  # the last byte of a batch in the middle
    segment.write_bytes(data)
    with pytest.raises(CorruptRecord, match=r"\.log, .*position"):
        export_range(task(log, tmp_path / "s", 0, 20))
    assert os.listdir(tmp_path / "s") == []


def test_a_staging_directory_that_went_away_is_an_error_of_the_disk(log: Path, tmp_path: Path) -> None:
    wanted = task(log, tmp_path / "s", 0, 20)
    (tmp_path / "s").rmdir()
    with pytest.raises(StorageError, match="write Parquet"):
        export_range(wanted)


FULL_DISK = """
import os
import kafkalog
from kafkalog.errors import StorageError
from kafkalog.exchange.manifest import ExportSettings
from kafkalog.exchange.parquet_files import export_range
from kafkalog.exchange.planning import ExportTask
from kafkalog.exchange.ranges import OffsetRange

os.mkdir("staging")
settings = ExportSettings(("value",), "read_uncommitted", False)
try:
    export_range(ExportTask(OffsetRange("t", 0, LOG, 0, 2000), 1, None, settings, "none", 1 << 18, "staging"))
except StorageError as error:
    print(error.errno, error.hint)
print(os.listdir("staging"))
"""


def test_a_disk_that_is_full_is_named_and_nothing_half_stays(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0"
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        for _ in range(4):
            log.append([(None, os.urandom(1000)) for _ in range(500)])
    done = run_on_tiny_disk(FULL_DISK.replace("LOG", repr(str(path))))
    hint = "free space on this disk and try again; existing data is unchanged"
    assert done.stdout == f"{errno.ENOSPC} {hint}\n[]\n", done.stderr
