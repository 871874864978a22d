"""Input files that are replaced or damaged between the survey of an import and its reading."""

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import FormatError, StorageError
from kafkalog.exchange.export import export_records
from kafkalog.exchange.import_ import import_records
from kafkalog.exchange.manifest import MANIFEST, OWN
from kafkalog.exchange.row_files import ordered_rows, survey, unordered_rows
from kafkalog.types import TopicPartition


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_an_input_that_is_replaced_while_it_is_imported(tmp_path: Path, suffix: str) -> None:
    """Its further rows would be missed: the survey knows the groups of the file before."""
    path = tmp_path / f"rows{suffix}"
    write_rows(path, 3)
    facts = survey(str(path), {}, None)
    assert sum(len(one) for one in ordered_rows(TopicPartition("t", 0), [facts])) == 3
    other = tmp_path / "other"
    write_rows(other.with_suffix(suffix), 5)
    os.replace(other.with_suffix(suffix), path)
    for rows in (ordered_rows(TopicPartition("t", 0), [facts]), unordered_rows(facts)):
        with pytest.raises(FormatError, match="changed after the import.*run the import again"):
            list(rows)


def write_rows(path: Path, count: int) -> None:
    rows = [{"topic": "t", "partition": 0, "offset": n, "value": f"{n}"} for n in range(count)]
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        lines = [{**row, "ts": 1, "key": None, "payload": "one", "headers": []} for row in rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    else:
        pq.write_table(table, path)


def test_a_damaged_page_of_a_parquet_file_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, 2000)
    facts = survey(str(path), {}, None)
    content, time_ns = bytearray(path.read_bytes()), path.stat().st_mtime_ns
    content[len(content) // 2 - 500 : len(content) // 2 + 500] = bytes(1000)
    path.write_bytes(content)
    os.utime(path, ns=(time_ns, time_ns))
    for rows in (ordered_rows(TopicPartition("t", 0), [facts]), unordered_rows(facts)):
        with pytest.raises(FormatError, match=r"rows\.parquet"):
            list(rows)


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_changed_byte_of_an_export_is_found_by_its_import(tmp_path: Path, compression: str) -> None:
    """It could be a byte of a value, which any other value would fit."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append([(b"k%d" % n, bytes(range(n, n + 50))) for n in range(200)])
    export_records(tmp_path / "data", tmp_path / "out", "parquet", compression=compression)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    content = path.read_bytes()
    pages = pq.ParquetFile(path).metadata.row_group(0)
    values = next(pages.column(n) for n in range(pages.num_columns) if pages.column(n).path_in_schema == "value")
    place = values.data_page_offset + values.total_compressed_size // 2
    copied = tmp_path / "copied.parquet"  # outside of the export, whose manifest has a checksum too
    copied.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(FormatError, match=r"the file is damaged.*\.parquet"):
        import_records(copied, tmp_path / "again", "t")


@pytest.mark.parametrize("format", ["jsonl", "arrow", "parquet"])
def test_a_file_of_an_export_that_was_changed_is_not_imported(tmp_path: Path, format: str) -> None:
    """Each changed byte, and what is missing at the end: of JSON lines and Arrow files only the manifest has sums."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {})
        dirs["t", 0].append([(b"k", b"value-%d" % n, n) for n in range(20)])
    out = tmp_path / "out"
    export_records(tmp_path / "data", out, format, by_date=format != "jsonl")
    (path,) = (out / "topic=t").rglob(f"*.{format}")
    sound = path.read_bytes()
    spoilt = [sound[:-1], sound[: sound.rindex(b"\n")] if format == "jsonl" else sound + b"\0"]
    for at in range(0, len(sound), len(sound) // 25):
        spoilt.append(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    for content in spoilt:
        path.write_bytes(content)
        for source in (out, path):
            with pytest.raises(FormatError, match="not as the export wrote it.*outside of the export"):
                import_records(source, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    elsewhere = tmp_path / "elsewhere" / path.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(sound.replace(b"value-3", b"value-4", 1) if format == "jsonl" else sound)
    assert import_records(elsewhere, tmp_path / "edited", "t").records == 20
    path.write_bytes(sound)
    assert import_records(out, tmp_path / "again").records == 20


def test_an_import_from_an_export_of_an_earlier_version_or_with_a_damaged_manifest(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {})
        dirs["t", 0].append([(b"k", b"v", 1)])
    export_records(tmp_path / "data", tmp_path / "out", "jsonl")
    manifest = tmp_path / "out" / OWN / MANIFEST
    lines = [json.loads(line) for line in manifest.read_bytes().splitlines()]
    del lines[1]["files"][0]["crc32c"]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert import_records(tmp_path / "out", tmp_path / "again").records == 1
    assert export_records(tmp_path / "data", tmp_path / "out", "jsonl", resume=True).before == 1
    manifest.write_bytes(manifest.read_bytes().replace(b'"records"', b'"recards"'))
    with pytest.raises(FormatError, match="line 2 of the export's manifest cannot be read"):
        import_records(tmp_path / "out", tmp_path / "other")


@pytest.mark.parametrize("content", [b"", b'{"kafkalog_export":1,"col'])
def test_a_manifest_that_was_cut_off_is_not_an_export_of_nothing(tmp_path: Path, content: bytes) -> None:
    """An export would write all records a second time, and an import would compare no checksums."""
    out = exported(tmp_path)
    (out / OWN / MANIFEST).write_bytes(content)
    for work in (lambda: export_records(tmp_path / "data", out, "jsonl", resume=True),
                 lambda: import_records(out, tmp_path / "again")):  # fmt: skip
        with pytest.raises(FormatError, match="line 1 of the export's manifest cannot be read: it is cut off"):
            work()
    assert (out / OWN / MANIFEST).read_bytes() == content


def exported(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {})
        dirs["t", 0].append([b"v"])
    export_records(tmp_path / "data", tmp_path / "out", "jsonl")
    return tmp_path / "out"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"5", b"\xff", b"[" * 100_000, b'{"files":[{}]}'])
def test_a_damaged_file_of_a_finished_task_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    out = exported(tmp_path)
    done = out / OWN / "staging" / "dead" / "t-0.done"
    done.parent.mkdir()
    done.write_bytes(content)
    with pytest.raises(FormatError, match="the file of a finished task cannot be read.*delete it") as caught:
        export_records(tmp_path / "data", out, "jsonl", resume=True)
    assert caught.value.path == str(done)
    done.unlink()
    assert export_records(tmp_path / "data", out, "jsonl", resume=True).before == 1


def test_an_arrow_file_whose_values_lie_outside_of_it(tmp_path: Path) -> None:
    """Arrow reads memory behind the file's bytes at such offsets: values from there, or a crash."""
    path = tmp_path / "rows.arrow"
    table = pa.table({"value": pa.array([b"v0", b"v1", b"v2", b"v3"])})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = path.read_bytes()
    sound, spoilt = struct.pack("<5i", 0, 2, 4, 6, 8), struct.pack("<5i", 0, 2, 4, 6, 16)
    assert content.count(sound) == 1
    path.write_bytes(content.replace(sound, spoilt))
    with pytest.raises(FormatError, match="the file is damaged"):
        import_records(path, tmp_path / "data", "t")


def test_files_that_are_missing_from_an_export_are_not_left_out(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        for topic in ("one", "two"):
            dirs.create_topic(topic, 1, {})
            dirs[topic, 0].append([b"v"])
    out = tmp_path / "out"
    export_records(tmp_path / "data", out, "jsonl")
    (path,) = (out / "topic=two").iterdir()
    path.unlink()
    with pytest.raises(FormatError, match=r"has written topic=two/.*, which is missing.*name the directories in it"):
        import_records(out, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert import_records(out / "topic=one", tmp_path / "again").records == 1


def test_a_directory_of_inputs_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / "in" / name).mkdir(parents=True)
        write_rows(tmp_path / "in" / name / "rows.jsonl", 2)
    scan = os.scandir

    def fail(path: str) -> Any:
        if path.endswith("two"):
            raise OSError(errno.EIO, "Input/output error", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StorageError, match="cannot read the directory.*two"):
        import_records(tmp_path / "in", tmp_path / "data")


def test_an_arrow_file_whose_time_zone_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    table = pa.table({"value": pa.array([b"v"]), "timestamp": pa.array([1], pa.timestamp("ms", "Etc/Zulu"))})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"Etc/Zulu", b"Etc/Zul\xff"))
    with pytest.raises(FormatError, match=r"not an Arrow file.*rows\.arrow"):
        import_records(path, tmp_path / "data", "t")


def test_parquet_statistics_that_are_damaged_do_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow ends it where it looks at such a column's statistics: here, a histogram of no levels has two."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"value": [b"v"], "offset": [3], "partition": [0], "items": [[1, 2]]}), path)
    path.write_bytes(path.read_bytes().replace(b"\x19\x06\x19\x26", b"\x19\x26\x19\x26"))
    code = "import sys; from kafkalog.exchange.row_files import survey; print(survey(sys.argv[1], {}, 't').groups)"
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert run.returncode == 0 or "FormatError" in run.stderr, run.stderr
