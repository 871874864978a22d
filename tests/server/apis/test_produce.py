"""Produce through real bytes: versions, codes, acks, hostile batches, memory."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any
from uuid import UUID

import cramjam
import pytest

from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.apis.produce import answer_tree
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.replica.results import AppendResult
from kafkalog.server.replica.roles import Role
from kafkalog.server.wire.definitions import response_plan
from kafkalog.server.wire.writer import response_writer
from kafkalog.types import TopicPartition
from tests.builder import R, batch, frame, message_v1
from tests.cycles import left_to_collector, replace_threads
from tests.faults import FaultFS
from tests.server.net.networks import add_length, answer_of, connect, network_for
from tests.server.nodes import Closed, call, connection_for, request_bytes, run_node
from tests.server.replica.partitions import make_batch, make_producer_batch, settle
from tests.server.wire import by_kio

VERSIONS = range(3, 14)
T0 = TopicPartition("t", 0)


def produce_tree(
    node: Node, version: int, batches: dict[tuple[str, int], bytes | None], *, acks: int = 1, **more: Any
) -> dict[str, Any]:
    """The tree of a request: one topic a name, in order."""
    topics: dict[str, list[Any]] = {}
    for (name, index), data in batches.items():
        topics.setdefault(name, []).append({"index": index, "records": data})
    rows = []
    for name, partitions in topics.items():
        known = node.topics.get(name)
        row = {"name": name, "topic_id": UUID(int=99) if known is None else known.id, "partition_data": partitions}
        rows.append(row)
    return {"transactional_id": None, "acks": acks, "timeout": 1_000, "topic_data": rows, **more}


async def produce(
    node: Node, batches: dict[tuple[str, int], bytes | None], version: int = 9, *, client_id: str = "test", **more: Any
) -> list[Any]:
    """The rows of the answer."""
    answer = await call(node, "produce", version, produce_tree(node, version, batches, **more), client_id=client_id)
    return [one for topic in answer.responses for one in topic.partition_responses]


async def produce_code(node: Node, data: bytes | None, version: int = 9, **more: Any) -> int:
    [one] = await produce(node, {("t", 0): data}, version, **more)
    return int(one.error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_what_kio_writes(version: int) -> None:
    results = [
        AppendResult(0, 5, -1, 2),
        AppendResult(87, -1, -1, 0, ((0, "no key"), (3, "é")), "refused"),
        AppendResult(2, -1, 1_700_000_000_000, -1),
    ]
    topics: list[Any] = [("one", results), ("two", []), ("three", results[:1])]
    ids = {name: UUID(int=at + 7) for at, (name, _) in enumerate(topics)}
    tree = {
        "throttle_time": 30,
        "responses": [
            {
                "name": name,
                "topic_id": ids[name],
                "partition_responses": [
                    {
                        "index": index,
                        "error_code": one.error_code,
                        "base_offset": one.base_offset,
                        "log_append_time": one.append_time_ms,
                        "log_start_offset": one.log_start_offset,
                        "record_errors": [
                            {"batch_index": at, "batch_index_error_message": words} for at, words in one.record_errors
                        ],
                        "error_message": one.message,
                    }
                    for index, one in enumerate(rows)
                ],
            }
            for name, rows in topics
        ],
    }
    rows = {ids[name] if version >= 13 else name: dict(enumerate(results)) for name, results in topics}
    answer = {**answer_tree(version, rows), "throttle_time": 30}
    expected = by_kio.write_by_kio(0, version, "response", response_plan(0, version), tree)
    assert response_writer(0, version).write(answer) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_writes_and_answers(tmp_path: Path, version: int) -> None:
    """FLOW-25."""

    async def body(node: Node) -> None:
        for number in range(2):
            [one] = await produce(node, {("t", 0): make_batch(3)}, version)
            assert (one.error_code, one.base_offset) == (0, 3 * number)

    run_node(tmp_path, body)


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_versions_that_are_not_served_close(tmp_path: Path, version: int) -> None:
    """FLOW-25: 0 to 2 are offered, and not served."""

    async def body(node: Node) -> None:
        frame = request_bytes("produce", 3, produce_tree(node, 3, {("t", 0): make_batch()}))
        frame[2:4] = version.to_bytes(2, "big")
        assert repr(await dispatch(node, connection_for(), frame)) == "CLOSE"

    run_node(tmp_path, body)


@pytest.mark.parametrize(("version", "expected"), [(12, 0), (13, ErrorCode.UNKNOWN_TOPIC_ID)])
def test_a_topic_that_was_created_again_meanwhile_is_another_topic(
    tmp_path: Path, version: int, expected: int
) -> None:
    """By id; by name it is the same one."""

    async def body(node: Node) -> None:
        node.replicas.hold_writes()
        waiting = asyncio.ensure_future(produce(node, {("t", 0): make_batch()}, version))
        await settle()
        await node.topics.delete("t")
        await node.topics.create("t", 1)
        node.replicas.release_writes()
        [one] = await waiting
        assert one.error_code == expected
        assert node.replicas.find(T0).log.log_end_offset == (0 if expected else 1)

    run_node(tmp_path, body)


def test_codes_of_the_reference(tmp_path: Path) -> None:
    """FLOW-1, FLOW-5, FLOW-6, FLOW-7 and wire.md M5."""

    async def body(node: Node) -> None:
        await node.topics.ensure_internal("__consumer_offsets")
        broken = bytearray(make_batch())
        broken[-1] ^= 1
        batches = {("t", 1): bytes(broken), ("t", 7): make_batch(), ("gone", 0): make_batch(), ("t", 0): make_batch()}
        rows = await produce(node, batches)  # type: ignore[arg-type]
        assert [(one.index, one.error_code, one.base_offset) for one in rows] == [
            (1, 2, -1), (7, 3, -1), (0, 0, 0), (0, 3, -1)
        ]  # fmt: skip
        [one] = await produce(node, {("gone", 0): make_batch()}, 13)
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        rows = await produce(node, {("t", 0): make_batch(), ("t", 1): make_batch()}, acks=5)
        assert [one.error_code for one in rows] == [21, 21]
        for data in (make_batch() + make_batch(), b"", None, make_batch()[:-1], make_batch()[:40]):
            assert await produce_code(node, data) == ErrorCode.INVALID_RECORD
        assert await produce_code(node, make_batch(timestamp=-7)) == 0
        for client_id, expected in (("test", 17), ("__admin_client", 0)):
            keyed = batch([R(b"value", b"key", timestamp=5_000)])
            [one] = await produce(node, {("__consumer_offsets", 0): keyed}, client_id=client_id)
            assert one.error_code == expected
        assert [await produce_code(node, make_producer_batch(4, sequence)) for sequence in (5, 5, 9)] == [0, 0, 45]
        assert node.replicas.find(T0).log.log_end_offset == 3

    run_node(tmp_path, body)


def test_old_formats_and_codecs_are_refused(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert await produce_code(node, message_v1(0, b"value")) == ErrorCode.INVALID_RECORD
        data = bytes(cramjam.zstd.compress(make_batch(3)[61:]))
        packed = frame(data, count=3, last_delta=2, attributes=4, base_timestamp=5_000, max_timestamp=5_000)
        assert [await produce_code(node, packed, version) for version in (3, 6, 7)] == [76, 76, 0]

    run_node(tmp_path, body)


def test_a_codec_that_nobody_knows_is_no_fault_of_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(node: Node) -> None:
        data = frame(b"zz", count=1, last_delta=0, attributes=7)
        assert await produce_code(node, data) == ErrorCode.UNKNOWN_SERVER_ERROR  # what a broker answers
        assert await produce_code(node, make_batch()) == 0

    run_node(tmp_path, body)
    assert not [record for record in caplog.records if record.exc_info]


def test_acks_0_has_no_answer_and_ends_with_an_error(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert await call(node, "produce", 9, produce_tree(node, 9, {("t", 0): make_batch()}, acks=0)) is None
        assert node.replicas.find(T0).log.log_end_offset == 1
        for batches in ({("gone", 0): make_batch()}, {("t", 0): make_batch(), ("t", 1): b"nothing"}):
            with pytest.raises(Closed):
                await call(node, "produce", 9, produce_tree(node, 9, batches, acks=0))  # type: ignore[arg-type]
        assert node.replicas.find(T0).log.log_end_offset == 2

    run_node(tmp_path, body)


def test_a_partition_named_twice_is_written_once(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        tree = produce_tree(node, 9, {("t", 0): make_batch()})
        tree["topic_data"][0]["partition_data"].append({"index": 0, "records": make_batch(2)})
        answer = await call(node, "produce", 9, tree)
        [one] = answer.responses[0].partition_responses
        assert (one.error_code, one.base_offset, node.replicas.find(T0).log.log_end_offset) == (0, 0, 2)

    run_node(tmp_path, body)


def test_transactional_batches_need_their_id(tmp_path: Path) -> None:
    """FLOW-9."""

    async def body(node: Node) -> None:
        data = {("t", 0): make_producer_batch(9, 0, transactional=True), ("t", 1): make_batch()}
        rows = await produce(node, data)  # type: ignore[arg-type]
        assert [one.error_code for one in rows] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        assert node.replicas.find(TopicPartition("t", 1)).log.log_end_offset == 0
        [one] = await produce(node, {("t", 0): make_batch(attributes=0x10)})  # without a producer id
        assert one.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert node.replicas.find(T0).log.log_end_offset == 0

    run_node(tmp_path, body)


def test_records_that_are_refused_are_named(tmp_path: Path) -> None:
    """FLOW-8."""

    async def body(node: Node) -> None:
        await node.topics.create("c", 1, {"cleanup.policy": "compact"})
        for version in (8, 9):
            [one] = await produce(node, {("c", 0): make_batch(2)}, version)
            assert one.error_code == ErrorCode.INVALID_RECORD and one.error_message
            assert [error.batch_index for error in one.record_errors] == [0, 1]

    run_node(tmp_path, body)


def test_a_bomb_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    """A batch of a few KB that decompresses to 300 MB."""

    async def body(node: Node) -> None:
        size = 300 << 20
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        head = batch([R(bytes(10), timestamp=5_000)])[61:]
        data = packer.compress(head) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
        assert len(data) < 2 << 20 < size
        bomb = frame(data, count=1, last_delta=0, attributes=1, base_timestamp=5_000, max_timestamp=5_000)
        sent = [asyncio.create_task(produce_code(node, bomb)) for _ in range(3)]
        await settle()
        assert [one.error_code for one in await produce(node, {("t", 1): make_batch()})] == [0]
        assert set(await asyncio.gather(*sent)) <= {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}

    run_node(tmp_path, body, message_max_bytes=4 << 20)


def test_a_refused_bomb_leaves_nothing_to_the_collector(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        async def dispatch_frame(connection: Any, request_frame: bytearray) -> Any:
            return await dispatch(node, connection, request_frame)

        junk = random.Random(1).randbytes(4096)  # packed, it is large enough for the pool
        packed = bytes(cramjam.zstd.compress(make_batch(1)[61:] + junk + bytes(1 << 20)))
        bomb = frame(packed, count=1, last_delta=0, attributes=4, base_timestamp=5_000, max_timestamp=5_000)
        asked = add_length(request_bytes("produce", 9, produce_tree(node, 9, {("t", 0): bomb})))
        async with network_for(dispatch_frame) as network:
            reader, writer = await connect(network)
            writer.write(asked)
            await answer_of(reader)
            with left_to_collector() as left:
                writer.write(asked)
                answer = await answer_of(reader)
                replace_threads(node.pool)
            writer.close()
        assert ErrorCode.INVALID_RECORD.to_bytes(2, "big") in answer
        kinds = {type(one).__name__ for one in left}
        assert not kinds & {"Block", "frame", "traceback", "memoryview", "InvalidRecord", "CorruptRecord"}, kinds

    run_node(tmp_path, body)


def test_a_waiting_produce_holds_no_record_bytes(tmp_path: Path) -> None:
    size, count = 900_000, 40

    async def body(node: Node) -> None:
        partition = node.replicas.find(T0)
        partition.become_leader(Role(node.node_id, 1, 1, (node.node_id, 7), (node.node_id, 7)))
        data = batch([R(bytes(size), timestamp=5_000)])
        tree = produce_tree(node, 9, {("t", 0): data}, acks=-1, timeout=60_000)
        tracemalloc.start()
        tasks = []
        for _ in range(count):
            frame = request_bytes("produce", 9, tree)
            tasks.append(asyncio.create_task(dispatch(node, connection_for(), frame)))
            del frame
            while node.replicas.waiting.produce.delayed < len(tasks):
                await asyncio.sleep(0)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert partition.log.log_end_offset == count
        assert held < 3 * size, f"{held} bytes for {count} requests of {size}"
        await node.replicas.stop()
        await asyncio.gather(*tasks)

    run_node(tmp_path, body)


def test_a_partition_that_is_not_there_is_told_before_the_records_are_looked_at(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        for index in (2, -1):
            for data in (None, b"", b"no batch at all", make_batch(1)):
                [one] = await produce(node, {("t", index): data})
                assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_node(tmp_path, body)


@pytest.mark.parametrize("version", [7, 8, 13])
def test_a_full_disk_is_logged_once_and_named_in_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    fs = FaultFS()

    async def body(node: Node) -> None:
        fs.fail("pwrite", "pwritev", path="t-0", code=errno.ENOSPC)
        for _ in range(2):
            [one] = await produce(node, {("t", 0): make_batch(1)}, version)
            assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert version < 8 or os.strerror(errno.ENOSPC) in one.error_message
        [line] = [one for one in caplog.records if one.levelno == logging.ERROR]
        text = line.getMessage()
        assert text.startswith("cannot append to t-0: ") and os.strerror(errno.ENOSPC) in text
        assert str(tmp_path / "t-0") in text
        fs.heal()
        assert await produce_code(node, make_batch(1)) == 0

    run_node(tmp_path, body, fs=fs)
