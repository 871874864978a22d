"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers through real bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from tests.server.nodes import call, node_for, run_node
from tests.server.replica.partitions import make_batch, make_producer_batch

T0 = TopicPartition("t", 0)


async def list_offsets(node: Node, version: int, *times: int, name: str = "t", **more: Any) -> list[tuple[int, ...]]:
    """(code, timestamp, offset, leader epoch) of each time, each asked by itself."""
    found = []
    for time in times:
        row = {"partition_index": 0, "current_leader_epoch": more.get("epoch", -1), "timestamp": time}
        tree = {
            "replica_id": more.get("replica_id", -1),
            "isolation_level": more.get("isolation", 0),
            "topics": [{"name": name, "partitions": [row] * more.get("repeat", 1)}],
            "timeout": 1_000,
        }
        answer = await call(node, "list_offsets", version, tree)
        for one in answer.topics[0].partitions:
            found.append((one.error_code, one.timestamp, one.offset, one.leader_epoch if version >= 4 else -1))
    return found


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_of_times(tmp_path: Path, version: int) -> None:
    """FLOW-25, FLOW-26."""

    async def body(node: Node) -> None:
        for time in (100, 300, 200):
            node.replicas.append_now(T0, make_batch(timestamp=time), "client")
        epoch = 0 if version >= 4 else -1
        assert await list_offsets(node, version, -1, -2, 100, 150, 300, 301) == [
            (0, -1, 3, epoch), (0, -1, 0, epoch), (0, 100, 0, epoch), (0, 300, 1, epoch), (0, 300, 1, epoch),
            (0, -1, -1, -1),
        ]  # fmt: skip
        special = [(7, (0, 300, 1, epoch)), (8, (0, -1, 0, epoch)), (9, (0, -1, -1, -1)), (11, (0, -1, -1, -1))]
        unknown = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
        expected = [found if version >= first else unknown for first, found in special]
        assert await list_offsets(node, version, -3, -4, -5, -6) == expected
        assert await list_offsets(node, version, -7, -(2**63)) == [unknown] * 2

    run_node(tmp_path, body)


def test_a_partition_that_is_asked_twice_and_others_that_cannot_be_answered(tmp_path: Path) -> None:
    """FLOW-24, FLOW-27."""

    async def body(node: Node) -> None:
        assert await list_offsets(node, 9, -1, repeat=2) == [(ErrorCode.INVALID_REQUEST, -1, -1, -1)] * 2
        assert await list_offsets(node, 9, -1, name="gone") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)]
        assert await list_offsets(node, 9, -1, epoch=7) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)]

    run_node(tmp_path, body)


def test_a_leader_that_does_not_know_yet_says_so_as_the_version_knows(tmp_path: Path) -> None:
    """PART-9."""

    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(), "client")
        replicas = (node.node_id, 7)
        partition = node.replicas.find(T0)
        partition.log.update_high_watermark(0)
        partition.become_leader(Role(node.node_id, 1, 1, replicas, replicas))
        assert [(await list_offsets(node, version, -1))[0][0] for version in (4, 5)] == [
            ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE
        ]  # fmt: skip
        assert (await list_offsets(node, 5, -2))[0][:3] == (0, -1, 0)
        assert (await list_offsets(node, 5, -1, replica_id=7))[0][2] == 1

    run_node(tmp_path, body)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(tmp_path: Path, version: int) -> None:
    """FLOW-25."""

    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(3), "client")

        async def ends(epoch: int, current: int = -1, index: int = 0) -> tuple[int, ...]:
            row = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
            tree = {"replica_id": -2, "topics": [{"topic": "t", "partitions": [row]}]}
            answer = await call(node, "offset_for_leader_epoch", version, tree)
            [one] = answer.topics[0].partitions
            return one.error_code, one.leader_epoch, one.end_offset

        assert await ends(0) == (0, 0, 3)
        assert await ends(5) == (0, -1, -1)
        assert await ends(0, 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await ends(0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

    run_node(tmp_path, body)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_given_up(tmp_path: Path, version: int) -> None:
    """PART-11, FLOW-25."""

    async def body(node: Node) -> None:
        await node.topics.create("c", 1, {"cleanup.policy": "compact"})
        await node.topics.ensure_internal("__consumer_offsets")
        node.replicas.append_now(T0, make_batch(5), "client")

        async def deleted(offset: int, name: str = "t") -> tuple[int, int]:
            row = {"partition_index": 0, "offset": offset}
            tree = {"topics": [{"name": name, "partitions": [row]}], "timeout": 1_000}
            answer = await call(node, "delete_records", version, tree)
            [one] = answer.topics[0].partitions
            return one.error_code, one.low_watermark

        assert await deleted(2) == (0, 2)
        assert await deleted(6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(-1) == (0, 5)
        assert await deleted(0, "c") == (ErrorCode.POLICY_VIOLATION, -1)
        assert await deleted(0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        assert await deleted(0, "gone") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    run_node(tmp_path, body)


def test_records_of_a_topic_that_is_being_deleted_are_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is gone already, its partition is not."""

    async def body(node: Node) -> None:
        monkeypatch.setattr(node.topics, "get", lambda name: None)
        tree = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout": 1_000}
        answer = await call(node, "delete_records", 2, tree)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_node(tmp_path, body)


def test_who_writes_to_a_partition(tmp_path: Path) -> None:
    """FLOW-22."""

    async def body(node: Node) -> None:
        node.replicas.find(T0).log.verifies_transactions = False
        node.replicas.append_now(T0, make_producer_batch(4, 0, count=3), "client")
        node.replicas.append_now(T0, make_producer_batch(9, 0, epoch=2, transactional=True), "client")
        tree = {"topics": [{"name": "t", "partition_indexes": [0, 5]}]}
        answer = await call(node, "describe_producers", 0, tree)
        [known, unknown] = answer.topics[0].partitions
        assert [tuple(one) for one in known.active_producers] == [(4, 0, 2, 5_000, -1, -1), (9, 2, 0, 5_000, -1, 3)]
        assert (unknown.error_code, unknown.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        answer = await call(node, "describe_producers", 0, {"topics": [{"name": "gone", "partition_indexes": [0]}]})
        [unknown] = answer.topics[0].partitions
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and unknown.error_message

    run_node(tmp_path, body)


def test_each_directory_tells_of_its_logs_and_how_far_a_future_one_is_behind(tmp_path: Path) -> None:
    """FLOW-21, FLOW-23: a future log lies in another directory than the one that it is to replace."""
    a, b = tmp_path / "a", tmp_path / "b"
    (tmp_path / "link").symlink_to(b)

    async def body() -> None:
        async with node_for(a, b, cordoned_log_dirs=str(tmp_path / "link")) as node:
            await node.topics.create("t", 2)
            for _ in range(2):
                node.replicas.append_now(T0, make_batch(3), "client")
            node.store.get_or_create(T0, is_future=True, directory=b)
            answer = await call(node, "describe_log_dirs", 5, {"topics": None})
            rows = {
                (Path(row.log_dir).name, topic.name, one.partition_index): one
                for row in answer.results for topic in row.topics for one in topic.partitions
            }  # fmt: skip
            assert sorted(rows) == [("a", "t", 0), ("a", "t", 1), ("b", "t", 0)]
            current, future = rows["a", "t", 0], rows["b", "t", 0]
            size = 2 * len(make_batch(3))
            assert (current.partition_size, current.offset_lag, current.is_future_key) == (size, 0, False)
            assert (future.partition_size, future.offset_lag, future.is_future_key) == (0, 6, True)
            assert [row.is_cordoned for row in answer.results] == [False, True]
            [job] = [job for job in node.store.jobs if job.name == "highwatermark-checkpoint"]
            job.run()
        files = [(one / "replication-offset-checkpoint").read_text().splitlines()[2:] for one in (a, b)]
        assert sorted(files[0]) == ["t 0 6", "t 1 0"] and files[1] in ([], ["t 0 0"])

    asyncio.run(body())


def test_a_directory_whose_disk_failed_says_so(tmp_path: Path) -> None:
    """FLOW-21."""

    async def body(node: Node) -> None:
        node.store.fail_directory(tmp_path, OSError(5, "the disk"))
        answer = await call(node, "describe_log_dirs", 5, {"topics": None})
        assert [row.error_code for row in answer.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert (await list_offsets(node, 9, -1))[0][0] == ErrorCode.KAFKA_STORAGE_ERROR

    run_node(tmp_path, body)
