"""Tasks of the job `ingest` that read lines: every line once, in the order of the files, however they are cut."""

import os
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.bytes.murmur import partition_for_key
from kafkalog.errors import (
    FormatError,
    IllegalArgument,
    InvalidPartitions,
    InvalidRecord,
    RecordTooLarge,
    StorageError,
    TopicExists,
)
from kafkalog.landing.commit import Committer, StagedTask
from kafkalog.landing.staging import Job
from kafkalog.landing.task_stage import Landing
from kafkalog.records.packing import parse_compression
from kafkalog.spark.jobs import ingest, text_lines
from kafkalog.spark.jobs.json_fields import fields_of
from kafkalog.spark.jobs.text_lines import TextOptions, check_text, files_of, stage_lines, text_tasks
from tests.spark.sink_cases import staged_names


def landing(directory: Path, partitions: int = 1, codec: str | None = None) -> Landing:
    directory.mkdir(exist_ok=True)
    return Landing(str(directory), Job.batch("j"), partitions, None if codec is None else parse_compression(codec))


def read_values(directory: Path, name: str = "t-0") -> list[bytes]:
    with kafkalog.open(directory / name) as log:
        return [bytes(rec.value or b"") for rec in log]


def ingest_all(paths: list[Path], options: TextOptions, to: Landing, split_bytes: int) -> int:
    """Run the job without Spark."""
    tasks = text_tasks([str(path) for path in paths], options, to, split_bytes)
    return Committer(to.directory).commit(to.job, 0, [stage_lines(task) for task in tasks]).records


def lines_of(text: bytes, delimiter: bytes) -> list[bytes]:
    parts = text.split(delimiter)
    return parts if parts[-1] else parts[:-1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"--", b"-"]), max_size=40).map(b"".join),
    split=st.integers(1, 30),
    delimiter=st.sampled_from([b"\n", b"\r\n", b"--", b"a-a"]),
)
def test_each_line_once_in_order_wherever_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, split: int, delimiter: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines")
    (path / "in.txt").write_bytes(text)
    expected = lines_of(text, delimiter)
    assert ingest_all([path / "in.txt"], TextOptions("t", delimiter), landing(path / "d"), split) == len(expected)
    if expected:
        assert read_values(path / "d") == expected


def test_files_come_one_after_another_whatever_their_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "CHUNK_BYTES", 64)
    expected = []
    for name, count in (("b", 900), ("a", 5), ("c", 300)):
        lines = [f"{name} {n}".encode() * (n % 7) for n in range(count)]
        (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
        expected += lines
    paths = [tmp_path / name for name in "bac"]
    assert ingest_all(paths, TextOptions("t", batch_bytes=512), landing(tmp_path / "d"), 1000)
    assert read_values(tmp_path / "d") == expected
    with kafkalog.open(tmp_path / "d" / "t-0") as log:
        assert [segment.base_offset for segment in log.segments] == [0]
        assert log.verify().ok


def test_a_line_longer_than_chunks_and_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "CHUNK_BYTES", 64)
    (tmp_path / "in").write_bytes(b"x" * 10_000 + b"\n" + b"y" * 5000)
    ingest_all([tmp_path / "in"], TextOptions("t"), landing(tmp_path / "d"), 100)
    assert read_values(tmp_path / "d") == [b"x" * 10_000, b"y" * 5000]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy:", "gzip:1"])
def test_batches_are_compressed(tmp_path: Path, codec: str) -> None:
    lines = [b"hello lagou %d" % n for n in range(5000)]
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    ingest_all([tmp_path / "in"], TextOptions("t"), landing(tmp_path / "d", codec=codec.rstrip(":")), 1 << 20)
    assert read_values(tmp_path / "d") == lines
    assert (tmp_path / "d" / "t-0" / f"{0:020d}.log").stat().st_size < 50_000


def test_keyed_lines_go_where_kafka_puts_them(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"".join(b"k%d=v%d\n" % (n % 5, n) for n in range(100)) + b"no key\n")
    ingest_all([tmp_path / "in"], TextOptions("t", key_delimiter=b"="), landing(tmp_path / "d", partitions=3), 64)
    with kafkalog.open_dirs(tmp_path / "d") as dirs:
        found = {bytes(rec.key): log.partition for log in dirs.logs("t") for rec in log if rec.key is not None}
        assert sum(len(list(log)) for log in dirs.logs("t")) == 101
    assert found == {key: partition_for_key(key, 3) for key in found}


def test_a_line_that_the_topic_does_not_take_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"short\n" * 10 + b"x" * 3_000_000 + b"\n")
    with pytest.raises(RecordTooLarge, match=r"in, position 60"):
        ingest_all([tmp_path / "in"], TextOptions("t"), landing(tmp_path / "d"), 1 << 20)
    assert os.listdir(tmp_path / "d") == []


def test_a_line_just_over_the_limit_is_refused_before_anything_is_decided(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 1_048_576 + b"\n")
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        ingest_all([tmp_path / "in"], TextOptions("t"), landing(tmp_path / "d"), 1 << 20)
    assert os.listdir(tmp_path / "d") == []


def test_a_file_that_shrinks_after_it_was_planned_is_told(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb\nc\n")
    (task,) = text_tasks([str(tmp_path / "in")], TextOptions("t"), landing(tmp_path / "d"))
    (tmp_path / "in").write_bytes(b"a\n")
    with pytest.raises(FormatError, match="has 2 bytes, but had at least 6"):
        stage_lines(task)
    assert os.listdir(tmp_path / "d") == []


def test_what_a_failed_commit_did_not_decide_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "check_executors", lambda *_: None)
    kafkalog.open(tmp_path / "d" / "a_b-0", "a").close()
    (tmp_path / "in").write_bytes(b"a\n")
    to = landing(tmp_path / "d")
    tasks = text_tasks([str(tmp_path / "in")], TextOptions("a.b"), to)

    def staged() -> list[StagedTask]:
        return [stage_lines(task) for task in tasks]

    with pytest.raises(TopicExists, match="a_b"):
        ingest.land(cast(Any, None), to, [], staged, keep=True)
    assert staged_names(tmp_path / "d") == []


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    for name, error, message in (("x.gz", FormatError, "decompress"), ("missing", StorageError, "missing")):
        with pytest.raises(error, match=message):
            text_tasks([str(tmp_path / name)], TextOptions("t"), landing(tmp_path / "d"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="the directory has no files"):
        files_of([str(tmp_path / "empty")])


def test_directories_are_read_by_name_and_hidden_files_passed_over(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a", "_SUCCESS", ".hidden/x", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = [os.path.relpath(path, tmp_path) for path in files_of([str(tmp_path)])]
    assert found == ["a", "c", "b/1", "b/2"]


def test_options_that_cannot_be() -> None:
    for options, split in ((TextOptions("t", b""), 1), (TextOptions("t", key_delimiter=b""), 1),
                           (TextOptions("t", batch_bytes=10), 1), (TextOptions("t"), 0)):  # fmt: skip
        with pytest.raises(IllegalArgument):
            check_text(options, split)


@pytest.mark.parametrize("count", [0, -1, 100_001, 2**31, True])
def test_a_number_of_partitions_that_no_topic_has(tmp_path: Path, count: int) -> None:
    with pytest.raises(InvalidPartitions):
        ingest.landing_for(tmp_path / "d", count, None, None)
    assert not (tmp_path / "d").exists()


def test_fields_of_json_are_as_they_are_written() -> None:
    assert fields_of(b" { } ") == {}
    assert fields_of(b'{"k":1.10, "v" : {"a":[1,  2.50]} ,"s":"a\\u00e9","n":null,"e":1e400,"\\u006b":-0}\r') == {
        "k": "-0", "v": '{"a":[1,  2.50]}', "s": "a\u00e9", "n": None, "e": "1e400",
    }  # fmt: skip
    assert fields_of(b'{"k":' + b"9" * 9999 + b"}") == {"k": "9" * 9999}


@pytest.mark.parametrize(
    "line",
    [
        b"[1]", b"null", b'{"k"}', b'{"k":1,}', b'{"k":1} x', b"{1:2}", b'{"k":tru}', b'{"k":', b'{"k":01}',
        b'{"k":"\t"}', b'{"k":"\\ud800"}', b'{"k":"\xff"}', b'{"k":' + b"[" * 99_999,
    ],
)  # fmt: skip
def test_a_line_that_is_no_json_object_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRecord, match="malformed JSON: .*in the line"):
        fields_of(line)
