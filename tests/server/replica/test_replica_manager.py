"""Appends and reads over several partitions, and those that wait. FLOW-*."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.delayed_fetch import DelayedFetch
from kafkalog.server.replica.results import AppendParams
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from tests.builder import R, batch
from tests.faults import FaultFS
from tests.server.replica.partitions import (
    GONE,
    NODE,
    OFFSETS,
    T0,
    T1,
    Replicas,
    consumer_params,
    error_codes,
    fetch_as_follower,
    make_batch,
    make_producer_batch,
    offsets_in,
    request_at,
    run,
    settle,
)

# Appends


def test_unknown_acks_write_nothing(tmp_path: Path) -> None:
    """FLOW-1."""
    async def body(replicas: Replicas) -> None:
        for acks in (2, -2, 5):
            results = await replicas.produce(T0, T1, acks=acks)
            assert error_codes(results) == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
            assert all(result.base_offset == -1 for result in results.values())
        assert replicas.find(T0).log.log_end_offset == 0

    run(tmp_path, body)


def test_only_acks_all_with_something_written_waits(tmp_path: Path) -> None:
    """FLOW-2."""
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        for acks in (0, 1):
            assert error_codes(await replicas.produce(T0, acks=acks)) == [0]
        assert error_codes(await replicas.produce(GONE, acks=-1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await replicas.append({}, AppendParams(-1, 1_000)) == {}
        assert replicas.waiting.produce.delayed == 0
        task = asyncio.create_task(replicas.produce(T0, acks=-1))
        await settle()
        assert replicas.waiting.produce.delayed == 1 and not task.done()
        await fetch_as_follower(replicas, T0, 2, 3)
        assert error_codes(await task) == [0] and replicas.waiting.produce.delayed == 0
        assert error_codes(await replicas.produce(T1, acks=-1)) == [0]  # alone: done with its append

    run(tmp_path, body)


def test_a_waiting_produce_ends_with_its_limit_and_the_data_stays(tmp_path: Path) -> None:
    """FLOW-3, PART-3."""
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        replicas.with_followers(T1, 2, isr=(2,))
        task = asyncio.create_task(replicas.produce(T0, GONE, T1, acks=-1, timeout_ms=100))
        await settle()
        await fetch_as_follower(replicas, T1, 2, 1)
        await replicas.time.passes(99)
        assert not task.done()
        await replicas.time.passes(1)
        results = await task
        assert error_codes(results) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert list(results) == [T0, GONE, T1]  # the order of the request (FLOW-6)
        assert replicas.find(T0).log.log_end_offset == 1

    run(tmp_path, body)


def test_too_few_in_sync_after_the_append(tmp_path: Path) -> None:
    """PART-3."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3, isr=(2, 3))
        task = asyncio.create_task(replicas.produce(T0, acks=-1))
        await settle()
        role = partition.role
        await fetch_as_follower(replicas, T0, 3, 1)
        partition.role = role._replace(isr=(NODE,))
        partition.log.update_high_watermark(1)
        replicas.appended_to(partition)
        assert error_codes(await task) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert partition.log.log_end_offset == 1

    run(tmp_path, body, min_insync_replicas=2)


def test_a_produce_whose_partition_goes_away_ends(tmp_path: Path) -> None:
    """FLOW-4."""
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        moved = asyncio.create_task(replicas.produce(T0, acks=-1))
        await settle()
        partition.become_follower(Role(2, 1, 5, (NODE, 2), (NODE, 2)))
        replicas.waiting.wake(T0)
        assert error_codes(await moved) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        replicas.with_followers(T1, 2, isr=(2,))
        deleted = asyncio.create_task(replicas.produce(T1, acks=-1))
        await settle()
        await replicas.delete_topic("t")
        assert error_codes(await deleted) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    run(tmp_path, body)


def test_a_produce_whose_disk_fails_ends(tmp_path: Path) -> None:
    """FLOW-4."""
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        task = asyncio.create_task(replicas.produce(T0, acks=-1))
        await settle()
        replicas.store.fail_directory(tmp_path, OSError(5, "the disk"))
        replicas.waiting.wake(T0)
        assert error_codes(await task) == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(tmp_path, body)


def test_internal_topics_are_for_the_node_itself(tmp_path: Path) -> None:
    """FLOW-5."""
    async def body(replicas: Replicas) -> None:
        assert error_codes(await replicas.produce(OFFSETS)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        replicas.add_topic("__consumer_offsets")
        replicas.add_topic("__mine")
        replicas.topics.topics["__mine"] = replicas.topics.topics["__mine"]._replace(is_internal=False)
        assert error_codes(await replicas.produce(OFFSETS)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert error_codes(await replicas.produce(OFFSETS, internal_allowed=True)) == [0]
        assert replicas.append_now(OFFSETS, make_batch(3)) == 3
        assert error_codes(await replicas.produce(TopicPartition("__mine", 0))) == [0]

    run(tmp_path, body)


def test_a_partition_that_fails_harms_no_other(tmp_path: Path) -> None:
    """FLOW-6, FLOW-7."""
    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_batch(5))
        await replicas.delete_records(T0, 2)
        broken = bytearray(make_batch())
        broken[-1] ^= 1
        large = make_batch(1, timestamp=1) + b""
        entries = {T0: broken, GONE: bytearray(make_batch()), T1: bytearray(large)}
        results = await replicas.append(entries, AppendParams(1, 0))
        assert list(results) == [T0, GONE, T1]
        assert error_codes(results) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert [result.log_start_offset for result in results.values()] == [-1, -1, 0]
        assert error_codes(await replicas.produce(T0, data=make_producer_batch(7, 0))) == [0]
        [result] = (await replicas.produce(T0, data=make_producer_batch(7, 5))).values()
        assert (result.error_code, result.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)
        [result] = (await replicas.produce(T0, data=make_batch(2) + make_batch(2))).values()
        assert (result.error_code, result.log_start_offset) == (ErrorCode.INVALID_RECORD, 2)

    run(tmp_path, body)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_log_beyond_the_partitions_of_its_topic_is_not_served(tmp_path: Path, index: int) -> None:
    """A directory that lies there may be of another topic of the name."""
    async def body(replicas: Replicas) -> None:
        key = TopicPartition("t", index)
        if index > 0:
            replicas.store.get_or_create(key)
        assert error_codes(await replicas.produce(key)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    run(tmp_path, body)


def test_a_partition_that_cannot_begin_an_epoch_harms_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultFS()

    async def body(replicas: Replicas) -> None:
        role = Role(NODE, 0, 0, (NODE, 2), (NODE, 2))
        replicas._set_role = lambda: role
        for key in (T0, T1):
            assert replicas.find(key).leader_epoch == 0
        role = role._replace(leader_epoch=4)
        fs.fail(path=f"{T0}/leader-epoch-checkpoint")
        replicas.take_roles()
        fs.heal()
        assert [replicas.find(key).leader_epoch for key in (T0, T1)] == [0, 4]
        [message] = [one for one in caplog.messages if "cannot change the role" in one]
        assert message.startswith("cannot change the role of t-0: ") and "leader-epoch-checkpoint" in message

    run(tmp_path, body, fs=fs)


def test_a_log_that_moves_to_another_directory_keeps_its_followers_without_their_positions(tmp_path: Path) -> None:
    """The copy has other segments, in which the positions would let a consumer read above the high watermark."""

    async def body(replicas: Replicas) -> None:
        role = Role(NODE, 0, 0, (NODE, 2, 3), (NODE, 2))
        replicas._set_role = lambda: role
        partition = replicas.find(T0)
        for at in range(8):
            await replicas.produce(T0)
            if at == 3:
                partition.log.roll()
        for node in (2, 3):
            await fetch_as_follower(replicas, T0, node, 6)
        assert (partition.high_watermark, partition.role.isr) == (6, (NODE, 2, 3))
        source = replicas.store.directory_of(partition.log)
        [target] = [one for one in replicas.store.directories if one is not source]
        future = replicas.store.get_or_create(T0, is_future=True, directory=target.path)
        for base in (0, 4):
            future.append_as_follower(bytearray(partition.log.read(base, 1 << 20).records.read()), 0)
        replicas.store.replace_with_future(T0)
        replicas.moved(T0)
        assert partition.log is future and len(future.segments) == 1
        [result] = await replicas.read(consumer_params(isolation="high_watermark"), [request_at(T0, 0)])
        assert offsets_in(result) == [0, 1, 2, 3, 4, 5]
        assert partition.role.isr == (NODE, 2, 3)
        for node in (2, 3):
            await fetch_as_follower(replicas, T0, node, 7)
        assert partition.high_watermark == 7

    (tmp_path / "a").mkdir()
    run(tmp_path / "a", body, other=tmp_path / "b")


def test_what_is_too_large_says_no_log_start(tmp_path: Path) -> None:
    """FLOW-7."""
    async def body(replicas: Replicas) -> None:
        [result] = (await replicas.produce(T0, data=make_batch(50))).values()
        assert (result.error_code, result.log_start_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)

    run(tmp_path, body, message_max_bytes=200)


def test_a_batch_that_was_written_before_has_its_first_offsets(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        for _ in range(2):
            [result] = (await replicas.produce(T0, data=make_producer_batch(7, 0, count=3), acks=-1)).values()
            assert (result.error_code, result.base_offset, result.last_offset) == (0, 0, 2)

    run(tmp_path, body)


def test_records_that_are_refused_are_named(tmp_path: Path) -> None:
    """FLOW-8."""
    async def body(replicas: Replicas) -> None:
        replicas.add_topic("c", cleanup_policy="compact")
        [result] = (await replicas.produce(TopicPartition("c", 0), data=make_batch(2))).values()
        assert result.error_code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in result.record_errors] == [0, 1]
        assert all("key" in words for _, words in result.record_errors) and result.message

    run(tmp_path, body)


class Coordinator:
    """Answers questions about transactions."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.asked: list[Any] = []

    def __call__(self, *who: Any, produce_version: int) -> dict[TopicPartition, int]:
        self.asked.append((*who, produce_version))
        return dict.fromkeys(who[3], self.code)


def test_one_producer_a_request(tmp_path: Path) -> None:
    """FLOW-9."""
    async def body(replicas: Replicas) -> None:
        entries = {key: bytearray(make_producer_batch(pid, 0, transactional=True)) for key, pid in ((T0, 1), (T1, 2))}
        results = await replicas.append(entries, AppendParams(1, 0, transactional_id="x"))
        assert error_codes(results) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert replicas.find(T0).log.log_end_offset == 0

    run(tmp_path, body, verify=Coordinator())


def test_a_transaction_begins_where_its_coordinator_knows_it(tmp_path: Path) -> None:
    """FLOW-9."""
    coordinator = Coordinator(ErrorCode.NOT_ENOUGH_REPLICAS)

    async def body(replicas: Replicas) -> None:
        async def send(sequence: int, *keys: TopicPartition) -> dict[TopicPartition, Any]:
            data = make_producer_batch(9, sequence, transactional=True)
            more = {"transactional_id": "x", "produce_version": 11}
            result: dict[TopicPartition, Any] = await replicas.produce(*keys, data=data, **more)
            return result

        assert error_codes(await send(0, T0, GONE)) == [
            ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]  # fmt: skip
        coordinator.code = ErrorCode.INVALID_TXN_STATE
        assert error_codes(await send(0, T0)) == [ErrorCode.INVALID_TXN_STATE]
        coordinator.code = 0
        assert error_codes(await send(0, T0)) == [0]
        assert coordinator.asked == [("x", 9, 0, [T0], 11)] * 3
        assert error_codes(await send(1, T0)) == [0]
        assert len(coordinator.asked) == 3  # it is open: nothing is asked
        assert error_codes(await replicas.produce(T0, data=make_producer_batch(8, 0))) == [0]
        assert len(coordinator.asked) == 3

    run(tmp_path, body, verify=coordinator)


def test_the_transaction_of_producer_0_is_asked_about_as_any_other(tmp_path: Path) -> None:
    """FLOW-9."""
    coordinator = Coordinator(ErrorCode.INVALID_TXN_STATE)

    async def body(replicas: Replicas) -> None:
        data = make_producer_batch(0, 0, transactional=True)
        sent = await replicas.produce(T0, data=data, transactional_id="x", produce_version=11)
        assert error_codes(sent) == [ErrorCode.INVALID_TXN_STATE]
        assert coordinator.asked == [("x", 0, 0, [T0], 11)]
        assert replicas.find(T0).log.log_end_offset == 0

    run(tmp_path, body, verify=coordinator)


def test_a_transactional_batch_for_a_log_that_takes_no_writes_harms_no_other(tmp_path: Path) -> None:
    """FLOW-6."""
    async def body(replicas: Replicas) -> None:
        cause = StorageError("no more")
        replicas.find(T0).log.stop_writes(cause)
        data = make_producer_batch(9, 0, transactional=True)
        results = await replicas.produce(T0, T1, data=data, transactional_id="x", produce_version=11)
        assert error_codes(results) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        replicas.find(T0).log.resume_writes(cause)

    run(tmp_path, body, verify=Coordinator())


def test_what_failed_first_has_to_come_first(tmp_path: Path) -> None:
    """FLOW-10."""
    coordinator = Coordinator(ErrorCode.NOT_ENOUGH_REPLICAS)

    async def body(replicas: Replicas) -> None:
        async def send(sequence: int) -> list[int]:
            data = make_producer_batch(9, sequence, transactional=True)
            return error_codes(await replicas.produce(T0, data=data, transactional_id="x", produce_version=11))

        assert await send(6) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        coordinator.code = 0
        assert await send(7) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert await send(7) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert await send(6) == [0]

    run(tmp_path, body, verify=coordinator)


def test_a_large_append_runs_in_the_pool_and_is_told_though_its_client_went(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        value = bytearray(1_200_000)
        data = bytearray(batch([R(bytes(value), timestamp=1)]))
        reader = asyncio.create_task(replicas.fetch(consumer_params(10_000), [request_at(T0, 0)]))
        writer = asyncio.create_task(replicas.append({T0: data}, AppendParams(1, 0)))
        await asyncio.sleep(0)
        writer.cancel()
        assert replicas.pool_appends
        [result] = await asyncio.wait_for(reader, 30)
        assert offsets_in(result) == [0]
        await settle()
        assert not replicas.pool_appends

    run(tmp_path, body, message_max_bytes=2_000_000)


def test_an_append_during_which_the_node_stopped_leading_is_not_acknowledged(tmp_path: Path) -> None:
    """FLOW-4: the next leader need not have it, since this node may have voted before the batch was in the log."""
    async def body(replicas: Replicas) -> None:
        data = bytearray(batch([R(bytes(1_200_000), timestamp=1)]))
        partition, run_in_pool = replicas.find(T0), replicas._run

        async def step_down_after(work: Callable[[], Any]) -> Any:
            info = await run_in_pool(work)
            role = partition.role
            partition.become_follower(role._replace(leader=2, leader_epoch=role.leader_epoch + 1))
            return info

        replicas._run = step_down_after
        [result] = (await replicas.append({T0: data}, AppendParams(1, 0))).values()
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, body, message_max_bytes=2_000_000)


def test_a_client_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        for waiting in (replicas.fetch(consumer_params(2**31 - 1), [request_at(T1, 0)]), replicas.produce(T0, acks=-1)):
            task = asyncio.ensure_future(waiting)
            await settle()
            task.cancel()
            await settle()
        assert (replicas.waiting.fetch.delayed, replicas.waiting.produce.delayed) == (0, 0)

    run(tmp_path, body)


def test_trouble_of_one_that_waits_is_not_that_of_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PART-17."""
    async def body(replicas: Replicas) -> None:
        task = asyncio.create_task(replicas.fetch(consumer_params(500), [request_at(T0, 0)]))
        await settle()
        with monkeypatch.context() as patch:
            patch.setattr(DelayedFetch, "try_complete", lambda self: 1 // 0)
            with caplog.at_level(logging.ERROR):
                assert error_codes(await replicas.produce(T0)) == [0]
        assert "DelayedFetch failed" in caplog.text
        await replicas.time.passes(500)
        assert offsets_in((await task)[0]) == [0]

    run(tmp_path, body)


def test_a_stop_answers_all_that_wait(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        replicas.with_followers(T0, 2, isr=(2,))
        fetch = asyncio.create_task(replicas.fetch(consumer_params(60_000), [request_at(T1, 0)]))
        produce = asyncio.create_task(replicas.produce(T0, acks=-1))
        await settle()
        await replicas.stop()
        assert error_codes(await produce) == [ErrorCode.REQUEST_TIMED_OUT] and (await fetch)[0].size == 0

    run(tmp_path, body)


def test_high_watermarks_are_on_disk_after_a_stop_and_by_a_job(tmp_path: Path) -> None:
    """FLOW-23."""
    path = tmp_path / "replication-offset-checkpoint"

    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_batch(3))
        [job] = [job for job in replicas.store.jobs if job.name == "highwatermark-checkpoint"]
        assert job.period_ms == 5_000
        job.run()
        assert "t 0 3" in path.read_text().splitlines()
        await replicas.produce(T0, data=make_batch(2))

    run(tmp_path, body)
    assert "t 0 5" in path.read_text().splitlines()


def test_hostile_batches_get_the_references_codes(tmp_path: Path) -> None:
    """Forged offsets, epochs, times, counts, sequences (wire.md M5)."""

    async def body(replicas: Replicas) -> None:
        async def send(data: bytes) -> int:
            return error_codes(await replicas.produce(T0, data=data))[0]

        def forged(position: int, form: str, value: int) -> bytes:
            data = bytearray(make_batch(3))
            struct.pack_into(form, data, position, value)
            return bytes(data)

        assert await send(make_batch(leader_epoch=2**31 - 1)) == 0  # a client's epoch means nothing
        assert await send(make_batch(timestamp=-5)) == 0
        assert await send(forged(8, ">i", -1)) == ErrorCode.CORRUPT_MESSAGE
        assert await send(forged(16, ">b", 9)) == ErrorCode.CORRUPT_MESSAGE
        assert await send(make_batch(3, count=9)) == ErrorCode.INVALID_RECORD
        assert await send(make_batch(3, last_delta=9)) == ErrorCode.INVALID_RECORD
        assert await send(make_batch(3, count=2**31 - 1, last_delta=2**31 - 2)) == ErrorCode.INVALID_RECORD
        assert await send(make_batch(3, attributes=0x20)) == ErrorCode.INVALID_RECORD  # a control batch of a client's
        assert await send(make_producer_batch(5, -7)) == ErrorCode.INVALID_RECORD
        assert await send(make_producer_batch(5, 5)) == 0  # an unknown producer so far
        assert await send(make_producer_batch(5, 5, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(make_producer_batch(5, 0, epoch=3)) == 0
        assert await send(make_producer_batch(5, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
        log = replicas.find(T0).log
        assert log.leader_epochs == ((0, 0),)

    run(tmp_path, body)
