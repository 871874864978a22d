"""What the job `import` does in its tasks and its commit: exported partitions come back as they were."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import FormatError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.spark.commit import Committer
from kafkalog.spark.jobs import kept_offsets
from kafkalog.spark.jobs.import_ import PartitionTask, stage_json, stage_partition
from kafkalog.spark.jobs.kept_offsets import KeptTarget, finish_imports, is_empty, land_with_offsets
from kafkalog.spark.jobs.manifest import ExportSettings
from kafkalog.spark.jobs.parquet_files import ExportTask, export_range
from kafkalog.spark.jobs.parquet_rows import ordered_rows, survey
from kafkalog.spark.jobs.task_stage import Landing
from kafkalog.spark.jobs.text_lines import TextOptions, text_tasks
from kafkalog.spark.ranges import OffsetRange
from kafkalog.spark.staging import Job
from kafkalog.types import TopicPartition
from tests.golden_cases import Case, each_partition

ALL = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")


def exported(log: Path, out: Path, cuts: int = 1, **changes: Any) -> list[str]:
    """The files of an export of a partition, in as many tasks."""
    topic, _, number = log.name.rpartition("-")
    staging = out / "staging"
    staging.mkdir(parents=True)
    with kafkalog.open(log) as opened:
        start, stop = opened.start_offset, opened.end_offset
    found = []
    places = [start + (stop - start) * n // cuts for n in range(cuts + 1)]
    for first, last in zip(places, places[1:], strict=False):
        if first == last:
            continue
        wanted = OffsetRange(topic, int(number), str(log), first, last)
        values = {"compression": "zstd", "file_bytes": 1 << 16, **changes}
        same = ExportSettings(ALL, "read_uncommitted", True)
        task = ExportTask(wanted, 1, None, same, staging=str(staging), **values)
        for file in export_range(task).files:
            place = out / file.place
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(out / file.staged, place)
            found.append(str(place))
    return found


def staged(files: list[str], data: Path, keep: bool = True) -> list[KeptTarget]:
    """What the tasks stage."""
    data.mkdir(exist_ok=True)
    facts = [survey(path, {}, None) for path in files]
    assert all(one.is_ordered for one in facts)
    wheres = sorted({where for one in facts for group in one.groups for where in group.wheres})
    targets = []
    for n, where in enumerate(wheres):
        landing = Landing(str(data), Job.batch("j"), where.partition + 1, None)
        done = stage_partition(PartitionTask(n, where, tuple(facts), keep, landing))
        assert done.task.file is not None
        targets.append(KeptTarget(where, done.first, done.end, done.task.file))
    return targets


def put(files: list[str], data: Path) -> None:
    targets = staged(files, data)
    land_with_offsets(str(data), Job.batch("j"), targets, {one.topic_partition.topic: one.topic_partition.partition + 1
                                                           for one in targets})  # fmt: skip


def told(log: Path) -> list[tuple[Any, ...]]:
    """All of each record; a type of time that v2 does not have is CreateTime, a name that is no UTF-8 is replaced."""
    with kafkalog.open(log) as opened:
        return [
            (rec.offset, rec.timestamp, max(int(rec.timestamp_type), 0), rec.key, rec.value,
             [(replaced(name), value) for name, value in rec.headers])
            for rec in opened
        ]  # fmt: skip


def replaced(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@each_partition("logdir", "legacy")
def test_every_golden_partition_comes_back_as_it_was(case: Case, tmp_path: Path) -> None:
    expected = told(case.directory)
    files = exported(case.directory, tmp_path / "out", cuts=3)
    if not expected:
        assert files == []
        return
    put(files, tmp_path / "data")
    copy = tmp_path / "data" / case.directory.name
    assert told(copy) == expected
    assert kafkalog.verify([tmp_path / "data"]).ok
    assert not [name for name in os.listdir(tmp_path / "data") if "import" in name or "stage" in name]


record = st.tuples(
    st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=20), st.integers(-1, 2**40),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(record, min_size=1, max_size=40), st.integers(1, 3), st.sets(st.integers(1, 39)))
def test_whatever_records_there_are(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], cuts: int, gaps: set[int]
) -> None:
    path = tmp_path_factory.mktemp("import")
    after = 2**62
    with kafkalog.open(path / "src" / "t-2", "a", retention_ms=-1, message_timestamp_after_max_ms=after) as log:
        log.truncate_fully_and_start_at(7)
        for n, one in enumerate(records):
            if n in gaps:  # an offset is missing
                log.replicate(_one(log.end_offset + 1, one))
            else:
                log.replicate(_one(log.end_offset, one))
    put(exported(path / "src" / "t-2", path / "out", cuts), path / "data")
    assert told(path / "data" / "t-2") == told(path / "src" / "t-2")


def _one(offset: int, record: Any) -> bytes:
    from kafkalog._core.encode import encode_batch

    return bytes(encode_batch([record], timestamp=-1, base_offset=offset, leader_epoch=0))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    with kafkalog.open(tmp_path / "src" / "t-1", "a", retention_ms=-1) as log:
        for n in range(0, 3000, 100):
            log.append([(b"k", b"%d" % i, i % 3 * 86_400_000) for i in range(n, n + 100)])
        log.delete_before(40)
    return exported(tmp_path / "src" / "t-1", tmp_path / "out", cuts=2)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", range(6))
def test_an_import_that_is_killed_is_finished_by_the_next_one(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    data = tmp_path / "data"
    monkeypatch.setattr(kept_offsets, "APPEND_BYTES", 20_000)
    targets = staged(files, data)
    calls = []

    def groups(table: Any, end: int, real: Any = kept_offsets._groups) -> Any:
        for one in real(table, end):
            if len(calls) == at:
                raise Killed
            calls.append(one)
            yield one

    with monkeypatch.context() as patch:
        patch.setattr(kept_offsets, "_groups", groups)
        try:
            land_with_offsets(str(data), Job.batch("j"), targets, {"t": 2})
        except Killed:
            assert "kafkalog-import.job-j.json" in os.listdir(data)
    finish_imports(str(data))
    assert told(data / "t-1") == told(tmp_path / "src" / "t-1")
    assert not [name for name in os.listdir(data) if "import" in name or "stage" in name]
    finish_imports(str(data))


def test_what_somebody_else_wrote_meanwhile_is_not_mixed_in(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    targets = staged(files, data)
    with monkeypatch.context() as patch:
        patch.setattr(kept_offsets, "_append", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            land_with_offsets(str(data), Job.batch("j"), targets, {"t": 2})
    with kafkalog.open(data / "t-1", "a", retention_ms=-1) as log:
        log.append([b"x"] * 50)
    with pytest.raises(IllegalState, match="can go on"):
        finish_imports(str(data))


def test_a_target_that_is_not_empty_keeps_what_it_has(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    targets = staged(files, data)
    assert is_empty(str(data), TopicPartition("t", 1))
    with kafkalog.open(data / "t-1", "a") as log:
        log.append(b"first")
    with pytest.raises(IllegalState, match="not empty any more"):
        land_with_offsets(str(data), Job.batch("j"), targets, {"t": 2})
    assert len(told(data / "t-1")) == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"targets": [["t", -1, 0, 5, []]], "partitions": {}}',
                                     '{"targets": [], "partitions": {"../t": 1}}'])  # fmt: skip
def test_a_plan_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "kafkalog-import.job-j.json").write_text(content)
    with pytest.raises(FormatError, match=r"kafkalog-import\.job-j\.json"):
        finish_imports(str(tmp_path))


def test_the_same_records_in_two_files_are_refused(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "out" / "topic=t" / "copy.parquet"
    copy.write_bytes(Path(files[0]).read_bytes())
    with pytest.raises(IllegalArgument, match="has an offset twice"):
        staged([*files, str(copy)], tmp_path / "data")


def test_files_of_any_order_and_several_partitions_are_sorted_out(tmp_path: Path) -> None:
    offsets = [5, 1, 9, 3, 0, 7, 2, 8]
    table = pa.table({
        "value": pa.array([b"%d" % n for n in offsets]), "offset": pa.array(offsets, pa.int64()),
        "topic": ["a" if n % 2 else "b" for n in offsets], "partition": pa.array([n % 2 for n in offsets], pa.int32()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    facts = survey(str(tmp_path / "x.parquet"), {}, None)
    found = {
        where: [n for part in ordered_rows(where, [facts]) for n in part["offset"].to_pylist()]
        for where in (TopicPartition("a", 1), TopicPartition("b", 0))
    }
    assert found == {TopicPartition("a", 1): [1, 3, 5, 7, 9], TopicPartition("b", 0): [0, 2, 8]}


@pytest.mark.parametrize(
    ("columns", "names", "told"),
    [
        ({"valu": [b"x"]}, {}, "did you mean valu"),
        ({"value": [1]}, {}, "is int64, which cannot be the value"),
        ({"value": [b"x"], "partition": ["a"]}, {}, "is string, which cannot be the partition"),
        ({"value": [b"x"], "timestamp": [1.5]}, {}, "is double, which cannot be the timestamp"),
        ({"value": [b"x"]}, {"key": "id"}, "no column 'id', which is to be the key"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path: Path, columns: Any, names: dict[str, str], told: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(IllegalArgument, match=told):
        survey(str(tmp_path / "x.parquet"), names, "t")


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("nothing of the kind")
    with pytest.raises(FormatError, match=r"x\.parquet"):
        survey(str(tmp_path / "x.parquet"), {}, None)
    with pytest.raises(KafkalogError, match=r"missing"):
        survey(str(tmp_path / "missing.parquet"), {}, None)


def test_json_lines_as_consume_prints_them(tmp_path: Path) -> None:
    lines = [
        {"partition": 1, "ts": -1, "key": None, "payload": "a", "headers": ["h", "1"]},
        {"partition": 0, "ts": 5, "key": "k", "payload": None},
        {"partition": 1, "ts": 6, "key": "/w==", "key_encoding": "base64", "payload": "c"},
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "data").mkdir()
    landing = Landing(str(tmp_path / "data"), Job.batch("j"), 2, None)
    tasks = text_tasks([str(tmp_path / "x.jsonl")], TextOptions("t"), landing, 70)
    assert len(tasks) > 1
    Committer(landing.directory).commit(landing.job, 0, [stage_json(task).task for task in tasks])
    assert [one[1:] for one in told(tmp_path / "data" / "t-1")] == [
        (-1, 0, None, b"a", [("h", b"1")]), (6, 0, b"\xff", b"c", []),
    ]  # fmt: skip
    assert [one[1:] for one in told(tmp_path / "data" / "t-0")] == [(5, 0, b"k", None, [])]
    (tmp_path / "bad.jsonl").write_text('{"payload": "a"}\n{"payload": 1}\n')
    (task,) = text_tasks([str(tmp_path / "bad.jsonl")], TextOptions("t"), landing)
    with pytest.raises(FormatError, match=r"payload is int.*bad\.jsonl, position 17"):
        stage_json(task)
