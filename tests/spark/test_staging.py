"""Staged files keep what tasks write, report damage of any kind, and do not disturb other readers of the directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import CorruptStagedFile, IllegalArgument, KafkalogError
from kafkalog.landing import staging
from kafkalog.landing.staging import Job, StagedFile, StageReader, StageWriter, parse_job, parse_name, sweep
from kafkalog.storage.names import parse_dir
from kafkalog.tools.verify.directories import verify
from kafkalog.types import TopicPartition
from tests.spark.sink_cases import QUERY, key


def batch(text: str, count: int = 1) -> bytearray:
    return encode_batch([f"{text} {n}".encode() for n in range(count)], timestamp=1)


def writer(directory: Path, task: int = 0) -> StageWriter:
    return StageWriter(str(directory), QUERY, 5, task, 77)


@pytest.fixture
def write_whole(tmp_path: Path) -> tuple[Path, StagedFile]:
    stage = writer(tmp_path)
    for n in range(4):
        stage.add(key("t", n % 2), batch(f"b{n}", n + 1))
    staged = stage.finish()
    assert staged is not None
    return tmp_path / staged.name, staged


def read(path: Path, staged: StagedFile) -> list[tuple[TopicPartition, bytes]]:
    with StageReader(str(path.parent), staged) as reader:
        return [(one.topic_partition, bytes(reader.read(one))) for one in reader.sections]


def test_each_partition_has_its_batches_in_their_order(write_whole: tuple[Path, StagedFile]) -> None:
    path, staged = write_whole
    assert dict(read(path, staged)) == {
        key("t", 0): bytes(batch("b0", 1) + batch("b2", 3)),
        key("t", 1): bytes(batch("b1", 2) + batch("b3", 4)),
    }
    assert (staged.size, staged.records) == (path.stat().st_size, 10)


@pytest.mark.parametrize(("each", "all_of_them"), [(1, 1 << 30), (1 << 30, 1), (200, 500)])
def test_what_is_gathered_is_bounded_and_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: int, all_of_them: int
) -> None:
    monkeypatch.setattr(staging, "SECTION_BYTES", each)
    monkeypatch.setattr(staging, "BUFFERED_BYTES", all_of_them)
    stage = writer(tmp_path)
    wanted: dict[TopicPartition, bytes] = {}
    for n in range(40):
        target = key("t", n * 7 % 3)
        stage.add(target, batch(f"b{n}", 2))
        wanted[target] = wanted.get(target, b"") + bytes(batch(f"b{n}", 2))
        assert stage._buffered <= max(all_of_them, 3 * each)
    staged = stage.finish()
    assert staged is not None
    got: dict[TopicPartition, bytes] = {}
    for target, data in read(tmp_path / staged.name, staged):
        got[target] = got.get(target, b"") + data
    assert got == wanted


def test_a_task_without_records_leaves_no_file(tmp_path: Path) -> None:
    stage = writer(tmp_path)
    stage.add(key("t"), b"")
    assert stage.finish() is None
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    stage = writer(tmp_path)
    stage.add(key("t"), batch("x"))
    stage._write([key("t")])
    assert [path.name.endswith(".tmp") for path in tmp_path.iterdir()] == [True]
    stage.abandon()
    stage.abandon()
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_any_change_of_a_file_is_told(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path, staged = _one_file(tmp_path_factory)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1).filter(lambda at: not -12 <= at - len(content) < -8))
    try:
        if data.draw(st.booleans()):
            path.write_bytes(content[:at])
        else:
            changed = bytearray(content)
            changed[at] ^= data.draw(st.integers(1, 255))
            path.write_bytes(changed)
        with pytest.raises(CorruptStagedFile) as caught:
            read(path, staged)
        assert caught.value.path == str(path)
    finally:
        path.write_bytes(content)


_made: list[tuple[Path, StagedFile]] = []


def _one_file(factory: pytest.TempPathFactory) -> tuple[Path, StagedFile]:
    if not _made:
        directory = factory.mktemp("staged")
        stage = writer(directory)
        stage.add(key("t", 1), batch("x", 3))
        stage.add(key("u", 0), batch("y", 2))
        staged = stage.finish()
        assert staged is not None
        _made.append((directory / staged.name, staged))
    return _made[0]


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    yield
    _made.clear()


def test_another_file_under_the_name_is_told(write_whole: tuple[Path, StagedFile], tmp_path: Path) -> None:
    path, staged = write_whole
    with pytest.raises(CorruptStagedFile, match="trailer"):
        read(path, staged._replace(index_crc=staged.index_crc ^ 1))
    with pytest.raises(CorruptStagedFile, match=r"has \d+ bytes, but its task wrote"):
        read(path, staged._replace(size=staged.size + 1))


# Names


@given(
    st.sampled_from(["query", "job"]), st.from_regex(r"[A-Za-z0-9_-]{1,120}", fullmatch=True), st.integers(0, 2**63 - 1)
)
def test_names_are_parsed_as_they_are_made_and_name_no_partition(kind: str, name: str, batch_id: int) -> None:
    job = Job(kind, name)
    assert parse_job(str(job)) == job
    made = StageWriter("/nowhere", job, batch_id, 12, 2**40).name
    assert len(made) < 250
    for each in (made, made + ".tmp"):
        assert parse_name(each) == (job, batch_id)
        with pytest.raises(KafkalogError):
            parse_dir(each)


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "ü", "x" * 121, "a\n"])
def test_ids_that_are_no_part_of_a_name_are_refused(name: str) -> None:
    with pytest.raises(IllegalArgument, match="jobId has 1 to 120 of"):
        Job.batch(name)


@pytest.mark.parametrize("name", ["kafkalog.topics.json", "t-0", "kafkalog-stage.", "kafkalog-stage.query-a.1.2.3.zz"])
def test_other_names_are_nobodys(name: str) -> None:
    assert parse_name(name) is None


def test_a_sweep_takes_nothing_but_what_it_is_to(tmp_path: Path) -> None:
    names = [StageWriter(str(tmp_path), QUERY, n, 0, 0).name for n in range(3)]
    for name in (*names, "kafkalog.topics.json", "notes"):
        (tmp_path / name).write_bytes(b"x")
    assert sweep(str(tmp_path), landed=staging.StagedName(QUERY, 1), keep=frozenset(names[:1])) == 1
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names[0], names[2], "kafkalog.topics.json", "notes"}


def test_whoever_reads_a_directory_passes_over_them(write_whole: tuple[Path, StagedFile]) -> None:
    directory = write_whole[0].parent
    kafkalog.open(directory / "t-0", "a").close()
    with kafkalog.open_dirs(directory) as dirs:
        assert list(dirs) == [key("t")]
    with kafkalog.open_dirs(directory, "a") as dirs:
        assert list(dirs) == [key("t")]
    report = verify([str(directory)])
    assert report.ok
    assert list(report.notes) == []
