"""The tasks and the commit of the job `import`: exported partitions come back unchanged."""

import json
import os
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import DirectoryLocked, FormatError, IllegalArgument, IllegalState, KafkalogError, TopicExists
from kafkalog.exchange.manifest import ExportSettings
from kafkalog.exchange.parquet_files import export_range
from kafkalog.exchange.planning import ExportTask
from kafkalog.exchange.ranges import OffsetRange
from kafkalog.exchange.row_files import ordered_rows, survey
from kafkalog.landing import commit, kept_offsets
from kafkalog.landing.commit import Committed, Committer
from kafkalog.landing.import_plan import KeptTarget
from kafkalog.landing.kept_offsets import is_empty
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.staging import Job
from kafkalog.landing.task_stage import Landing
from kafkalog.spark.jobs import import_, json_lines
from kafkalog.spark.jobs.import_ import (
    FileTask,
    PartitionTask,
    stage_file,
    stage_json,
    stage_partition,
    with_partitions,
)
from kafkalog.spark.jobs.text_lines import TextOptions, text_tasks
from kafkalog.types import TopicPartition
from tests.golden_cases import Case, each_partition
from tests.spark.sink_cases import OTHER, flat, found, key, locked_elsewhere, stage, values

ALL = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")


def export_files(log: Path, out: Path, cuts: int = 1, **changes: Any) -> list[str]:
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


def stage_files(files: list[str], data: Path, keep: bool = True) -> list[KeptTarget]:
    """Return what the tasks stage."""
    data.mkdir(exist_ok=True)
    facts = [survey(path, {}, None) for path in files]
    assert all(one.is_ordered for one in facts)
    topic_partitions = sorted({where for one in facts for group in one.groups for where in group.topic_partitions})
    targets = []
    for n, where in enumerate(topic_partitions):
        landing = Landing(str(data), Job.batch("j"), where.partition + 1, None)
        done = stage_partition(PartitionTask(n, where, tuple(facts), keep, landing))
        assert done.task.file is not None
        targets.append(KeptTarget(where, done.first, done.end, done.task.file))
    return targets


def import_files(files: list[str], data: Path) -> None:
    targets = stage_files(files, data)
    counts = {one.topic_partition.topic: one.topic_partition.partition + 1 for one in targets}
    land_files(data, targets, counts)


def land_files(data: Path, targets: list[KeptTarget], counts: dict[str, int], *, keep: bool = True) -> Committed:
    return Committer(str(data), lock_wait_ms=0).commit_kept(Job.batch("j"), targets, counts, keep=keep)


def rolled_forward(data: Path) -> bool:
    return Committer(str(data), lock_wait_ms=0).roll_forward()


def read_all(log: Path) -> list[tuple[Any, ...]]:
    """All of each record; a type of time that v2 does not have is CreateTime, a name that is no UTF-8 is replaced."""
    with kafkalog.open(log) as opened:
        return [
            (rec.offset, rec.timestamp, max(int(rec.timestamp_type), 0), rec.key, rec.value,
             [(replace_invalid(name), value) for name, value in rec.headers])
            for rec in opened
        ]  # fmt: skip


def replace_invalid(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@each_partition("logdir", "legacy")
def test_every_golden_partition_comes_back_as_it_was(case: Case, tmp_path: Path) -> None:
    expected = read_all(case.directory)
    files = export_files(case.directory, tmp_path / "out", cuts=3)
    if not expected:
        assert files == []
        return
    import_files(files, tmp_path / "data")
    copy = tmp_path / "data" / case.directory.name
    assert read_all(copy) == expected
    assert kafkalog.verify([tmp_path / "data"]).ok
    assert not [name for name in os.listdir(tmp_path / "data") if "import" in name or "stage" in name]


record = st.tuples(
    st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=20), st.integers(-1, 2**40),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)  # fmt: skip


@pytest.mark.slow
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
    import_files(export_files(path / "src" / "t-2", path / "out", cuts), path / "data")
    assert read_all(path / "data" / "t-2") == read_all(path / "src" / "t-2")


def _one(offset: int, record: Any) -> bytes:
    from kafkalog._core.batch.encode import encode_batch

    return bytes(encode_batch([record], timestamp=-1, base_offset=offset, leader_epoch=0))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    with kafkalog.open(tmp_path / "src" / "t-1", "a", retention_ms=-1) as log:
        for n in range(0, 3000, 100):
            log.append([(b"k", b"%d" % i, i % 3 * 86_400_000) for i in range(n, n + 100)])
        log.delete_before(40)
    return export_files(tmp_path / "src" / "t-1", tmp_path / "out", cuts=2)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", range(6))
def test_an_import_that_is_killed_is_finished_by_the_next_one(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    data = tmp_path / "data"
    monkeypatch.setattr(kept_offsets, "APPEND_BYTES", 20_000)
    targets = stage_files(files, data)
    calls = []

    def groups(table: Any, end: int, real: Any = kept_offsets._groups) -> Any:
        for one in real(table, end):
            if len(calls) == at:
                raise Killed
            calls.append(one)
            yield one

    with monkeypatch.context() as patch:
        patch.setattr(kept_offsets, "_groups", groups)
        was_killed = False
        try:
            land_files(data, targets, {"t": 2})
        except Killed:
            was_killed = True
            assert "kafkalog-import.job-j.json" in os.listdir(data)
    assert rolled_forward(data) is was_killed
    assert not rolled_forward(data)
    assert read_all(data / "t-1") == read_all(tmp_path / "src" / "t-1")
    assert leftover_files(data) == []
    assert set(read_ledger(str(data)).marks) == {Job.batch("j")}


def leftover_files(data: Path) -> list[str]:
    return [name for name in os.listdir(data) if "import" in name or "stage" in name]


def decide_plan(data: Path, targets: list[KeptTarget], *, keep: bool = True, at: str = "land_plan") -> None:
    """An import that is killed once its plan is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, at, lambda *_, **__: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            land_files(data, targets, {"t": 2}, keep=keep)


@pytest.mark.parametrize("keep", [True, False])
def test_an_import_is_remembered_where_that_is_asked_for(files: list[str], tmp_path: Path, keep: bool) -> None:
    data = tmp_path / "data"
    assert land_files(data, stage_files(files, data), {"t": 2}, keep=keep) == Committed(True, 2960)
    assert set(read_ledger(str(data)).marks) == ({Job.batch("j")} if keep else set())
    if keep:
        assert land_files(data, stage_files(files, data), {"t": 2}) == Committed(False, 0)
    assert leftover_files(data) == []
    decide_plan(tmp_path / "more", stage_files(files, tmp_path / "more"), keep=keep)
    assert rolled_forward(tmp_path / "more")
    assert set(read_ledger(str(tmp_path / "more")).marks) == ({Job.batch("j")} if keep else set())


def test_the_next_write_lands_a_decided_import_before_its_sweep(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    targets = stage_files(files, data)
    decide_plan(data, targets)
    os.utime(data / targets[0].file.name, (1, 1))  # long dead, by its age
    assert Committer(str(data), lock_wait_ms=0).commit(OTHER, 0, stage(data, OTHER, 0, [{key("u"): values("x", 1)}]))
    assert read_all(data / "t-1") == read_all(tmp_path / "src" / "t-1")
    assert found(data, "u") == flat(values("x", 1))
    assert leftover_files(data) == []


def test_what_an_import_decided_is_not_swept_by_its_job(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    decide_plan(data, stage_files(files, data))
    stage_files(files, data)
    assert len(leftover_files(data)) == 3
    Committer(str(data)).abort(Job.batch("j"), 0)
    assert len(leftover_files(data)) == 2
    assert rolled_forward(data)
    assert read_all(data / "t-1") == read_all(tmp_path / "src" / "t-1")


def test_an_import_that_landed_and_kept_its_plan_lands_once(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    decide_plan(data, stage_files(files, data), at="remove_plan")
    assert rolled_forward(data)
    assert read_all(data / "t-1") == read_all(tmp_path / "src" / "t-1")
    assert leftover_files(data) == []


def test_an_import_waits_for_the_lock_and_says_that_nothing_landed(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    targets = stage_files(files, data)
    with locked_elsewhere(data), pytest.raises(DirectoryLocked, match="waited 0 ms for the lock and appended nothing"):
        land_files(data, targets, {"t": 2})
    assert not (data / "t-1").exists()
    assert land_files(data, targets, {"t": 2}).landed


@pytest.mark.parametrize("cut", [50, 51, 100, 150])
def test_what_somebody_else_wrote_meanwhile_is_not_mixed_in(tmp_path: Path, cut: int) -> None:
    with kafkalog.open(tmp_path / "src" / "t-1", "a", retention_ms=-1) as log:
        for n in range(151):
            if n not in (50, 100):  # a batch ends where an offset is missing
                log.replicate(_one(n, (None, b"%d" % n, 5, [])))
    data = tmp_path / "data"
    targets = stage_files(export_files(tmp_path / "src" / "t-1", tmp_path / "out"), data)
    decide_plan(data, targets)
    with kafkalog.open(data / "t-1", "a", retention_ms=-1) as log:
        log.append([b"x"] * cut)
    for _ in range(2):
        with pytest.raises(IllegalState, match="where an import .* cannot continue"):
            rolled_forward(data)
    assert [one[4] for one in read_all(data / "t-1")] == [b"x"] * cut
    assert len(leftover_files(data)) == 2


def test_a_log_whose_records_were_all_deleted_does_not_count_as_begun(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "src" / "t-1", "a") as log:
        log.append([b"%d" % n for n in range(10)])
    data = tmp_path / "data"
    decide_plan(data, stage_files(export_files(tmp_path / "src" / "t-1", tmp_path / "out"), data))
    with kafkalog.open(data / "t-1", "a") as log:
        log.append([b"x"] * 10)
        log.delete_before(10)
    with pytest.raises(IllegalState, match="where an import .* cannot continue"):
        rolled_forward(data)


def test_a_target_that_is_not_empty_keeps_what_it_has(files: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    targets = stage_files(files, data)
    assert is_empty(str(data), TopicPartition("t", 1))
    with kafkalog.open(data / "t-1", "a") as log:
        log.append(b"first")
    with pytest.raises(IllegalState, match="is no longer empty"):
        land_files(data, targets, {"t": 2})
    assert len(read_all(data / "t-1")) == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"targets": [["t", -1, 0, 5, []]], "partitions": {}}',
                                     '{"targets": [], "partitions": {"../t": 1}}',
                                     '{"targets": [], "partitions": [], "keep": true}',
                                     '{"targets": [], "partitions": {"t": 1}}'])  # fmt: skip
def test_a_plan_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "kafkalog-import.job-j.json").write_text(content)
    with pytest.raises(FormatError, match=r"kafkalog-import\.job-j\.json"):
        rolled_forward(tmp_path)
    with pytest.raises(FormatError, match=r"kafkalog-import\.job-j\.json"):
        Committer(str(tmp_path)).commit(OTHER, 0, [])


def rows_of(path: Path, **columns: Any) -> Any:
    """Return what is known of a Parquet file with such columns."""
    columns = {name: pa.array(found, pa.int32()) if name == "partition" else found for name, found in columns.items()}
    pq.write_table(pa.table(columns), path)
    return survey(str(path), {}, None)


@pytest.mark.parametrize("keep", [True, False])
def test_each_topic_gets_partitions_of_its_own(tmp_path: Path, keep: bool) -> None:
    facts = rows_of(tmp_path / "x.parquet", value=[b"1", b"2", b"3"], offset=[0, 0, 0], topic=["a", "b", "there"],
                    partition=[0, 3, 0])  # fmt: skip
    data = tmp_path / "data"
    kafkalog.open(data / "there-0", "a").close()
    topic_partitions = [TopicPartition("a", 0), TopicPartition("b", 3), TopicPartition("there", 0)]
    landing = with_partitions(Landing(str(data), Job.batch("j"), 2, None), topic_partitions)
    assert landing.by_topic == {"a": 2, "b": 4, "there": 1}
    done = [stage_partition(PartitionTask(n, one, (facts,), keep, landing)) for n, one in enumerate(topic_partitions)]
    if keep:
        targets = [KeptTarget(where, one.first, one.end, one.task.file)
                   for where, one in zip(topic_partitions, done, strict=True) if one.task.file]  # fmt: skip
        land_files(data, targets, dict(landing.by_topic))
    else:
        Committer(str(data)).commit(landing.job, 0, [one.task for one in done])
    assert partitions_in(data) == ["a-0", "a-1", "b-0", "b-1", "b-2", "b-3", "there-0"]


def test_each_topic_of_a_file_without_offsets_gets_partitions_of_its_own(tmp_path: Path) -> None:
    facts = rows_of(tmp_path / "x.parquet", value=[b"1", b"2"], topic=["a", "b"], partition=[0, 2])
    (tmp_path / "data").mkdir()
    topic_partitions = [where for group in facts.groups for where in group.topic_partitions]
    landing = with_partitions(Landing(str(tmp_path / "data"), Job.batch("j"), 1, None), topic_partitions)
    Committer(landing.directory).commit(landing.job, 0, [stage_file(FileTask(0, facts, landing)).task])
    assert partitions_in(tmp_path / "data") == ["a-0", "b-0", "b-1", "b-2"]


def partitions_in(data: Path) -> list[str]:
    return sorted(one.name for one in data.iterdir() if one.is_dir())


def test_the_same_records_in_two_files_are_refused(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "out" / "topic=t" / "copy.parquet"
    copy.write_bytes(Path(files[0]).read_bytes())
    with pytest.raises(IllegalArgument, match="has a duplicate offset"):
        stage_files([*files, str(copy)], tmp_path / "data")


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
    ("columns", "names", "message"),
    [
        ({"valu": [b"x"]}, {}, "did you mean valu"),
        ({"value": [1]}, {}, "of type int64 cannot be the value"),
        ({"value": [b"x"], "partition": ["a"]}, {}, "of type string cannot be the partition"),
        ({"value": [b"x"], "timestamp": [1.5]}, {}, "of type double cannot be the timestamp"),
        ({"value": [b"x"]}, {"key": "id"}, "no column 'id' for the key"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path: Path, columns: Any, names: dict[str, str], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(IllegalArgument, match=message):
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
    assert [one[1:] for one in read_all(tmp_path / "data" / "t-1")] == [
        (-1, 0, None, b"a", [("h", b"1")]), (6, 0, b"\xff", b"c", []),
    ]  # fmt: skip
    assert [one[1:] for one in read_all(tmp_path / "data" / "t-0")] == [(5, 0, b"k", None, [])]
    (tmp_path / "bad.jsonl").write_text('{"payload": "a"}\n{"payload": 1}\n')
    (task,) = text_tasks([str(tmp_path / "bad.jsonl")], TextOptions("t"), landing)
    with pytest.raises(FormatError, match=r"payload must be a string or null, not int.*bad\.jsonl, position 17"):
        stage_json(task)


@pytest.mark.parametrize("size", [0, 20, 75])
def test_json_lines_that_went_since_the_job_was_planned_are_told(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.jsonl").write_text('{"payload": "1"}\n' * 5)
    landing = Landing(str(tmp_path), Job.batch("j"), 1, None)
    task = text_tasks([str(tmp_path / "x.jsonl")], TextOptions("t"), landing)[-1]
    os.truncate(tmp_path / "x.jsonl", size)
    with pytest.raises(FormatError, match=f"has {size} bytes, but had at least 85"):
        stage_json(task)
    assert os.listdir(tmp_path) == ["x.jsonl"]


def test_json_lines_that_go_while_they_are_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BATCH_LINES", 1)
    (tmp_path / "x.jsonl").write_text(('{"payload": "%s"}\n' % ("x" * 700_000)) * 4)
    (task,) = text_tasks([str(tmp_path / "x.jsonl")], TextOptions("t"), Landing("", Job.batch("j"), 1, None))
    batches = json_lines.json_tables(task)
    assert next(batches).num_rows == 1
    os.truncate(tmp_path / "x.jsonl", 1_100_000)
    with pytest.raises(FormatError, match=r"the file shrank.*position 1"):
        list(batches)


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of imports run in this process, one after the other."""
    monkeypatch.setattr(import_, "check_executors", lambda *_: None)
    monkeypatch.setattr(import_, "run_tasks", lambda _, work, items, *rest: [work(item) for item in items])
    monkeypatch.setattr(import_, "results", list)


def test_the_report_of_an_import_counts_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    spark: Any = None
    lines = "".join(json.dumps({"partition": n % 2 * 2, "payload": "x"}) + "\n" for n in range(10))
    (tmp_path / "x.jsonl").write_text(lines)
    report = import_.import_(spark, tmp_path / "x.jsonl", tmp_path / "data", "t", partitions=3)
    assert report[:5] == (10, 1, 2, False, True)
    rows_of(tmp_path / "x.parquet", value=[b"1", b"2"], offset=[4, 4], topic=["a", "b"], partition=[0, 3])
    report = import_.import_(spark, tmp_path / "x.parquet", tmp_path / "data", job_id="j")
    assert report == (2, 1, 2, True, True, "j")
    assert partitions_in(tmp_path / "data") == ["a-0", "b-0", "b-1", "b-2", "b-3", "t-0", "t-1", "t-2"]
    assert import_.import_(spark, tmp_path / "x.parquet", tmp_path / "data", job_id="j").landed is False


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_what_a_failed_commit_did_not_decide_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    without_spark(monkeypatch)
    kafkalog.open(tmp_path / "data" / "a_b-0", "a").close()
    (tmp_path / "x.jsonl").write_text('{"payload": "1"}\n')
    rows_of(tmp_path / "x.parquet", value=[b"1"], offset=[0], partition=[0])
    with pytest.raises(TopicExists, match="a_b"):
        import_.import_(cast(Any, None), tmp_path / name, tmp_path / "data", "a.b")
    assert leftover_files(tmp_path / "data") == []


def test_new_topics_whose_names_collide_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    rows_of(tmp_path / "x.parquet", value=[b"1", b"2"], offset=[4, 4], topic=["a.b", "a_b"], partition=[0, 0])
    with pytest.raises(TopicExists, match="a.b collides with a_b"):
        import_.import_(cast(Any, None), tmp_path / "x.parquet", tmp_path / "data")
    assert partitions_in(tmp_path / "data") == []
