"""Group and transaction records of unknown versions: the server starts, logs them and keeps them."""

from __future__ import annotations

import logging
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records, replay
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.txns.records import TOPIC, transaction_key, transaction_value
from kafkalog.server.txns.states import TransactionState
from kafkalog.server.txns.transaction import Transaction
from kafkalog.types import TopicPartition
from kafkalog.util.java_hash import partition_of
from tests.server.groups.groups import commit_offset, create_topic, fetch_offset
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.txns import calls

OFFSET = records.offset_record("g", "t", 0, CommittedOffset(7, -1, "m", 5))
GROUP = records.group_record("g", ClassicGroup("g", 5).fields())
MEMBER = records.record(records.CURRENT_MEMBER, ("g", "m"), {
    "memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": [],
    "partitionsPendingRevocation": [],
})  # fmt: skip


def later(one: Record) -> Record:
    assert one.value is not None
    return Record(one.key, b"\x00\x63" + one.value[2:])


def cut(one: Record, size: int) -> Record:
    assert one.value is not None
    return Record(one.key, one.value[:size])


def batch(made: list[Record], **more: Any) -> bytearray:
    builder = RecordsBuilder(**more)
    for key, value in made:
        builder.append(1, key, value)
    return builder.build()


def write(node: Any, made: list[Record], group_id: str = "g", **more: Any) -> None:
    place = TopicPartition(OFFSETS_TOPIC, node.groups.partition_for(group_id))
    node.replicas.append_now(place, batch(made, **more), "coordinator")



@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize(
    "unreadable",
    [later(OFFSET), later(GROUP), later(MEMBER), cut(OFFSET, 1), cut(OFFSET, 9), cut(GROUP, 5), cut(MEMBER, 6)],
    ids=["later offset", "later group", "later member", "no version", "short offset", "short group", "short member"],
)
@in_loop
async def test_a_group_of_which_not_all_can_be_read_is_not_served_and_its_records_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unreadable: Record, is_transactional: bool
) -> None:
    async with node_for(tmp_path, offsets_topic_num_partitions=1) as node:
        await create_topic(node)
        assert await commit_offset(node, 5) == 0
        assert await commit_offset(node, 6, "other") == 0
        if is_transactional:
            node.groups.table.log.append_in_transaction("g", [unreadable], 77, 0)
        else:
            write(node, [unreadable])
    for _ in range(2):
        async with node_for(tmp_path) as node:
            await node.groups.loaded()
            assert "1 groups have unreadable records and are not served: 'g'" in caplog.text
            assert (await fetch_offset(node, "other")).committed_offset == 6
            assert await commit_offset(node, 6, "other") == 0
            assert await commit_offset(node, 9) == ErrorCode.NOT_COORDINATOR, "it would be undone where it can be read"
            assert (await call(node, "delete_groups", 2, {"groups_names": ["g"]})).results[0].error_code
            await node.groups.expiry.expire()
    path = tmp_path / f"{OFFSETS_TOPIC}-0"
    with kafkalog.open(path, "a", cleanup_policy="compact") as log:
        log.compact(roll=True)
    with kafkalog.open(path) as log:
        kept = {bytes(row.key): row.value for row in log if row.key is not None}
    assert kept[unreadable.key] == unreadable.value


@in_loop
async def test_a_record_that_can_be_read_takes_the_place_of_one_that_cannot(tmp_path: Path) -> None:
    async with node_for(tmp_path, offsets_topic_num_partitions=1) as node:
        await create_topic(node)
        assert await commit_offset(node, 5) == 0
        write(node, [later(OFFSET), cut(GROUP, 5)])
        write(node, [OFFSET, records.tombstone(records.CLASSIC_GROUP, "g")])
    async with node_for(tmp_path) as node:
        await node.groups.loaded()
        assert (await fetch_offset(node)).committed_offset == 7


@in_loop
async def test_records_of_other_kinds_are_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strange = [
        Record(b"\x00\x0a\x00\x01h\x00\x01m", b"\x7f\xff"),  # a member of a share group, of a later version
        Record(b"\x00\x18\x00\x01g", b"\x00\x00"),
        Record(b"\x7f\xff", b"later"), Record(b"\xff\xffx", None), Record(b"", b"x"), Record(b"\x00", b"x"),
        Record(b"\x00\x01\x00\x09g", b"x"),  # the key of an offset that ends too soon
    ]  # fmt: skip
    async with node_for(tmp_path, offsets_topic_num_partitions=1) as node:
        await create_topic(node)
        assert await commit_offset(node, 5) == 0
        write(node, strange)
        builder = RecordsBuilder()
        builder.append(1, None, b"no key")
        with pytest.raises(kafkalog.errors.InvalidRecord):  # nothing without a key comes into a compacted log
            node.replicas.append_now(TopicPartition(OFFSETS_TOPIC, 0), builder.build(), "coordinator")
    async with node_for(tmp_path) as node:
        caplog.set_level(logging.WARNING)
        await node.groups.loaded()
        assert (await fetch_offset(node)).committed_offset == 5
        assert await commit_offset(node, 6) == 0
        for number in (24, 32767, -1):
            assert f"ignored 1 group records of unknown type {number}; they stay in the log" in caplog.text
    path = tmp_path / f"{OFFSETS_TOPIC}-0"
    with kafkalog.open(path, "a", cleanup_policy="compact") as log:
        log.compact(roll=True)
    with kafkalog.open(path) as log:
        kept = {bytes(row.key): row.value for row in log if row.key is not None}
    assert [one for one in strange if one.value is not None and kept.get(one.key) != one.value] == []


@in_loop
async def test_a_transaction_whose_last_record_cannot_be_read_is_neither_served_nor_aborted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction that a later version decided to commit must not be aborted for its age."""
    open_one = Transaction("x", 5, 0, 1, TransactionState.ONGOING, frozenset([TopicPartition("t", 0)]), 1, 1)
    value = transaction_value(open_one)
    strange = [(transaction_key("x"), b"\x00\x09" + value[2:]), (transaction_key("y"), value[:20])]
    async with node_for(tmp_path, transaction_state_log_num_partitions=1) as node:
        await node.transactions.loaded()
        await create_topic(node)
        await node.transactions.loaded()
        producer = await calls.init_producer(node, name="z")
        assert producer.error_code == 0
        made = [(transaction_key("x"), value), *strange, (struct.pack(">h", 9) + b"later", b"z"), (b"", b"x")]
        node.replicas.append_now(TopicPartition(TOPIC, 0), batch([Record(*one) for one in made]), "coordinator")
    async with node_for(tmp_path) as node:
        await node.transactions.loaded()
        for name in "xy":
            assert f"the last record of transaction '{name}' cannot be read" in caplog.text
            assert (await calls.init_producer(node, name=name)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert node.transactions.abort_late() == 0
        assert node.transactions.expire() == 0
        again = await calls.init_producer(node, name="z")
        assert (again.producer_id, again.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)
        log = node.replicas.partition(TOPIC, partition_of("x", 1)).log
        end = log.log_end_offset
    with kafkalog.open(tmp_path / f"{TOPIC}-0", "a", cleanup_policy="compact") as log:
        log.compact(roll=True)
    with kafkalog.open(tmp_path / f"{TOPIC}-0") as log:
        kept = {bytes(row.key): row.value for row in log if row.key is not None}
        assert log.end_offset == end
    assert all(kept[key] == value for key, value in strange)


@in_loop
async def test_the_topic_of_groups_may_be_deleted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ["g", "h"]
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert {node.groups.partition_for(one) for one in groups} == {0, 1}
        for one in groups:
            assert await commit_offset(node, 5, one) == 0
    read, has_begun, may_end = replay.replay_log, threading.Event(), threading.Event()

    def read_slowly(log: Any) -> replay.Replay:
        found = read(log)
        has_begun.set()
        assert may_end.wait(60)
        return found

    monkeypatch.setattr(replay, "replay_log", read_slowly)
    async with node_for(tmp_path) as node:
        assert await commit_offset(node, 6) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await node.run(has_begun.wait, 60)
        await node.topics.delete(OFFSETS_TOPIC)
        for one in groups:
            assert await commit_offset(node, 7, one, partition=1) == 0
        may_end.set()
        await node.groups.loaded()
        for one in groups:
            assert await commit_offset(node, 8, one, partition=1) == 0
            assert (await fetch_offset(node, one)).committed_offset == -1, "it was in the deleted topic"
