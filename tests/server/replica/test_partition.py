"""One partition: roles, high watermark, epochs, listings, deletion of records. PART-*."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import LogConfig
from kafkalog.control import ControlType
from kafkalog.errors import (
    FencedLeaderEpoch,
    InvalidTopic,
    KafkalogError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnexpectedAppendOffset,
    UnknownLeaderEpoch,
)
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import FetchResult
from kafkalog.server.replica.roles import ALL, FollowerState, Role, next_high_watermark
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import LogOffsetMetadata, TopicPartition
from tests.server.replica.partitions import (
    NODE,
    T0,
    T1,
    Replicas,
    consumer_params,
    make_batch,
    make_marker,
    make_producer_batch,
    offsets_in,
    request_at,
    run,
)


def record_fetch(partition: Partition, node: int, offset: int) -> bool:
    """A follower's fetch from this offset."""
    place = partition.log.convert_to_offset_metadata(offset)
    result = FetchResult(log_end_offset=partition.log.log_end_offset, place=place)
    return partition.follower_fetched(node, result, 0, partition.leader_epoch)


def open_leader(path: Path, *, leader_epoch: int = 0) -> Partition:
    """A partition of a log of its own, led here, in an epoch of its own."""
    path.mkdir()
    log = UnifiedLog.open(path, LogConfig(), high_watermark_follows_end=False)
    partition = Partition(TopicPartition("t", 0), log, NODE, lambda: 0)
    partition.become_leader(Role(NODE, leader_epoch, 0, (NODE, 2), (NODE, 2)))
    return partition


def test_min_isr_is_never_more_than_there_are_replicas(tmp_path: Path) -> None:
    """PART-1."""
    async def body(replicas: Replicas) -> None:
        alone = replicas.find(T0)
        assert alone.append(bytearray(make_batch()), ALL).first_offset == 0
        three = replicas.with_followers(T0, 2, 3)
        with pytest.raises(NotEnoughReplicas, match=r"ISR \[1\].*min.isr requirement of 2"):
            three.append(bytearray(make_batch()), ALL)
        assert three.log.log_end_offset == 1
        assert [three.append(bytearray(make_batch()), acks).first_offset for acks in (0, 1)] == [1, 2]
        assert (await replicas.produce(T0, acks=-1))[T0] == (ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1, 0, (), None, -1)

    run(tmp_path, body, min_insync_replicas=2)


def test_the_high_watermark_is_the_lowest_end_of_those_in_sync(tmp_path: Path) -> None:
    """PART-2."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.find(T0)
        await replicas.produce(T0, acks=1)
        assert partition.high_watermark == 1  # alone: the log end at once
        partition = replicas.with_followers(T0, 2, 3, isr=(2,))
        await replicas.produce(T0, T0, acks=1)
        await replicas.produce(T0, acks=1)
        assert (partition.log.log_end_offset, partition.high_watermark) == (3, 1)
        assert not record_fetch(partition, 2, 1)
        assert record_fetch(partition, 2, 3) and partition.high_watermark == 3
        assert not record_fetch(partition, 2, 3)

    run(tmp_path, body)


def test_who_has_caught_up_and_is_about_to_join_is_waited_for() -> None:
    """PART-2."""
    role = Role(1, 0, 0, (1, 2, 3), (1, 2))
    end, far = LogOffsetMetadata(10), LogOffsetMetadata(4)
    followers = {2: FollowerState(log_end=end), 3: FollowerState(log_end=far, last_caught_up_ms=100)}
    assert next_high_watermark(end, role, followers, 120, 30) == far
    assert next_high_watermark(end, role, followers, 131, 30) == end


def test_under_min_isr_the_high_watermark_stays(tmp_path: Path) -> None:
    """PART-2."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3)
        await replicas.produce(T0, acks=1)
        assert not record_fetch(partition, 2, 1) and partition.high_watermark == 0
        assert record_fetch(partition, 3, 1) and partition.high_watermark == 1  # both are in sync by now

    run(tmp_path, body, min_insync_replicas=3)


def test_a_follower_that_is_late_leaves_those_in_sync_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PART-2: without it the high watermark goes on; each change counts in the partition epoch."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3, isr=(2, 3))
        epoch = partition.role.partition_epoch
        await replicas.produce(T0, acks=1)
        record_fetch(partition, 2, 1)
        await replicas.time.passes(30_000)
        record_fetch(partition, 2, 1)
        assert not partition.drop_late()
        await replicas.time.passes(1)
        assert partition.drop_late() and not partition.drop_late() and not replicas.find(T1).drop_late()
        assert not partition.follower_fetched(2, FetchResult(ErrorCode.KAFKA_STORAGE_ERROR), 0, 0)
        assert (partition.role.isr, partition.role.partition_epoch) == ((1, 2), epoch + 1)
        assert partition.high_watermark == 1
        assert not record_fetch(partition, 3, 0) and partition.role.isr == (1, 2)  # below the high watermark
        record_fetch(partition, 3, 1)
        assert (partition.role.isr, partition.role.partition_epoch) == ((1, 2, 3), epoch + 2)
        logged = [message for message in caplog.messages if "ISR" in message]
        assert logged == ["t-0: the ISR shrank to (1, 2)", "t-0: node 3 rejoined the ISR: (1, 2, 3)"]

    caplog.set_level("INFO", "kafkalog")
    run(tmp_path, body)


def test_a_follower_comes_back_only_from_the_begin_of_the_epoch_on(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, acks=1)
        partition = replicas.find(T0)
        partition.log.update_high_watermark(0)
        partition.become_leader(Role(NODE, 5, 1, (NODE, 2, 3), (NODE, 3)))
        record_fetch(partition, 2, 0)
        assert partition.role.isr == (NODE, 3)
        record_fetch(partition, 2, 1)
        assert partition.role.isr == (NODE, 2, 3)

    run(tmp_path, body)


def test_a_follower_has_caught_up_where_it_asks_for_what_was_the_end_before() -> None:
    state = FollowerState().fetched(LogOffsetMetadata(5), 0, 100, 8)
    assert state.last_caught_up_ms == 0
    state = state.fetched(LogOffsetMetadata(8), 0, 200, 12)  # the end at the fetch before
    assert state.last_caught_up_ms == 100
    state = state.fetched(LogOffsetMetadata(12), 0, 300, 12)
    assert state.last_caught_up_ms == 300


def test_reached_says_when_and_whether_enough_have_it(tmp_path: Path) -> None:
    """PART-3."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        await replicas.produce(T0, acks=1)
        assert partition.reached(1) == (False, 0)
        record_fetch(partition, 2, 1)
        assert partition.reached(1) == (True, 0)
        replicas.with_followers(T0, 2)
        assert partition.reached(1) == (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        partition.become_follower(Role(2, 1, 9, (1, 2), (1, 2)))
        assert partition.reached(1) == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    run(tmp_path, body, min_insync_replicas=2)


def test_who_does_not_lead_says_so(tmp_path: Path) -> None:
    """PART-4."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.find(T0)
        assert partition.become_follower(Role(2, 1, 1, (1, 2), (1, 2)))
        for refused in (
            lambda: partition.append(bytearray(make_batch()), 1),
            lambda: partition.delete_records(0),
            lambda: partition.offset_for_time(-1, "high_watermark"),
            lambda: partition.read(consumer_params(), request_at(T0, 0), 100, True),
        ):
            with pytest.raises(NotLeaderOrFollower):
                refused()
        debugger = consumer_params(replica_id=-2)
        assert partition.read(debugger, request_at(T0, 0), 100, True).error_code == 0

    run(tmp_path, body)


def test_a_fetch_with_another_leader_epoch_is_refused(tmp_path: Path) -> None:
    """PART-5, FLOW-27."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, epoch=5)
        for epoch, error in ((4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)):
            with pytest.raises(error):
                partition.read(consumer_params(), request_at(T0, 0, current_leader_epoch=epoch), 100, True)
            with pytest.raises(error):
                partition.offset_for_time(-2, "high_watermark", epoch)
            [result] = await replicas.read(consumer_params(), [request_at(T0, 0, current_leader_epoch=epoch)])
            assert (result.error_code, result.high_watermark) == (error.code, -1)
        for epoch in (5, -1):
            request = request_at(T0, 0, current_leader_epoch=epoch)
            assert partition.read(consumer_params(), request, 100, True).error_code == 0

    run(tmp_path, body)


def append_epochs(partition: Partition, epochs: list[tuple[int, int]], end: int) -> None:
    """Appends so that each epoch begins at its offset."""
    for (epoch, start), (_, following) in zip(epochs, [*epochs[1:], (0, end)], strict=True):
        for offset in range(start, following):
            partition.log.append_as_follower(make_batch(base_offset=offset, leader_epoch=epoch), epoch)


@pytest.fixture
def with_epochs(tmp_path: Path) -> Partition:
    partition = open_leader(tmp_path / "t-0", leader_epoch=0)
    append_epochs(partition, [(0, 0), (3, 2), (4, 8), (7, 13), (9, 14)], 17)
    partition.log.begin_epoch(10)
    partition.become_leader(Role(NODE, 10, 1, (NODE,), (NODE,)))
    return partition


def divergence(partition: Partition, epoch: int, offset: int, *, replica: int = 2) -> tuple[int, int] | None:
    asked = request_at(T0, offset, last_fetched_epoch=epoch)
    result = partition.read(consumer_params(replica_id=replica, isolation="log_end"), asked, 1000, True)
    assert result.diverging_epoch is None or result.size == 0
    return result.diverging_epoch


def test_a_last_epoch_that_ended_elsewhere_is_told(with_epochs: Partition) -> None:
    """PART-6."""
    assert with_epochs.leader_epoch == 10
    expected = {(2, 5): (0, 2), (0, 4): (0, 2), (6, 6): (4, 13), (5, 9): (4, 13), (10, 18): (10, 17)}
    expected[9, 17] = (10, 17)  # it has all from before the epoch, and begins it
    expected[0, 3] = (0, 2)
    assert {key: divergence(with_epochs, *key) for key in expected} == expected
    assert divergence(with_epochs, 9, 17, replica=0) == (10, 17) and divergence(with_epochs, 9, 17, replica=-1) is None
    assert all(divergence(with_epochs, *key) is None for key in ((0, 2), (7, 14), (10, 17)))
    with pytest.raises(OffsetOutOfRange):
        divergence(with_epochs, 11, 5)
    with_epochs.append(bytearray(make_batch()), 1)
    assert divergence(with_epochs, 10, 18) is None and divergence(with_epochs, 10, 19) == (10, 18)


def test_the_log_start_wins_over_divergence(with_epochs: Partition) -> None:
    """PART-7."""
    with_epochs.log.maybe_increment_log_start_offset(5)
    assert divergence(with_epochs, 2, 8) == (2, 5) and divergence(with_epochs, 3, 5) is None
    with pytest.raises(OffsetOutOfRange):
        divergence(with_epochs, 0, 0)


def test_latest_by_isolation(tmp_path: Path) -> None:
    """PART-8."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,), epoch=3)
        for sequence in range(3):
            await replicas.produce(T0, data=make_producer_batch(9, sequence, transactional=True))

        def latest() -> list[Any]:
            return [partition.offset_for_time(-1, level) for level in (None, "high_watermark", "committed")]

        assert [found.offset for found in latest()] == [3, 0, 0]
        record_fetch(partition, 2, 1)
        assert [tuple(found) for found in latest()] == [(3, -1, 3), (1, -1, 3), (0, -1, 3)]
        for level in (None, "high_watermark", "committed"):
            earliest = partition.offset_for_time(-2, level)
            assert earliest is not None and tuple(earliest) == (0, -1, 3)
            for timestamp in (-2, -4):
                empty = replicas.find(T1).offset_for_time(timestamp, level)
                assert empty is not None and empty.offset == 0

    run(tmp_path, body)


def test_a_new_leader_says_when_it_does_not_know_yet(tmp_path: Path) -> None:
    """PART-9, PART-10."""
    async def body(replicas: Replicas) -> None:
        for time in (100, 200, 300):
            await replicas.produce(T0, data=make_batch(timestamp=time))
        partition = replicas.find(T0)
        partition.log.update_high_watermark(1)
        partition.become_leader(Role(NODE, 4, 1, (NODE, 2), (NODE, 2)))
        assert partition.high_watermark == 1
        with pytest.raises(OffsetNotAvailable):
            partition.offset_for_time(-1, "high_watermark")
        with pytest.raises(OffsetNotAvailable):
            partition.offset_for_time(250, "high_watermark")
        assert partition.offset_for_time(-1, None, 4).offset == 3  # type: ignore[union-attr]  # a replica's question
        assert partition.offset_for_time(-2, "high_watermark").offset == 0  # type: ignore[union-attr]
        assert partition.offset_for_time(50, "high_watermark").offset == 0  # type: ignore[union-attr]
        record_fetch(partition, 2, 3)
        assert partition.offset_for_time(-1, "high_watermark").offset == 3  # type: ignore[union-attr]
        await replicas.produce(T0, data=make_batch(timestamp=400))
        assert partition.offset_for_time(400, None).offset == 3  # type: ignore[union-attr]
        assert partition.offset_for_time(400, "high_watermark") is None  # at the high watermark: none (PART-10)
        assert partition.offset_for_time(-3, "high_watermark") is None

    run(tmp_path, body)


def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(tmp_path: Path) -> None:
    """PART-11."""
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_batch(5))
        partition = replicas.find(T0)
        assert await replicas.delete_records(T0, 0) == 0 == await replicas.delete_records(T1, -1)
        assert await replicas.delete_records(T0, 2) == 2 == partition.log.log_start_offset
        for wrong in (-2, 6):
            with pytest.raises(OffsetOutOfRange):
                await replicas.delete_records(T0, wrong)
        assert await replicas.delete_records(T0, -1) == 5
        replicas.add_topic("c", cleanup_policy="compact")
        with pytest.raises(PolicyViolation, match="can not be deleted due to the configured policy"):
            await replicas.delete_records(TopicPartition("c", 0), 0)
        replicas.add_topic("__consumer_offsets")
        with pytest.raises(InvalidTopic):
            await replicas.delete_records(TopicPartition("__consumer_offsets", 0), 0)
        with pytest.raises(KafkalogError) as refused:
            await replicas.delete_records(TopicPartition("__transaction_state", 0), 0)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        followed = replicas.with_followers(T0, 2, isr=(2,))
        assert followed.low_watermark == -1  # a follower that has not said where it begins
        record_fetch(followed, 2, 5)
        assert followed.low_watermark == 0

    run(tmp_path, body)


def test_the_high_watermark_begins_at_the_checkpoint(tmp_path: Path) -> None:
    """PART-12."""
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_batch(6))
        partition = replicas.find(T0)
        for epoch, checkpoint in ((1, 4), (2, 6), (3, 0)):
            partition.log.update_high_watermark(checkpoint)
            partition.become_leader(Role(NODE, epoch, epoch, (NODE, 2), (NODE, 2)))
            assert partition.high_watermark == checkpoint

    run(tmp_path, body)


def test_without_a_checkpoint_the_high_watermark_begins_where_the_log_does(tmp_path: Path) -> None:
    """PART-12."""
    path = tmp_path / "t-0"
    path.mkdir()
    for start in (0, 2):
        log = UnifiedLog.open(path, LogConfig(), log_start_offset=start, high_watermark_follows_end=False)
        if not log.log_end_offset:
            for _ in range(4):
                log.append_as_leader(bytearray(make_batch()))
        partition = Partition(TopicPartition("t", 0), log, NODE, lambda: 0)
        partition.become_leader(Role(NODE, 0, 0, (NODE, 2), (NODE, 2)))
        assert (partition.high_watermark, log.log_end_offset) == (start, 4)
        log.close()


def test_the_low_watermark_is_that_of_the_future_log_where_it_is_behind(tmp_path: Path) -> None:
    """PART-11."""
    (tmp_path / "future").mkdir()
    partition, future = open_leader(tmp_path / "t-0"), open_leader(tmp_path / "future" / "t-0")
    partition.become_leader(Role(NODE, 1, 1, (NODE,), (NODE,)))
    for one in (partition, future):
        one.log.append_as_leader(bytearray(make_batch(4)))
    partition.future_log = future.log
    future.log.update_high_watermark(4)
    partition.after_append()
    assert partition.delete_records(3) == 0 and partition.log.log_start_offset == 3
    future.log.maybe_increment_log_start_offset(2)
    assert partition.delete_records(3) == 2
    partition.future_log = None
    assert partition.delete_records(3) == 3


def test_a_batch_that_begins_before_an_empty_log_begins_it_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PART-13."""
    caplog.set_level("INFO", "kafkalog")
    partition = open_leader(tmp_path / "t-0")
    partition.log.truncate_fully_and_start_at(5)
    with pytest.raises(UnexpectedAppendOffset):
        partition.append_as_follower(make_batch(base_offset=3, leader_epoch=0), 0)
    assert partition.log.log_end_offset == 5
    with pytest.raises(UnexpectedAppendOffset):
        partition.append_as_follower(make_batch(5, leader_epoch=0), 0)  # it ends below the log's start
    partition.append_as_follower(make_batch(3, base_offset=4, leader_epoch=0), 0)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 7)
    assert "t-0: the log restarts at 4 instead of 5" in caplog.messages
    with pytest.raises(UnexpectedAppendOffset):
        partition.append_as_follower(make_batch(3, base_offset=5, leader_epoch=0), 0)
    assert partition.log.log_end_offset == 7
    partition.log.truncate_fully_and_start_at(7)
    partition.append_as_follower(make_batch(8, leader_epoch=0), 0)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 8)


def test_a_role_of_the_same_epoch_keeps_what_is_known(tmp_path: Path) -> None:
    """PART-15."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3, isr=(2,), epoch=1)
        await replicas.produce(T0, data=make_batch(4))
        record_fetch(partition, 2, 4)
        start, known = partition.leader_epoch_start_offset, partition.followers[2]
        assert not partition.become_leader(Role(NODE, 1, 7, (NODE, 2), (NODE, 2)))
        assert partition.leader_epoch_start_offset == start and partition.followers == {2: known}
        assert not partition.become_leader(Role(NODE, 9, 6, (NODE, 2), (NODE,)))  # an older partition epoch
        assert partition.leader_epoch == 1
        assert not partition.become_follower(Role(2, 9, 6, (NODE, 2), (2,))) and partition.is_leader
        assert partition.become_leader(Role(NODE, 2, 8, (NODE, 2), (NODE, 2)))
        assert partition.leader_epoch_start_offset == 4 and partition.followers[2].log_end.message_offset == -1

    run(tmp_path, body)


def test_committed_reading_waits_for_the_marker_to_be_replicated(tmp_path: Path) -> None:
    """FLOW-16."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        committed = consumer_params(isolation="committed")
        for sequence in range(3):
            await replicas.produce(T0, data=make_producer_batch(9, sequence, transactional=True))
        record_fetch(partition, 2, 3)
        [result] = await replicas.read(committed, [request_at(T0, 0)])
        assert (result.size, result.aborted, result.last_stable_offset, result.high_watermark) == (0, [], 0, 3)
        replicas.append_now(T0, make_marker(9, ControlType.ABORT))
        [result] = await replicas.read(committed, [request_at(T0, 0)])
        assert (result.size, result.last_stable_offset) == (0, 0)
        record_fetch(partition, 2, 4)
        [result] = await replicas.read(committed, [request_at(T0, 0)])
        assert (offsets_in(result), result.aborted, result.last_stable_offset) == ([0, 1, 2, 3], [(9, 0)], 4)
        [result] = await replicas.read(consumer_params(), [request_at(T0, 0)])
        assert result.aborted is None

    run(tmp_path, body)


def test_a_future_log_with_other_segments_takes_its_place(tmp_path: Path) -> None:
    """PART-14: what counts is that both end at one offset."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with LogManager.open(paths, BrokerConfig(log_cleaner_enable=False)) as store:
        log = store.get_or_create(T0)
        for base in range(4):
            log.append_as_follower(make_batch(base_offset=base, leader_epoch=0), 0)
        log.roll()
        other = next(path for path in paths if not log.path.startswith(path))
        future = store.get_or_create(T0, is_future=True, directory=other)
        for base in range(4):
            future.append_as_follower(make_batch(base_offset=base, leader_epoch=0), 0)
            if base % 2:
                future.roll()
        assert [s.base_offset for s in log.segments] != [s.base_offset for s in future.segments]
        assert store.replace_with_future(T0) is future
        assert store.get(T0) is future and future.log_end_offset == 4
