"""Plans of a follower on its logs: cuts lower what the checkpoints say, and one that fails harms no other."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.replica.following import AppendRecords, OnDisk, RestartAt, TruncateTo
from kafkalog.server.replica.following_disk import FollowerTask, TaskResult, run_tasks
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from tests.faults import FaultFS
from tests.raw_batches import batch
from tests.server.replica.partitions import NODE, T0, Replicas, make_batch, run

T1 = TopicPartition("t", 1)
FOLLOWER = Role(2, 7, 2, (NODE, 2), (2,))
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")


def with_followers(tmp_path: Path, body: Callable[[Replicas], Awaitable[None]], fs: FaultFS) -> None:
    """Call `body` with two followers of five records each, of which the checkpoints say that they are on disk."""

    async def use(replicas: Replicas) -> None:
        for key in (T0, T1):
            await replicas.produce(key, data=make_batch(5))
            replicas.find(key).become_follower(FOLLOWER)
        for name in CHECKPOINTS:
            (tmp_path / name).write_text("0\n2\nt 0 5\nt 1 5\n")
        await body(replicas)

    run(tmp_path, use, fs=fs)


def done(replicas: Replicas, **plans: OnDisk) -> list[TaskResult]:
    keys = {"first": T0, "second": T1}
    works = [FollowerTask(keys[name], replicas.find(keys[name]), plan, 7) for name, plan in plans.items()]
    return run_tasks(works, replicas.store.cutting)


def read_checkpoints(tmp_path: Path) -> list[list[int]]:
    """The offsets of both partitions, in each checkpoint."""
    return [list(OffsetCheckpoint(tmp_path / name).read().values()) for name in CHECKPOINTS]


@pytest.mark.parametrize("plan, end", [(TruncateTo(0), 0), (RestartAt(3), 3), (RestartAt(9), 5)])
def test_checkpoints_say_no_more_than_the_new_end(tmp_path: Path, plan: OnDisk, end: int) -> None:
    async def body(replicas: Replicas) -> None:
        (one,) = done(replicas, first=plan)
        assert one.error is None
        assert read_checkpoints(tmp_path) == [[end, 5]] * 3

    with_followers(tmp_path, body, FaultFS())


def test_a_batch_before_an_empty_log_lowers_the_checkpoints(tmp_path: Path) -> None:
    """PART-13: the log restarts at the batch's base offset."""

    async def body(replicas: Replicas) -> None:
        assert done(replicas, first=RestartAt(9))[0].error is None
        for name in CHECKPOINTS:
            (tmp_path / name).write_text("0\n1\nt 0 9\n")
        records = batch(7, [(0, b"k", b"v")] * 3, epoch=7)
        (one,) = done(replicas, first=AppendRecords(memoryview(records), -1, -1))
        assert (one.error, one.position.end_offset) == (None, 10)
        assert read_checkpoints(tmp_path) == [[7]] * 3

    with_followers(tmp_path, body, FaultFS())


def test_many_cuts_write_each_checkpoint_as_often_as_one(tmp_path: Path) -> None:
    fs = FaultFS()

    async def body(replicas: Replicas) -> None:
        fs.calls.clear()
        assert [one.error for one in done(replicas, first=TruncateTo(0), second=TruncateTo(0))] == [None, None]
        assert read_checkpoints(tmp_path) == [[0, 0]] * 3
        renamed = [Path(one.path).name.removesuffix(".tmp") for one in fs.named("rename")]
        assert sorted(set(CHECKPOINTS) & set(renamed)) == sorted(CHECKPOINTS)
        assert len([name for name in renamed if name in CHECKPOINTS]) == len(CHECKPOINTS)

    with_followers(tmp_path, body, fs)


def test_a_cut_that_fails_keeps_no_other_plan_from_its_log(tmp_path: Path) -> None:
    fs = FaultFS()

    async def body(replicas: Replicas) -> None:
        rule = fs.fail("open", path="cleaner-offset-checkpoint.tmp")
        records = batch(5, [(0, b"k", b"v")], epoch=7)
        first, second = done(replicas, first=TruncateTo(0), second=AppendRecords(memoryview(records), -1, -1))
        assert rule.fired and isinstance(first.error, StorageError)
        assert first.position.end_offset == 5, "nothing is cut before the checkpoint says so"
        assert (second.error, second.position.end_offset) == (None, 6)

    with_followers(tmp_path, body, fs)


def test_each_cut_says_why_it_failed(tmp_path: Path) -> None:
    fs = FaultFS()

    async def body(replicas: Replicas) -> None:
        rule = fs.fail("ftruncate", path="t-0/00000000000000000000.log")
        first, second = done(replicas, first=TruncateTo(0), second=TruncateTo(0))
        assert rule.fired and isinstance(first.error, StorageError) and "cannot truncate" in str(first.error)
        assert isinstance(second.error, StorageError) and "after an earlier failure" in str(second.error)
        assert second.position.end_offset == 5, "its disk is offline by then"

    with_followers(tmp_path, body, fs)


def test_an_answer_without_records_moves_the_high_watermark_and_the_log_start(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        log = replicas.find(T0).log
        log.update_high_watermark(0)
        for records, mark, start, expected in (
            (None, 2, 1, (2, 1)), (memoryview(b""), 4, 3, (4, 3)), (None, -1, -1, (4, 3)), (None, 9, 9, (5, 5)),
        ):  # fmt: skip
            (one,) = done(replicas, first=AppendRecords(records, mark, start))
            assert one.error is None and (log.high_watermark, log.log_start_offset) == expected
            assert (one.position.end_offset, one.position.start_offset) == (5, expected[1])

    with_followers(tmp_path, body, FaultFS())


@pytest.mark.parametrize("epoch", [3, 4, 6])
def test_an_epoch_without_a_record_goes_if_the_next_record_has_another(tmp_path: Path, epoch: int) -> None:
    async def body(replicas: Replicas) -> None:
        log = replicas.find(T0).log
        log.begin_epoch(4)
        assert list(log.leader_epochs) == [(0, 0), (4, 5)]
        for offset in (5, 6):
            records = batch(offset, [(0, b"k", b"v")], epoch=epoch)
            (one,) = done(replicas, first=AppendRecords(memoryview(records), -1, -1))
            assert (one.error, one.position.end_offset) == (None, offset + 1)
            assert list(log.leader_epochs) == [(0, 0), (epoch, 5)]

    with_followers(tmp_path, body, FaultFS())
