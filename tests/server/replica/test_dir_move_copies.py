"""A future log after its source log was truncated, or lost its end in a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.replica import dir_moves
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.server.nodes import node_for
from tests.server.replica.partitions import make_batch
from tests.server.replica.test_dir_moves import alter, log_of, produce

T0 = TopicPartition("t", 0)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[UnifiedLog, UnifiedLog]]:
    """A log and its future log."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with LogManager.open(paths, BrokerConfig(log_cleaner_enable=False)) as store:
        log = store.get_or_create(T0)
        other = next(path for path in paths if not log.path.startswith(path))
        yield log, store.get_or_create(T0, is_future=True, directory=other)


def append(log: UnifiedLog, first: int, count: int, *, timestamp: int, epoch: int = 0) -> None:
    for base in range(first, first + count):
        batch = make_batch(base_offset=base, leader_epoch=epoch, timestamp=timestamp)
        log.append_as_follower(bytearray(batch), epoch)


def content(log: UnifiedLog) -> bytes:
    return bytes(log.read(0, 1 << 20).records.read())


def test_a_copy_without_progress_ends(logs: tuple[UnifiedLog, UnifiedLog]) -> None:
    """The last offsets of the log have no records: the copy waits for more instead of asking again and again."""
    log, future = logs
    append(log, 0, 2, timestamp=1)
    log.append_as_follower(bytearray(make_batch(3, base_offset=2, leader_epoch=0)), 0)
    log.truncate_to(4)
    assert (log.data_end_offset, log.log_end_offset) == (2, 4)
    for _ in range(10):
        if not dir_moves.copy_chunk(log, future):
            break
    else:
        pytest.fail("the copy never ends")
    assert future.log_end_offset == 2


def test_a_future_log_that_is_longer_is_cut(logs: tuple[UnifiedLog, UnifiedLog]) -> None:
    """At a start before their ends are compared, later by the next copy."""
    log, future = logs
    append(log, 0, 4, timestamp=1)
    append(future, 0, 6, timestamp=1)
    count = dir_moves.prepare_future(log, future, None)
    assert (count, future.log_end_offset) == (log.truncation_count, 4)
    append(future, 4, 2, timestamp=1)
    assert dir_moves.prepare_future(log, future, count) == count and future.log_end_offset == 6
    assert not dir_moves.copy_chunk(log, future)
    assert future.log_end_offset == 4 and content(future) == content(log)
    future.truncate_to(3)
    append(future, 3, 1, timestamp=2)
    dir_moves.prepare_future(log, future, None)
    assert future.log_end_offset == 0, "its last batch is another one"


def test_batches_above_a_segment_size_that_was_set_later_move(tmp_path: Path) -> None:
    """A segment holds several small ones, and a large one alone; the move was given up."""
    paths = tmp_path / "a", tmp_path / "b"

    async def run() -> None:
        async with node_for(*paths) as node:
            await node.topics.create("t", 1)
            for size in (10, 10, 900, 10):
                await produce(node, 3, size)
            before = log_of(node)
            await node.topics.alter("t", {"internal.segment.bytes": "500"})
            target = next(path for path in paths if not before.path.startswith(str(path)))
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            while node.moves._tasks:
                await asyncio.sleep(0.01)
            moved = log_of(node)
            assert moved.path.startswith(str(target)) and moved.log_end_offset == before.log_end_offset == 12
            sizes = [segment.size for segment in moved.segments]
            assert len(sizes) == 3 and sizes[0] <= 500 < sizes[1]
            assert moved.config.segment_size == 500
            await produce(node, 3, 10)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_records_that_the_log_lost_in_a_crash_are_not_kept(tmp_path: Path) -> None:
    """The future log has records that the log lost with the machine's power; others have their offsets by now."""
    paths = tmp_path / "a", tmp_path / "b"
    with LogManager.open(paths, BrokerConfig(log_cleaner_enable=False)) as store:
        log = store.get_or_create(T0)
        other = next(path for path in paths if not log.path.startswith(str(path)))
        future = store.get_or_create(T0, is_future=True, directory=other)
        append(log, 0, 3, timestamp=1)
        append(future, 0, 6, timestamp=1)
        append(log, 3, 5, timestamp=2)
        expected = content(log)

    async def run() -> None:
        async with node_for(*paths) as node:
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert log_of(node).path.startswith(str(other))
            assert content(log_of(node)) == expected

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_log_that_is_cut_while_it_moves_is_copied_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower whose leader changed cuts its log and appends other records."""
    a, b = tmp_path / "a", tmp_path / "b"
    copy_chunk, cuts = dir_moves.copy_chunk, [1]

    def copy_then_cut(log: UnifiedLog, future: UnifiedLog) -> bool:
        more = copy_chunk(log, future)
        if not more and cuts:
            log.truncate_to(2)
            append(log, 2, 5, timestamp=2, epoch=1)
            cuts.pop()
            return True
        return more

    monkeypatch.setattr(dir_moves, "copy_chunk", copy_then_cut)

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            for _ in range(4):
                await produce(node, 1)
            log = log_of(node)
            target = b if log.path.startswith(str(a)) else a
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            while cuts:
                await asyncio.sleep(0.01)
            expected = content(log)
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert log_of(node).path.startswith(str(target))
            assert content(log_of(node)) == expected
        assert "the copy of t-0 to another directory begins again" in caplog.messages

    caplog.set_level("INFO", "kafkalog")
    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_log_whose_beginning_is_deleted_during_a_copy_moves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    copy_chunk, deletes = dir_moves.copy_chunk, [1]

    def copy_after_delete(log: UnifiedLog, future: UnifiedLog) -> bool:
        if deletes:
            deletes.pop()
            log.maybe_increment_log_start_offset(2)
            log.read(0, 1)  # what the copy would have read just before
        return copy_chunk(log, future)

    monkeypatch.setattr(dir_moves, "copy_chunk", copy_after_delete)

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            for _ in range(4):
                await produce(node, 1)
            target = b if log_of(node).path.startswith(str(a)) else a
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert (log_of(node).log_start_offset, log_of(node).log_end_offset) == (2, 4)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_epoch_that_began_without_records_moves_along(tmp_path: Path) -> None:
    """A node that forgot it could vote for one that lacks records acknowledged in that epoch."""
    a, b = tmp_path / "a", tmp_path / "b"

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            await produce(node, 1)
            log_of(node).begin_epoch(7)
            epochs = log_of(node).leader_epochs
            target = b if log_of(node).path.startswith(str(a)) else a
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert log_of(node).path.startswith(str(target))
            assert log_of(node).leader_epochs == epochs
            assert log_of(node).state.leader_epoch == 7

    asyncio.run(asyncio.wait_for(run(), 60))
