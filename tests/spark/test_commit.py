"""A commit lands what tasks staged, once, in order; obstacles are reported, and nothing is half done."""

import os
from functools import partial
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import (
    CorruptStagedFile,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    StorageError,
    TopicExists,
)
from kafkalog.landing.commit import Committer, StagedTask, give_up
from kafkalog.landing.ledger import LEDGER_FILE, read_ledger
from kafkalog.landing.partition_logs import PartitionLogs
from kafkalog.landing.staging import Job
from kafkalog.records.format import CompressionType
from kafkalog.tools.verify.directories import verify
from kafkalog.util.side_by_side import side_by_side
from tests.faults import FaultFS, each_failure
from tests.spark.sink_cases import (
    OTHER,
    QUERY,
    Records,
    flat,
    found,
    key,
    locked_elsewhere,
    stage,
    staged_names,
    values,
)


def commit(directory: Path, batch_id: int, tasks: list[Records], job: Job = QUERY, **settings: str) -> bool:
    """Stages and commits; whether it landed now."""
    staged = stage(directory, job, batch_id, tasks, **settings)  # type: ignore[arg-type]
    return Committer(str(directory), lock_wait_ms=0).commit(job, batch_id, staged).landed


def test_tasks_land_in_their_order_in_each_partition(tmp_path: Path) -> None:
    first: Records = {key("a"): values("first", 2), key("a", 1): values("one", 1), key("b"): values("b", 3)}
    second: Records = {key("a"): values("second", 2)}
    assert commit(tmp_path, 0, [first, {}, second])
    assert found(tmp_path, "a") == flat(values("first", 2) + values("second", 2))
    assert found(tmp_path, "a", 1) == flat(values("one", 1))
    assert found(tmp_path, "b") == flat(values("b", 3))
    assert staged_names(tmp_path) == []
    assert verify([str(tmp_path)]).ok


def test_a_batch_lands_once_however_often_it_is_committed(tmp_path: Path) -> None:
    for again in range(3):
        assert commit(tmp_path, 7, [{key("t"): values("x", 2)}]) is (again == 0)
    assert commit(tmp_path, 6, [{key("t"): values("older", 2)}]) is False
    assert found(tmp_path, "t") == flat(values("x", 2))
    assert staged_names(tmp_path) == []


def test_another_query_lands_the_same_batch_number_anew(tmp_path: Path) -> None:
    assert commit(tmp_path, 0, [{key("t"): values("x", 1)}])
    assert commit(tmp_path, 0, [{key("t"): values("x", 1)}], OTHER)
    assert commit(tmp_path, 0, [{key("t"): values("y", 1)}], Job.batch(QUERY.id))
    assert found(tmp_path, "t") == flat(values("x", 1) * 2 + values("y", 1))


def test_only_attempts_of_the_messages_count_and_the_others_are_swept(tmp_path: Path) -> None:
    stage(tmp_path, QUERY, 3, [{key("t"): values("loser", 2)}])
    stage(tmp_path, QUERY, 2, [{key("t"): values("crashed", 2)}])
    stage(tmp_path, OTHER, 1, [{key("t"): values("other", 2)}])
    assert commit(tmp_path, 3, [{key("t"): values("winner", 2)}])
    assert found(tmp_path, "t") == flat(values("winner", 2))
    assert [name.split(".")[1] for name in staged_names(tmp_path)] == [str(OTHER)]


def test_files_of_dead_jobs_go_by_age(tmp_path: Path) -> None:
    stage(tmp_path, OTHER, 1, [{key("t"): values("dead", 1)}])
    stage(tmp_path, OTHER, 2, [{key("t"): values("young", 1)}])
    dead = next(name for name in staged_names(tmp_path) if f"{OTHER}.1." in name)
    os.utime(tmp_path / dead, (1, 1))
    commit(tmp_path, 0, [{key("t"): values("x", 1)}])
    assert [name.split(".")[2] for name in staged_names(tmp_path)] == ["2"]


def test_abort_sweeps_its_own_files_only(tmp_path: Path) -> None:
    stage(tmp_path, QUERY, 3, [{key("t"): values("mine", 2)}])
    stage(tmp_path, OTHER, 3, [{key("t"): values("other", 2)}])
    Committer(str(tmp_path)).abort(QUERY, 3)
    assert [name.split(".")[1] for name in staged_names(tmp_path)] == [str(OTHER)]
    assert not (tmp_path / LEDGER_FILE).exists()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_land_as_they_were_staged(tmp_path: Path, compression: str) -> None:
    assert commit(tmp_path, 0, [{key("t"): values("x", 3, 50)}], compression=compression)
    with kafkalog.open(tmp_path / "t-0") as log:
        assert {batch.header.compression for batch in log.batches()} == {int(CompressionType[compression.upper()])}
    assert found(tmp_path, "t") == flat(values("x", 3, 50))


def test_a_topic_of_append_times_stamps_them_at_the_commit(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", message_timestamp_type="LogAppendTime") as log:
        log.append(b"before")
        before = log[0].timestamp
    assert commit(tmp_path, 0, [{key("t"): values("x", 2)}])
    with kafkalog.open(tmp_path / "t-0") as log:
        assert all(record.timestamp >= before for record in log)
        assert len({record.timestamp for record in log.records(1)}) == 1


def test_batches_carry_one_producer_and_an_epoch_for_each_commit(tmp_path: Path) -> None:
    for batch_id in range(3):
        commit(tmp_path, batch_id, [{key("t"): values("x", 2), key("t", 1): values("y", 1)}])
    with kafkalog.open(tmp_path / "t-0") as log:
        batches = list(log.batches())
    assert len({batch.header.producer_id for batch in batches}) == 1
    epoch = batches[0].header.producer_epoch
    assert [(batch.header.producer_epoch - epoch, batch.header.base_sequence) for batch in batches] == [
        (0, 0), (0, 3), (1, 0), (1, 3), (2, 0), (2, 3),
    ]  # fmt: skip


def test_a_log_that_knows_the_producer_better_gets_another(tmp_path: Path) -> None:
    """As after a ledger that was restored from an old copy."""
    commit(tmp_path, 0, [{key("t"): values("a", 1)}])
    old = (tmp_path / LEDGER_FILE).read_bytes()
    commit(tmp_path, 1, [{key("t"): values("b", 1)}])
    (tmp_path / LEDGER_FILE).write_bytes(old)
    assert commit(tmp_path, 2, [{key("t"): values("c", 1)}])
    assert found(tmp_path, "t") == flat(values("a", 1) + values("b", 1) + values("c", 1))


def test_threads_of_one_process_commit_one_after_the_other(tmp_path: Path) -> None:
    jobs = [Job.batch(f"job{n}") for n in range(4)]
    staged = [stage(tmp_path, job, 0, [{key("t", n): values(f"j{n}", 2)}], partitions=4) for n, job in enumerate(jobs)]
    work = [partial(Committer(str(tmp_path)).commit, job, 0, tasks) for job, tasks in zip(jobs, staged, strict=True)]
    assert [done.landed for done in side_by_side(lambda one: one(), work, 4, "commits")] == [True] * 4
    assert set(read_ledger(str(tmp_path)).marks) == set(jobs)
    assert [found(tmp_path, "t", n) for n in range(4)] == [flat(values(f"j{n}", 2)) for n in range(4)]


def test_an_empty_batch_is_marked_and_writes_no_log(tmp_path: Path) -> None:
    assert commit(tmp_path, 4, [{}, {}])
    assert commit(tmp_path, 4, [{key("t"): values("x", 1)}]) is False
    assert os.listdir(tmp_path).count("t-0") == 0


def test_a_missing_topic_is_made_with_the_partitions_that_were_asked_for(tmp_path: Path) -> None:
    staged = stage(tmp_path, QUERY, 0, [{key("t", 1): values("x", 1)}], partitions=4)
    Committer(str(tmp_path)).commit(QUERY, 0, staged)
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs.topics["t"].partitions == (0, 1, 2, 3)
        assert dirs["t", 1].end_offset == 3
    with kafkalog.open_dirs(tmp_path, "a") as dirs:  # the sink's files disturb no other program
        assert dirs["t", 1].end_offset == 3


# What is in the way


def test_a_lock_that_another_process_holds_is_waited_for_and_then_told(tmp_path: Path) -> None:
    with locked_elsewhere(tmp_path) as release:
        staged = stage(tmp_path, QUERY, 0, [{key("t"): values("x", 1)}])
        with pytest.raises(DirectoryLocked, match=r"waited 120 ms.*lockWait"):
            Committer(str(tmp_path), lock_wait_ms=120).commit(QUERY, 0, staged)
        assert read_ledger(str(tmp_path)).intent is None
        release()
        assert Committer(str(tmp_path), lock_wait_ms=60_000).commit(QUERY, 0, staged).landed
    assert found(tmp_path, "t") == flat(values("x", 1))


def test_a_partition_that_this_process_has_open_is_an_error_before_anything_is_decided(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"mine")
        with pytest.raises(DirectoryLocked):
            commit(tmp_path, 0, [{key("t"): values("x", 1)}])
    assert read_ledger(str(tmp_path)).intent is None
    assert commit(tmp_path, 0, [{key("t"): values("x", 1)}])
    assert found(tmp_path, "t") == [b"mine", *flat(values("x", 1))]


def test_settings_that_changed_since_the_staging_are_an_error(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    staged = stage(tmp_path, QUERY, 0, [{key("t"): values("x", 1)}])
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.alter_topic("t", {"max.message.bytes": 100})
    with pytest.raises(IllegalState, match="settings of topic t changed"):
        Committer(str(tmp_path)).commit(QUERY, 0, staged)
    assert found(tmp_path, "t") == []


def test_a_name_that_collides_is_an_error(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "a.b-0", "a").close()
    with pytest.raises(TopicExists, match="collides"):
        commit(tmp_path, 0, [{key("a_b"): values("x", 1)}])
    with pytest.raises(TopicExists, match="c.d collides with c_d"):
        commit(tmp_path, 0, [{key("c.d"): values("x", 1), key("c_d"): values("x", 1)}])
    assert not (tmp_path / "c.d-0").exists()
    assert read_ledger(str(tmp_path)).intent is None


def test_a_part_of_a_topic_is_no_topic(tmp_path: Path) -> None:
    for number in (0, 2):
        kafkalog.open(tmp_path / f"t-{number}", "a").close()
    with pytest.raises(IllegalArgument, match=r"partition 1 of topic t is not in this directory"):
        stage(tmp_path, QUERY, 0, [{key("t"): values("x", 1)}])


def stage_damaged(tmp_path: Path, how: str) -> tuple[list[StagedTask], Path]:
    staged = stage(tmp_path, QUERY, 0, [{key("t"): values("good", 1)}, {key("t"): values("x", 2, 100)}])
    assert staged[1].file is not None
    path = tmp_path / staged[1].file.name
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "short":
        path.write_bytes(content[:-1])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        place = {"magic": 0, "batch": 300, "index": -60, "trailer": -20}[how]
        content[place] ^= 0x40
        path.write_bytes(content)
    return staged, path


@pytest.mark.parametrize("how", ["missing", "short", "empty", "magic", "index", "trailer"])
def test_a_staged_file_that_is_damaged_is_told_before_anything_is_decided(tmp_path: Path, how: str) -> None:
    staged, path = stage_damaged(tmp_path, how)
    with pytest.raises(CorruptStagedFile, match=r"run the write again") as caught:
        Committer(str(tmp_path)).commit(QUERY, 0, staged)
    assert caught.value.path == str(path)
    assert found(tmp_path, "t") == []
    assert commit(tmp_path, 0, [{key("t"): values("again", 1)}])


def test_damage_in_the_batches_is_told_with_its_place_and_lands_when_the_file_is_whole_again(tmp_path: Path) -> None:
    staged, path = stage_damaged(tmp_path, "batch")
    with pytest.raises(CorruptStagedFile, match=r"checksum.*is decided") as caught:
        Committer(str(tmp_path)).commit(QUERY, 0, staged)
    assert (caught.value.path, caught.value.position) == (str(path), 8)
    with pytest.raises(CorruptStagedFile):
        commit(tmp_path, 0, [{key("t"): values("other", 1)}], OTHER)
    Committer(str(tmp_path)).abort(QUERY, 0)  # must not take what is decided
    content = bytearray(path.read_bytes())
    content[300] ^= 0x40
    path.write_bytes(content)
    assert commit(tmp_path, 0, [{key("t"): values("rerun", 1)}]) is False
    assert found(tmp_path, "t") == flat(values("good", 1) + values("x", 2, 100))


def test_a_batch_that_cannot_be_brought_back_can_be_given_up(tmp_path: Path) -> None:
    staged, path = stage_damaged(tmp_path, "batch")
    with pytest.raises(CorruptStagedFile):
        Committer(str(tmp_path)).commit(QUERY, 0, staged)
    path.unlink()
    with pytest.raises(CorruptStagedFile, match="the staged file is missing"):
        Committer(str(tmp_path)).roll_forward()
    given_up = give_up(str(tmp_path))
    assert given_up is not None
    assert (given_up.job, given_up.batch_id) == (QUERY, 0)
    assert give_up(str(tmp_path)) is None
    assert commit(tmp_path, 0, [{key("t"): values("again", 1)}])
    assert found(tmp_path, "t") == flat(values("good", 1) + values("again", 1))


def test_an_intent_that_may_not_last_is_told_as_decided(tmp_path: Path) -> None:
    staged = stage(tmp_path, QUERY, 0, [{key("t"): values("x", 1)}])
    fs = FaultFS()
    real = fs.rename

    def fail_sync_after(source: str, target: str) -> None:
        real(source, target)
        fs.fail("fsync", path=str(tmp_path), times=1)

    fs.rename = fail_sync_after  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="the batch is decided"):
        Committer(str(tmp_path), fs=fs).commit(QUERY, 0, staged)
    assert read_ledger(str(tmp_path)).intent is not None
    assert Committer(str(tmp_path)).roll_forward()
    assert found(tmp_path, "t") == flat(values("x", 1))


def test_an_error_of_the_close_behind_another_is_told_as_decided(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    staged = stage(tmp_path, QUERY, 0, [{key("t"): values("x", 1)}])
    fs = FaultFS()
    fs.fail("pwrite", path="00000000000000000000.log")

    class FailingLogs(PartitionLogs):
        def close(self) -> None:
            super().close()
            raise StorageError("the close failed too")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkalog.landing.commit.PartitionLogs", FailingLogs)
        with pytest.raises(StorageError, match=r"the close failed too.*the batch is decided"):
            Committer(str(tmp_path), fs=fs).commit(QUERY, 0, staged)
    assert Committer(str(tmp_path)).roll_forward()
    assert found(tmp_path, "t") == flat(values("x", 1))


def test_a_full_disk_while_staging_leaves_nothing(tmp_path: Path) -> None:
    for nth in each_failure():
        fs = FaultFS()
        rule = fs.fail("open", "pwrite", "fsync", "rename", path="kafkalog-stage", nth=nth)
        try:
            stage(tmp_path, QUERY, 0, [{key("t"): values("x", 2)}], fs=fs)
        except StorageError as error:
            assert "stage records" in str(error)
            assert staged_names(tmp_path) == []
        if not rule.fired:
            break
    assert nth > 7


@pytest.mark.slow
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_full_disk_at_any_call_of_a_commit_loses_and_doubles_nothing(tmp_path: Path, step: int) -> None:
    decided = 0
    for nth in range(1, 400, step):
        directory = tmp_path / str(nth)
        directory.mkdir()
        with kafkalog.open(directory / "t-0", "a") as log:
            log.append(b"before")
        staged = stage(directory, QUERY, 0, [{key("t"): values("x", 3), key("new", 1): values("n", 2)}])
        fs = FaultFS()
        rule = fs.fail("open", "pwrite", "rename", "mkdir", "fsync", nth=nth)
        failed = None
        try:
            Committer(str(directory), fs=fs).commit(QUERY, 0, staged)
        except (StorageError, DirectoryLocked) as error:
            failed = error
        with kafkalog.open(directory / "t-0", "a") as log:
            log.append(b"between")
        decided += "is decided" in str(failed)
        again = stage(directory, QUERY, 0, [{key("t"): values("x", 3), key("new", 1): values("n", 2)}])
        Committer(str(directory)).commit(QUERY, 0, again)
        there = found(directory, "t")
        assert [value for value in there if value.startswith(b"x")] == flat(values("x", 3)), nth
        assert sorted(there)[:2] == [b"before", b"between"]
        assert found(directory, "new", 1) == flat(values("n", 2))
        assert verify([str(directory)]).ok
        if not rule.fired:
            break
    else:
        raise AssertionError("it still fails")
    assert decided > 1
