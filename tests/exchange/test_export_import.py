"""What an export wrote comes back as it was; both go on where they were stopped, and nothing is there twice."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import CorruptBackup, FormatError, IllegalArgument, IllegalState, StorageError, TopicExists
from kafkalog.exchange import line_rows
from kafkalog.exchange.export import FORMATS, export_records
from kafkalog.exchange.import_ import import_records
from kafkalog.exchange.kafka_dir import export_directory, import_directory
from kafkalog.tools.offsets import Bounds
from kafkalog.tools.verify.directories import verify
from kafkalog.util.fileio import OS
from tests import commands
from tests.backup.logs import files

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Stop(Exception):
    """Ends an export or an import from outside."""


def write_topics(data: Path, read_records: int = 500) -> None:
    """Topics with keys, nulls, headers, times, bytes that are no text, codecs and a gap that compaction left."""
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 2, {"segment.bytes": 20_000, "retention.ms": "-1"})
        dirs.create_topic("seen", 1, {"cleanup.policy": "compact", "segment.bytes": 5000})
        for number in range(2):
            for n in range(0, read_records, 10):
                rows: list[Any] = [
                    (b"key %d" % m, b"value %d" % m, 1_700_000_000_000 + m, [("h", b"\xff\x00"), ("none", None)])
                    for m in range(n, n + 9)
                ]
                rows.append((None, None, 1_700_000_000_000 + n))
                dirs["orders", number].append(rows, compression=("zstd", "none", "gzip")[n % 3])
        log = dirs["seen", 0]
        for n in range(300):
            log.append([(b"k%d" % (n % 5), b"\x00\xfe%d" % n, 1_700_000_000_000 + n)])
        log.roll()
        log.append([(b"k9", b"last", 1_700_000_000_999)])
        log.compact()


def read_records(data: Path) -> dict[str, list[Record]]:
    with kafkalog.open_dirs(data) as dirs:
        return {
            str(key): [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in dirs[key].records()]
            for key in dirs
        }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("exchange") / "data"
    write_topics(where)
    return where


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_exported_comes_back_with_its_offsets(data: Path, tmp_path: Path, format: str) -> None:
    report = export_records(data, tmp_path / "out", format, file_bytes=4000)
    there = [path for path in (tmp_path / "out").rglob(f"*.{format}") if "_kafkalog" not in str(path)]
    assert len(there) == report.files > 4 and sum(path.stat().st_size for path in there) == report.bytes
    done = import_records(tmp_path / "out", tmp_path / "back")
    assert (done.records, done.kept) == (report.records, True)
    assert read_records(tmp_path / "back") == read_records(data)
    assert verify(tmp_path / "back", deep=True).ok


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_that_was_stopped_goes_on(data: Path, tmp_path: Path, format: str) -> None:
    def stop(done: int) -> None:
        raise Stop

    before, runs = 0, 0
    while True:
        try:
            report = export_records(
                data, tmp_path / "out", format, file_bytes=4000, resume=runs > 0, progress=stop if runs < 4 else None
            )
            break
        except Stop:
            runs += 1
    assert runs == 4 and report.before > before and report.records > 0
    assert export_records(data, tmp_path / "out", format, file_bytes=4000, resume=True).records == 0
    import_records(tmp_path / "out", tmp_path / "back")
    assert read_records(tmp_path / "back") == read_records(data)
    with pytest.raises(IllegalArgument, match="the directory already has an export"):
        export_records(data, tmp_path / "out", format)


@pytest.mark.parametrize(("format", "more"), [("parquet", {}), ("jsonl", {}), ("jsonl", {"where": "offset >= 0"})])
def test_an_export_whose_files_do_not_reach_the_disk_commits_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, more: dict[str, Any]
) -> None:
    real = OS.fsync

    def sync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(format):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(OS, "fsync", sync)
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
        export_records(data, tmp_path / "out", format, topics=["orders"], **more)
    assert not list((tmp_path / "out").glob(f"topic=*/**/*.{format}"))
    monkeypatch.undo()
    assert export_records(data, tmp_path / "out", format, topics=["orders"], resume=True, **more).records == 1000


def test_new_records_are_added_to_an_export(tmp_path: Path) -> None:
    write_topics(tmp_path / "data", 100)
    first = export_records(tmp_path / "data", tmp_path / "out", "arrow")
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs["orders", 1].append([b"new"])
    second = export_records(tmp_path / "data", tmp_path / "out", "arrow", resume=True)
    assert (second.records, second.before) == (1, first.records)
    with pytest.raises(IllegalArgument, match="export with format arrow, not jsonl"):
        export_records(tmp_path / "data", tmp_path / "out", "jsonl", resume=True)


@pytest.mark.parametrize("format", FORMATS)
def test_an_import_that_was_stopped_goes_on(data: Path, tmp_path: Path, format: str) -> None:
    export_records(data, tmp_path / "out", format, file_bytes=4000)
    left = [3]

    def stop(done: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise Stop

    with pytest.raises(Stop):
        import_records(tmp_path / "out", tmp_path / "back", progress=stop)
    with pytest.raises(IllegalArgument, match="--resume"):
        import_records(tmp_path / "out", tmp_path / "back", offsets="keep")
    done = import_records(tmp_path / "out", tmp_path / "back", resume=True)
    assert done.before > 0 and done.records > 0
    assert read_records(tmp_path / "back") == read_records(data)
    assert import_records(tmp_path / "out", tmp_path / "back", resume=True).records == 0


def test_a_log_with_something_else_is_not_gone_on_with(data: Path, tmp_path: Path) -> None:
    export_records(data, tmp_path / "out", "parquet", topics=["orders"])
    with kafkalog.open_dirs(tmp_path / "back", "a") as dirs:
        dirs.create_topic("orders", 2, {})
        dirs["orders", 0].append([b"mine", b"too"])
    before = read_records(tmp_path / "back")
    with pytest.raises(IllegalState, match="that is not in the files"):
        import_records(tmp_path / "out", tmp_path / "back", resume=True)
    assert read_records(tmp_path / "back") == before
    done = import_records(tmp_path / "out", tmp_path / "back")
    assert not done.kept, "partitions that are not empty are appended to"
    after = read_records(tmp_path / "back")
    assert after["orders-0"][:2] == before["orders-0"] and len(after["orders-0"]) == 502
    assert [one[2:] for one in after["orders-0"][2:]] == [one[2:] for one in read_records(data)["orders-0"]]


def test_ranges_columns_and_dates(data: Path, tmp_path: Path) -> None:
    export_records(
        data, tmp_path / "out", topics=["orders"], numbers=[1], bounds=Bounds(-30), columns=["offset", "key"]
    )
    (path,) = (tmp_path / "out" / "topic=orders").glob("*.parquet")
    table = pq.ParquetFile(path).read()
    assert table.column_names == ["key", "offset"] and table["offset"].to_pylist() == list(range(470, 500))
    export_records(
        data, tmp_path / "dates", topics=["seen"], by_date=True,
        bounds=Bounds(since_ms=1_700_000_000_296, until_ms=1_700_000_000_299),
    )  # fmt: skip
    (path,) = (tmp_path / "dates").glob("topic=seen/date=2023-11-14/*.parquet")
    assert pq.ParquetFile(path).read()["offset"].to_pylist() == [296, 297, 298]


def test_json_lines_are_those_of_consume(data: Path, tmp_path: Path) -> None:
    export_records(data, tmp_path / "out", "jsonl", topics=["seen"])
    (path,) = (tmp_path / "out").glob("topic=seen/*.jsonl")
    assert path.read_bytes() == commands.ok("consume", "-J", "-d", data, "-t", "seen")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"format": "csv"}, "format is 'csv'"),
        ({"format": "jsonl", "columns": ["key"]}, "all fields"),
        ({"format": "arrow", "compression": "gzip"}, "arrow supports zstd, lz4, none"),
        ({"file_bytes": 5}, "give at least 1024 bytes"),
        ({"columns": ["kye"]}, "did you mean key"),
        ({"numbers": [0]}, "name the topic"),
    ],
)
def test_what_does_not_go_together_is_told(data: Path, tmp_path: Path, more: dict[str, Any], told: str) -> None:
    with pytest.raises(IllegalArgument, match=told):
        export_records(data, tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()


def test_files_that_are_none_are_told_with_their_place(data: Path, tmp_path: Path) -> None:
    export_records(data, tmp_path / "out", "jsonl", topics=["seen"])
    (path,) = (tmp_path / "out").glob("topic=seen/*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b'{"payload": 5}\n'
    edited = tmp_path / "edited.jsonl"
    edited.write_bytes(b"".join(lines))
    with pytest.raises(FormatError) as caught:
        import_records(edited, tmp_path / "back")
    assert (caught.value.path, caught.value.position) == (str(edited), sum(map(len, lines[:3])))
    for name, kind in (("x.parquet", "Parquet"), ("x.arrow", "Arrow")):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(FormatError, match=f"not an? {kind} file"):
            import_records(tmp_path / name, tmp_path / "back", "t")
    with pytest.raises(IllegalArgument, match="the file name does not show the format"):
        (tmp_path / "x.txt").write_bytes(b"")
        import_records(tmp_path / "x.txt", tmp_path / "back", "t")


def line(partition: int) -> bytes:
    return b'{"topic":"t","partition":%d,"offset":0,"key":null,"payload":"x","ts":1,"headers":[]}\n' % partition


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
def test_times_beyond_the_calendar_come_back(tmp_path: Path, format: str) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", message_timestamp_after_max_ms=2**63 - 1) as log:
        log.append([kafkalog.Record(b"v", timestamp=one) for one in (0, 253_402_300_800_000, 2**62)])
    export_records(tmp_path / "data", tmp_path / "out", format)
    import_records(tmp_path / "out", tmp_path / "back")
    with kafkalog.open(tmp_path / "back" / "t-0") as log:
        assert [one.timestamp for one in log] == [0, 253_402_300_800_000, 2**62]


@pytest.mark.parametrize("name", ["value", "timestamp", "value_error"])
def test_a_line_whose_value_or_time_would_be_lost_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"key":"k","%s":"first"}' % name.encode())
    with pytest.raises(FormatError, match=f"{name}.*no '(payload|ts)'|{name} says why"):
        import_records(tmp_path / "x.jsonl", tmp_path / "back", "t")


def of_offsets(*offsets: int, type: pa.DataType) -> pa.Table:
    values = pa.array([b"%d" % one for one in offsets]).cast(type)
    parts = pa.array([0] * len(offsets), pa.int32())
    return pa.table({"value": values, "partition": parts, "offset": pa.array(offsets, pa.int64())})


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_without_rows_and_of_other_types_keep_offsets(tmp_path: Path, suffix: str) -> None:
    tables = [of_offsets(0, 7, type=pa.string()), of_offsets(type=pa.binary()), of_offsets(9, type=pa.large_binary()),
              of_offsets(12, type=pa.binary())]  # fmt: skip
    (tmp_path / "in").mkdir()
    for number, table in enumerate(tables):
        path = tmp_path / "in" / f"{number}.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                for batch in table.to_batches() or table.schema.empty_table().to_batches():
                    out.write_batch(batch)
    report = import_records(tmp_path / "in", tmp_path / "back", "t")
    assert (report.kept, report.records) == (True, 4)
    with kafkalog.open(tmp_path / "back" / "t-0") as log:
        assert [(one.offset, one.value) for one in log] == [(0, b"0"), (7, b"7"), (9, b"9"), (12, b"12")]


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.large_binary()])
def test_an_import_of_text_goes_on(tmp_path: Path, type: pa.DataType) -> None:
    table = of_offsets(0, 1, 2, 3, type=type)
    pq.write_table(table.append_column("key", table["value"]).slice(0, 2), tmp_path / "1.parquet")
    assert import_records(tmp_path / "1.parquet", tmp_path / "back", "t").kept
    pq.write_table(table.append_column("key", table["value"]), tmp_path / "1.parquet")
    report = import_records(tmp_path / "1.parquet", tmp_path / "back", "t", resume=True)
    assert (report.before, report.records) == (2, 2)
    with kafkalog.open(tmp_path / "back" / "t-0") as log:
        assert [(one.key, one.value) for one in log] == [(b"%d" % n, b"%d" % n) for n in range(4)]


def test_a_column_without_values_is_imported_as_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [b"k"], "value": pa.nulls(1)}), tmp_path / "x.parquet")
    import_records(tmp_path / "x.parquet", tmp_path / "back", "t")
    with kafkalog.open(tmp_path / "back" / "t-0") as log:
        assert [(one.key, one.value) for one in log] == [(b"k", None)]


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(IllegalArgument, match="there are 2 columns 'value'"):
        import_records(tmp_path / "x.parquet", tmp_path / "back", "t")


@pytest.mark.parametrize(
    ("name", "column"),
    [("timestampType", pa.array([1 << 40])), ("timestamp", pa.array([1 << 62], pa.timestamp("s")))],
)
def test_a_number_beyond_its_part_of_a_record_is_refused(tmp_path: Path, name: str, column: pa.Array) -> None:
    table = pa.table({"value": [b"v"], name: column})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    with pytest.raises(IllegalArgument, match=f"column '{name}' has a value that cannot be a {name}"):
        import_records(tmp_path / "x.arrow", tmp_path / "back", "t")


@pytest.mark.parametrize("field", [b'"topic":"\\ud800"', b'"partition":1099511627776', b'"partition":-1'])
def test_a_line_with_no_partition_of_a_topic_is_refused_with_its_place(tmp_path: Path, field: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(0) + b'{"payload":"v",%s}' % field)
    with pytest.raises(FormatError, match="line is not a record") as caught:
        import_records(tmp_path / "x.jsonl", tmp_path / "back")
    assert caught.value.position == len(line(0))


def test_the_name_of_a_directory_is_the_topic_of_lines_without_one(tmp_path: Path) -> None:
    place = tmp_path / "in" / "topic=orders"
    place.mkdir(parents=True)
    (place / "1.jsonl").write_bytes(b'{"payload":"first"}\n{"payload":"second"}\n')
    (place / "2.jsonl").write_bytes(b'{"payload":"third","topic":"users"}\n')
    import_records(tmp_path / "in", tmp_path / "back")
    found = read_records(tmp_path / "back")
    assert {name: len(records) for name, records in found.items()} == {"orders-0": 2, "users-0": 1}
    (place / "1.jsonl").write_bytes(b'{"payload":"first"}\n{"payload":"second","topic":"users"}\n')
    with pytest.raises(IllegalArgument, match="row 0 has no topic"):
        import_records(tmp_path / "in", tmp_path / "back")


def test_a_number_in_a_file_does_not_fill_the_disk_with_partitions(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(2_000_000_000))
    with pytest.raises(IllegalArgument, match="give --partitions 2000000001 if that is intended"):
        import_records(tmp_path / "x.jsonl", tmp_path / "back")
    assert not list((tmp_path / "back").glob("t-*"))
    (tmp_path / "x.jsonl").write_bytes(line(20))
    assert import_records(tmp_path / "x.jsonl", tmp_path / "back").records == 1


@pytest.mark.parametrize("offset", [-(2**63), -5, 2**63 - 1])
def test_an_offset_that_no_record_has_is_told(tmp_path: Path, offset: int) -> None:
    columns = {"value": [b"a", b"b"], "topic": ["t", "t"], "partition": pa.array([0, 0], pa.int32())}
    pq.write_table(pa.table({**columns, "offset": pa.array([offset, 7])}), tmp_path / "x.parquet")
    with pytest.raises(IllegalArgument, match=f"with the invalid offset {offset}"):
        import_records(tmp_path / "x.parquet", tmp_path / "back")
    assert import_records(tmp_path / "x.parquet", tmp_path / "back", offsets="new").records == 2


def test_a_line_without_an_end_is_told_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_rows, "MAX_LINE_BYTES", 1000)
    (tmp_path / "x.jsonl").write_bytes(line(0) + b'{"value":"' + bytes(5000))
    with pytest.raises(FormatError, match="1000 bytes or more") as caught:
        import_records(tmp_path / "x.jsonl", tmp_path / "back")
    assert caught.value.position == len(line(0))


@pytest.mark.parametrize("target", ["data/in", "data", "."])
def test_a_data_directory_is_not_exported_into_itself(data: Path, tmp_path: Path, target: str) -> None:
    export_directory(data, tmp_path / "data")
    before = files(tmp_path)
    with pytest.raises(IllegalArgument, match="the target and the data directory .* overlap"):
        export_directory(tmp_path / "data", tmp_path / target)
    with pytest.raises(IllegalArgument, match="the target and the data directory .* overlap"):
        import_directory(tmp_path / "data", tmp_path / target)
    assert files(tmp_path) == before


def test_rows_of_others_are_appended_by_key(tmp_path: Path) -> None:
    table = pa.table({"id": [b"a", b"b", b"c"], "what": ["x", "y", None]})
    pq.write_table(table, tmp_path / "rows.parquet")
    done = import_records(
        tmp_path / "rows.parquet", tmp_path / "data", "t", columns={"key": "id", "value": "what"}, partitions=3
    )
    assert (done.records, done.kept) == (3, False)
    found = sorted((one[2], one[3]) for rows in read_records(tmp_path / "data").values() for one in rows)
    assert found == [(b"a", b"x"), (b"b", b"y"), (b"c", None)] and len(read_records(tmp_path / "data")) == 3


def partitions_in(found: dict[str, bytes], without: str = "-") -> dict[str, bytes]:
    """The files of partitions, but for those that wait for their delete."""
    wanted = {name: content for name, content in found.items() if "/" in name and not name.endswith(".deleted")}
    return {name: content for name, content in wanted.items() if not name.startswith(without)}


def test_a_data_directory_comes_back_byte_by_byte(data: Path, tmp_path: Path) -> None:
    manifest = export_directory(data, tmp_path / "out", committed=lambda _: {"g": {"orders": {1: 7}, "other": {0: 1}}})
    assert manifest.groups == {"g": {"orders": {1: 7}}} and manifest.topics["orders"]["retention.ms"] == "-1"
    told = json.loads((tmp_path / "out" / "kafkalog.export.json").read_text())
    assert told["groups"] == {"g": {"orders": {"1": 7}}} and told["topics"]["seen"]["cleanup.policy"] == "compact"
    there = files(tmp_path / "out")
    assert partitions_in(there) == partitions_in(files(data))
    assert not list(tmp_path.glob("*.kafkalog-export"))
    with kafkalog.open_dirs(tmp_path / "mine", "a") as dirs:
        dirs.create_topic("other", 1, {})
        dirs["other", 0].append([b"stays"])
    assert len(import_directory(tmp_path / "out", tmp_path / "mine")) == 3
    assert partitions_in(files(tmp_path / "mine"), without="other") == partitions_in(there)
    with kafkalog.open_dirs(tmp_path / "mine", "a") as dirs:
        assert dirs.topics["seen"].settings["cleanup.policy"] == "compact"
        assert dirs["orders", 0].append([b"next"]).base_offset == 500
    assert verify(tmp_path / "mine", deep=True).ok
    with pytest.raises(TopicExists, match="--resume"):
        import_directory(tmp_path / "out", tmp_path / "mine")
    assert import_directory(tmp_path / "out", tmp_path / "mine", resume=True) == []


def test_a_changed_file_is_not_imported(data: Path, tmp_path: Path) -> None:
    export_directory(data, tmp_path / "out", topics=["orders"])
    assert [path.name for path in (tmp_path / "out").glob("*-0")] == ["orders-0"]
    path = tmp_path / "out" / "orders-1" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptBackup) as caught:
        import_directory(tmp_path / "out", tmp_path / "mine")
    assert caught.value.path == str(path) and not list((tmp_path / "mine").glob("orders*"))


def test_commands(data: Path, tmp_path: Path) -> None:
    lines = ("export", "-d", data, "-t", "orders", "--format", "jsonl", tmp_path / "out")
    assert commands.ok(*lines).startswith(b"exported 1,000 records into 2 files")
    assert b"0 records" in commands.ok(*lines, "--resume")
    done = commands.kafkalog(*lines)
    assert done.returncode == 2 and b"--resume" in done.stderr
    out = commands.ok("import", tmp_path / "out", "-d", tmp_path / "back")
    assert out == b"1,000 records of 2 files with their offsets\n"
    assert read_records(tmp_path / "back")["orders-1"] == read_records(data)["orders-1"]
    whole = ("export", "-d", data, "--format", "kafka-dir")
    assert commands.ok(*whole, tmp_path / "dir").startswith(b"exported 3 partitions")
    assert b"3 partitions" in commands.ok("import", "--format", "kafka-dir", tmp_path / "dir", "-d", tmp_path / "more")
    assert b"3 partitions" in commands.ok("import", tmp_path / "dir", "-d", tmp_path / "told by its manifest")
    with pytest.raises(IllegalArgument, match="this is an exported data directory"):
        import_records([tmp_path / "dir"], tmp_path / "rows")
    done = commands.kafkalog(*whole, "--columns", "key", tmp_path / "no")
    assert done.returncode == 2 and b"whole partitions" in done.stderr


def test_an_export_does_not_go_into_a_data_directory(tmp_path: Path) -> None:
    """A broker would not start with it; also where the directory is another one than that of the topics."""
    data, other = tmp_path / "data", tmp_path / "other"
    write_topics(data, 10)
    write_topics(other, 10)
    for target in (data / "out", data, other / "deep" / "out"):
        before = files(target.parent if target.parent.exists() else other)
        with pytest.raises(IllegalArgument, match="an export cannot be stored in the data directory"):
            export_records(data, target)
        assert files(target.parent if target.parent.exists() else other) == before


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("part", ["offset", "partition"])
def test_rows_of_which_one_lacks_its_place_are_appended(tmp_path: Path, suffix: str, part: str) -> None:
    rows = [{"topic": "t", "partition": 0, "offset": n, "value": b"%d" % n} for n in (4, 5, 6)]
    rows[1][part] = None
    table, path = pa.Table.from_pylist(rows), tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    with pytest.raises(IllegalArgument, match="some rows lack topic, partition or offset"):
        import_records(path, tmp_path / "data", offsets="keep")
    assert not import_records(path, tmp_path / "data").kept
    with kafkalog.open_dirs(tmp_path / "data") as dirs:
        assert [(one.offset, one.value) for one in dirs["t", 0].records()] == [(0, b"4"), (1, b"5"), (2, b"6")]
