"""A log as columns: by offset and time, lazily and at once, while it is closed or deleted, as real readers see it."""

import base64
import errno
import json
import os
import shutil
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, LogClosed, OffsetOutOfRange
from kafkalog.log.scan import KEPT_BYTES
from kafkalog.records.compression import compress
from kafkalog.util.fileio import OS
from tests import golden_cases
from tests.arrow_readers import SCHEMA, as_tuples, checked, records_of
from tests.descriptors import open_descriptors
from tests.gates import wait_until
from tests.golden_cases import Case
from tests.raw_batches import framed

T = 1_700_000_000_000
COUNT = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three segments, `COUNT` records, a record a second."""
    directory = tmp_path / "orders-3"
    with kafkalog.open(directory, "a") as log:
        for base in range(0, COUNT, 50):
            log.append([(b"k%d" % i, b"v" * (i % 100), T + 1000 * i) for i in range(base, base + 50)])
            if base in (300, 600):
                log.roll()
        assert len(log.segments) == 3
    return directory


def compress_batch(count: int, codec: int, base: int, size: int = 100) -> bytes:
    """A batch of `count` records with values of `size` bytes; codec 0 is none."""
    plain = bytes(encode_batch([b"%06d" % i * (size // 6) for i in range(base, base + count)], timestamp=T))
    payload = bytes(compress(codec, plain[61:]))
    return framed(base, struct.pack(">h", codec) + plain[23:61] + payload)


def write_segments(directory: Path, *segments: list[bytes]) -> Path:
    """A partition directory; each segment is named by the first offset in it."""
    directory.mkdir()
    for parts in segments:
        (directory / f"{int.from_bytes(parts[0][:8], 'big'):020d}.log").write_bytes(b"".join(parts))
    return directory


def test_all_records(path: Path) -> None:
    with kafkalog.open(path) as log:
        expected = as_tuples(log)
        for source in (log, log.scan(), log.table(), log[:], log.slice(0, COUNT).scan(), log[:].table()):
            read = checked(source)
            assert read.schema.equals(SCHEMA)
            assert records_of(read) == expected
            assert set(read["topic"].to_pylist()) == {"orders"} and set(read["partition"].to_pylist()) == {3}
            assert pa.schema(source).equals(SCHEMA)
        assert len(log.table()) == COUNT


@pytest.mark.parametrize(
    "bounds",
    [
        {"start": 120, "stop": 533},
        {"start": -10},
        {"stop": 0},
        {"start": COUNT},
        {"start": 70, "stop": 10},
        {"stop": -990},
        {"since": T + 99_500, "until": T + 200_000},
        {"since": "2023-11-14T22:15:00Z"},
        {"until": T},
        {"since": 2**45},
    ],
)
def test_ranges_are_those_of_records(path: Path, bounds: dict[str, Any]) -> None:
    with kafkalog.open(path) as log:
        expected = as_tuples(log.records(**bounds))
        assert records_of(checked(log.scan(**bounds))) == expected
        assert log.table(["offset"], **bounds).offsets.tolist() == [row[0] for row in expected]
        assert log.to_pandas(["offset"], **bounds)["offset"].tolist() == [row[0] for row in expected]


def test_ranges_that_cannot_be(path: Path) -> None:
    with kafkalog.open(path) as log:
        with pytest.raises(OffsetOutOfRange):
            log.table(start=COUNT + 1)
        with pytest.raises(IllegalArgument, match="both an offset and a time"):
            log.scan(start=1, since=T)
        with pytest.raises(TypeError, match=r"scan\(\) takes no keyword 'batchrows': did you mean batch_rows"):
            log.scan(batchrows=1)
        with pytest.raises(TypeError, match=r"table\(\) takes no keyword 'colums'"):
            log.table(colums=["offset"])
        with pytest.raises(TypeError, match="did you mean batch_bytes"):
            log[:].table(batch_byte=1)
        with pytest.raises(IllegalArgument, match="did you mean offset"):
            log.to_pandas(["offsets"])
        with pytest.raises(IllegalArgument, match="did you mean 'read_committed'"):
            log.table(isolation="read_commited")
        for options in ({"batch_rows": 0}, {"batch_rows": 2**31}, {"batch_bytes": 0}, {"batch_bytes": 2**40}):
            with pytest.raises(IllegalArgument, match="give 1 to"):
                log.scan(**options)


def test_record_batches_are_bounded(path: Path) -> None:
    with kafkalog.open(path) as log:
        sizes = [len(part) for part in log.scan(batch_rows=64)]
        assert sum(sizes) == COUNT and max(sizes) == 64
        for part in log.scan(["value"], batch_bytes=500):
            assert len(part) == 1 or sum(map(len, part["value"].to_pylist())) <= 500
        assert [pa.record_batch(part).num_rows for part in log.scan(batch_rows=900)] == [900, 100]


def test_a_scan_is_read_any_number_of_times(path: Path) -> None:
    with kafkalog.open(path) as log:
        scan = log.scan(["offset"], start=10, stop=20)
        assert [checked(scan)["offset"].to_pylist() for _ in range(3)] == [list(range(10, 20))] * 3
        assert repr(scan) == "<LogScan orders-3 [10, 20): offset>"
        assert scan == log[10:20].scan(["offset"]) and hash(scan) == hash(log.scan(["offset"], start=10, stop=20))
        assert scan != log.scan(["offset"], start=10) and scan != 1
        assert (scan.columns, scan.start, scan.stop) == (("offset",), 10, 20)


def test_what_is_appended_later_is_not_in_a_scan(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"a"])
        scan = log.scan(["value"])
        log.append([b"b"])
        assert checked(scan)["value"].to_pylist() == [b"a"]
        assert log.table()["value"].to_pylist() == [b"a", b"b"]


def test_an_empty_log(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert len(log.table()) == 0 and log.table().offsets.tolist() == []
        assert checked(log).num_rows == 0
        assert pl.DataFrame(log.table()).shape == (0, 8)
        assert duckdb.sql("SELECT count(*) FROM log").fetchall() == [(0,)]
        assert log.to_pandas().shape == (0, 8)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_logs_are_read_in_order(tmp_path: Path, codec: int) -> None:
    """Several threads decompress: the records come in order, plain batches between them too."""
    parts, base = [], 0
    for number in range(60):
        parts.append(compress_batch(200, codec, base) if number % 20 else compress_batch(200, 0, base))
        base += 200
    with kafkalog.open(write_segments(tmp_path / "t-0", parts)) as log:
        expected = as_tuples(log)
        assert len(expected) == base
        assert records_of(checked(log)) == expected
        assert records_of(checked(log.scan(start=3333, stop=9999))) == expected[3333:9999]
        assert log.table(["offset"]).offsets.tolist() == list(range(base))
        assert records_of(checked(log.scan(batch_rows=77))) == expected


def test_more_columns_than_a_thread_may_keep(tmp_path: Path) -> None:
    """Results beyond KEPT_BYTES are computed on request: memory stays bounded, nothing is lost."""
    parts = [compress_batch(2000, 4, base, size=1200) for base in range(0, 40_000, 2000)]
    assert sum(map(len, parts)) < 1 << 20
    with kafkalog.open(write_segments(tmp_path / "t-0", parts)) as log:
        table = log.table(["offset", "value"], batch_bytes=1 << 20)
        assert table.offsets.tolist() == list(range(40_000))
        assert sum(map(len, table["value"])) == 40_000 * 1200 > 2 * KEPT_BYTES


@pytest.mark.parametrize("codec", [0, 4])
def test_damage_comes_after_the_records_in_front_of_it(tmp_path: Path, codec: int) -> None:
    """CorruptRecord for a wrong checksum, InvalidRecord inside a batch; a consumer of Arrow gets the same error."""
    parts = [compress_batch(100, codec, base) for base in range(0, 1000, 100)]
    more = [compress_batch(100, codec, 1000)]
    torn = bytearray(parts[7])
    torn[61] ^= 1
    inside = framed(700, bytes(torn[21:]))
    for name, bad, kind in (("crc", bytes(torn), CorruptRecord), ("inside", inside, InvalidRecord)):
        path = write_segments(tmp_path / f"{name}-0", [*parts[:7], bad, *parts[8:]], more)
        with kafkalog.open(path) as log:
            got = []
            with pytest.raises(kind) as caught:
                for part in log.scan(["offset", "value"]):
                    got += part.offsets.tolist()
            assert got == list(range(700))
            assert str(caught.value.path).endswith(".log") and caught.value.offset == 700
            assert caught.value.position is not None
            with pytest.raises(kind):
                log.table()
            with pytest.raises((OSError, pa.ArrowInvalid), match=f"{kind.__name__}.*700"):
                checked(log.scan())
            with pytest.raises(duckdb.Error, match=kind.__name__):
                duckdb.sql("SELECT count(*), max(value) FROM log").fetchall()
            with pytest.raises(pl.exceptions.PolarsError, match=kind.__name__):
                pl.DataFrame(log.scan())
            assert len(log.table(stop=700)) == 700


def test_a_log_closed_while_a_stream_is_open(path: Path) -> None:
    """The consumer gets LogClosed; it keeps the rows it has."""
    before = open_descriptors()
    with kafkalog.open(path) as log:
        reader = pa.RecordBatchReader.from_stream(log.scan(batch_rows=20))
        first = next(reader)
        table = log.table()
        scan = log.scan()
    with pytest.raises((OSError, pa.ArrowInvalid), match="LogClosed"):
        reader.read_all()
    with pytest.raises(LogClosed):
        scan.table()
    with pytest.raises(LogClosed):
        log.scan()
    first.validate(full=True)
    assert records_of(checked(table))[:20] == records_of(pa.Table.from_batches([first]))
    del reader, first, table
    assert open_descriptors() == before


def test_a_directory_deleted_while_a_stream_is_open(path: Path) -> None:
    """Open files are read to the end; others raise an error of the log, never a crash."""
    with kafkalog.open(path) as log:
        reader = pa.RecordBatchReader.from_stream(log.scan(batch_rows=20))
        table, first = log.table(), next(reader)
        shutil.rmtree(path)
        try:
            rest = reader.read_all().num_rows
            assert rest + first.num_rows == COUNT
        except (OSError, pa.ArrowInvalid) as error:
            assert "kafkalog" in str(error) or str(path) in str(error) or "orders-3" in str(error)
        assert records_of(checked(table))[0][0] == 0


def test_the_system_is_told_that_files_are_read_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One advice a segment, before it is read; one that the system refuses changes nothing."""
    segments = [[compress_batch(2000, 0, base) for base in range(first, first + 6000, 2000)] for first in (0, 6000)]
    path, advised = write_segments(tmp_path / "t-0", *segments), []

    def advise(fd: int, position: int, length: int, advice: int) -> None:
        advised.append((Path(os.readlink(f"/proc/self/fd/{fd}")).name, position, length, advice))
        raise OSError(errno.ENOSYS, "no advice here")

    monkeypatch.setattr(OS, "advise", advise)
    with kafkalog.open(path) as log:
        assert sum(1 for _ in log) == 12_000 and advised == []
        assert log.table(["offset"]).offsets.tolist() == list(range(12_000))
    names = [f"{first:020d}.log" for first in (0, 6000)]
    assert advised == [(name, 0, 0, os.POSIX_FADV_SEQUENTIAL) for name in names]


def test_streams_left_in_the_middle_give_files_and_threads_back(tmp_path: Path) -> None:
    parts = [compress_batch(2000, 1, base) for base in range(0, 100_000, 2000)]
    path = write_segments(tmp_path / "t-0", parts)
    before, threads = open_descriptors(), set(threading.enumerate())
    for _ in range(20):
        with kafkalog.open(path) as log:
            next(pa.RecordBatchReader.from_stream(log.scan(batch_rows=500)))
            next(iter(log.scan()))
            log.__arrow_c_stream__()
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert open_descriptors() == before


def test_duckdb_and_polars_query_a_log_without_pyarrow(path: Path) -> None:
    """The log itself, a scan, a slice and a table; DuckDB asks for a stream more than once. pyarrow is not imported."""
    code = """
        import sys
        import duckdb, polars, kafkalog
        with kafkalog.open(sys.argv[1]) as log:
            scan, part, table = log.scan(), log[10:20], log.table(["offset", "value"])
            total = 'SELECT count(*), sum("offset"), sum(octet_length(value)) FROM '
            wanted = duckdb.sql(total + '"table"').fetchall()
            assert wanted[0][:2] == (1000, sum(range(1000))), wanted
            for name in ("log", "scan", "scan"):
                assert duckdb.sql(total + name).fetchall() == wanted
            assert duckdb.sql(total + "part").fetchall()[0][:2] == (10, sum(range(10, 20)))
            groups = duckdb.sql("SELECT topic, partition, count(*), min(timestamp) < now() FROM log GROUP BY ALL")
            assert groups.fetchall() == [("orders", 3, 1000, True)]
            for source in (log, scan, part, table):
                frame = polars.DataFrame(source)
                assert frame["offset"].to_list()[:3] == ([10, 11, 12] if source is part else [0, 1, 2])
            assert "pyarrow" not in sys.modules, "pyarrow was imported"
            sys.modules["pyarrow"] = None  # as where it is not installed: pandas imports it for itself
            assert log.to_pandas()["offset"].sum() == sum(range(1000))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ISOLATIONS = ("read_uncommitted", "read_committed")


def expected_rows(case: Case, isolation: str) -> list[dict[str, Any]]:
    (name,) = (name for name in case.expected_with(".jsonl") if isolation in name)
    return [json.loads(line) for line in case.expected_path(name).read_text(encoding="utf-8").splitlines()]


def is_consumed(case: Case) -> bool:
    return all(any(isolation in name for name in case.expected_with(".jsonl")) for isolation in ISOLATIONS)


def decode_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.golden
@pytest.mark.parametrize("isolation", ISOLATIONS)
@golden_cases.each_partition("logdir", where=is_consumed)
def test_real_partitions_are_what_the_consumer_read(case: Case, isolation: str) -> None:
    """Every format and codec, through Arrow: all columns at once, and each by itself; aborted records left out."""
    rows = expected_rows(case, isolation)
    expected = {
        "key": [decode_text(row["key"]) for row in rows],
        "value": [decode_text(row["value"]) for row in rows],
        "topic": [case.topic] * len(rows),
        "partition": [int(case.name.rpartition("-")[2])] * len(rows),
        "offset": [row["offset"] for row in rows],
        "timestamp": [row["timestamp"] for row in rows],
        "headers": [[{"key": k, "value": decode_text(v)} for k, v in row["headers"]] for row in rows],
    }
    with kafkalog.open(case.directory) as log:
        table = checked(log.scan(isolation=isolation))
        table = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64()))
        assert {name: table[name].to_pylist() for name in expected} == expected
        types = [record.timestamp_type for record in log.records(isolation=isolation)]
        assert table["timestampType"].to_pylist() == types
        for name in expected:
            alone = checked(log.scan([name], batch_rows=100, isolation=isolation))[name]
            assert (alone.cast(pa.int64()) if name == "timestamp" else alone).to_pylist() == expected[name]
        assert log.slice(isolation=isolation).table(["offset"]).offsets.tolist() == expected["offset"]


def test_the_usual_size_of_a_record_batch(tmp_path: Path) -> None:
    """65,536 rows, or 8 MiB of keys, values and headers."""
    with kafkalog.open(tmp_path / "small-0", "a") as log:
        for _ in range(14):
            log.append([b""] * 5000)
        sizes = [batch.num_rows for batch in pa.RecordBatchReader.from_stream(log.scan(["offset"]))]
        assert sizes == [65_536, 70_000 - 65_536]
    with kafkalog.open(tmp_path / "large-0", "a") as log:
        for _ in range(20):
            log.append([bytes(1 << 19)])
        sizes = [batch.num_rows for batch in pa.RecordBatchReader.from_stream(log.scan(["value"]))]
        assert sizes == [16, 4]
