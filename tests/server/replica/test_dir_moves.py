"""AlterReplicaLogDirs, as a broker of 4.4.0 answers it: partitions move to other directories while clients go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.node.node import Node
from kafkalog.server.replica import dir_moves
from kafkalog.types import TopicPartition
from tests.server.nodes import call, node_for
from tests.server.replica.partitions import settle

T0 = TopicPartition("t", 0)


async def alter(node: Node, *rows: tuple[Path | str, str, list[int]], version: int = 2) -> dict[tuple[str, int], int]:
    dirs = [{"path": str(path), "topics": [{"name": name, "partitions": numbers}]} for path, name, numbers in rows]
    answer = await call(node, "alter_replica_log_dirs", version, {"dirs": dirs})
    return {(one.topic_name, p.partition_index): p.error_code for one in answer.results for p in one.partitions}


async def places(node: Node) -> dict[str, list[bool]]:
    """The directories that hold partition 0, and whether each copy is a future one."""
    asked = {"topics": [{"topic": "t", "partitions": [0]}]}
    answer = await call(node, "describe_log_dirs", 4, asked)
    return {
        Path(one.log_dir).name: [p.is_future_key for topic in one.topics for p in topic.partitions]
        for one in answer.results
        if one.topics
    }


async def produce(node: Node, count: int, size: int = 10) -> None:
    builder = RecordsBuilder()
    for number in range(count):
        builder.append(node.clock(), b"%d" % number, b"v" * size)
    topic = {"name": "t", "partition_data": [{"index": 0, "records": bytes(builder.build())}]}
    fields = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": [topic]}
    answer = await call(node, "produce", 9, fields)
    assert answer.responses[0].partition_responses[0].error_code == 0


def log_of(node: Node) -> Any:
    return node.replicas.find(T0).log


def test_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 2)
            current = Path(log_of(node).path).parent
            for version in (1, 2):
                assert await alter(node, ("/nowhere", "t", [0]), version=version) == {("t", 0): 57}
            assert await alter(node, ("relative", "t", [0])) == {("t", 0): 57}
            assert await alter(node, (f"{b}\0", "t", [0])) == {("t", 0): 57}
            assert await alter(node, (b, "t", [9]), (a, "none", [0])) == {("t", 9): 3, ("none", 0): 3}
            assert f"t-9 cannot be moved to {b}: there is no partition t-9" in caplog.messages
            assert await alter(node) == {}
            assert await alter(node, (current, "t", [0])) == {("t", 0): 0}
            assert await places(node) == {current.name: [False]}

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_partition_moves_while_records_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and no producer sees an error."""
    monkeypatch.setattr(dir_moves, "CHUNK_BYTES", 500)
    a, b = tmp_path / "a", tmp_path / "b"

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            for _ in range(30):
                await produce(node, 3)
            topic = {"name": "t", "partitions": [{"partition_index": 0, "offset": 4}]}
            await call(node, "delete_records", 2, {"timeout": 1000, "topics": [topic]})
            target = b if log_of(node).path.startswith(str(a)) else a
            before = log_of(node)
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            sent = 90
            while node.store.future_logs:
                await produce(node, 1)
                sent += 1
                await asyncio.sleep(0.001)
            assert log_of(node) is not before and log_of(node).path.startswith(str(target))
            await produce(node, 2)
            assert (log_of(node).log_start_offset, log_of(node).log_end_offset) == (4, sent + 2)
            assert log_of(node).high_watermark == sent + 2
            read = log_of(node).read(4, 1 << 20).records.read()
            assert read.startswith(before.read(4, 1 << 10).records.read()[:100])
            assert not node.store.future_logs and await places(node) == {target.name: [False]}

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_move_is_given_up_or_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for the present directory deletes the copy; a start goes on with the copies that it finds."""
    a, b = tmp_path / "a", tmp_path / "b"

    async def never(self: object, key: TopicPartition) -> bool:
        await asyncio.Event().wait()
        return True

    async def begin() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(dir_moves.DirMoves, "_step", never)
            async with node_for(a, b) as node:
                await node.topics.create("t", 1)
                await produce(node, 3)
                here, there = (a, b) if log_of(node).path.startswith(str(a)) else (b, a)
                assert await alter(node, (there, "t", [0])) == await alter(node, (there, "t", [0])) == {("t", 0): 0}
                assert await places(node) == {here.name: [False], there.name: [True]}
                assert await alter(node, (there, "t", [0]), (here, "t", [0])) == {("t", 0): 0}
                assert await places(node) == {here.name: [False]}
                assert await alter(node, (there, "t", [0])) == {("t", 0): 0}

    async def go_on() -> None:
        async with node_for(a, b) as node:
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert log_of(node).log_end_offset == 3
            (place,) = (await places(node)).items()
            assert place[1] == [False]
            await produce(node, 1)

    asyncio.run(asyncio.wait_for(begin(), 60))
    asyncio.run(asyncio.wait_for(go_on(), 60))


def test_two_requests_at_once_begin_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second task would copy the same records beside the first one, and a stop would end one of them only."""
    a, b = tmp_path / "a", tmp_path / "b"
    steps: list[TopicPartition] = []

    async def never(self: object, key: TopicPartition) -> bool:
        steps.append(key)
        await asyncio.Event().wait()
        return True

    async def run() -> None:
        monkeypatch.setattr(dir_moves.DirMoves, "_step", never)
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            there = b if log_of(node).path.startswith(str(a)) else a
            answers = await asyncio.gather(*(alter(node, (there, "t", [0])) for _ in range(2)))
            assert answers == [{("t", 0): 0}] * 2
            await settle()
            assert steps == [T0]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_of_two_requests_at_once_the_second_counts(tmp_path: Path) -> None:
    """The first one's copy is given up; the second found it, and was answered without an error and forgotten."""
    paths = [tmp_path / name for name in "abc"]

    async def run() -> None:
        async with node_for(*paths) as node:
            await node.topics.create("t", 1)
            await produce(node, 3)
            one, two = (path for path in paths if not log_of(node).path.startswith(str(path)))
            answers = await asyncio.gather(*(alter(node, (path, "t", [0])) for path in (one, two)))
            assert answers == [{("t", 0): 0}] * 2
            while node.store.future_logs:
                await asyncio.sleep(0.01)
            assert await places(node) == {two.name: [False]} and log_of(node).log_end_offset == 3

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_move_leaves_the_appends_to_a_handover_that_has_begun_meanwhile(tmp_path: Path) -> None:
    """Else the leader would take writes that its successor, which has all by then, does not get."""
    a, b = tmp_path / "a", tmp_path / "b"

    async def run() -> None:
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            await produce(node, 3)
            target = b if Path(log_of(node).path).parent == a else a
            written = asyncio.Event()
            appending = node.replicas.pool_appends.start(written.wait())  # the move waits for it, and holds the others
            assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
            while not node.replicas._holds_writes:
                await asyncio.sleep(0.001)
            node.quorum.handover._hold()
            written.set()
            await appending
            while Path(log_of(node).path).parent != target:
                await asyncio.sleep(0.001)
            assert node.replicas._holds_writes
            node.quorum.handover._release()
            await produce(node, 1)

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("fault", ["of a disk", "of the code"])
def test_a_move_that_fails_is_logged_and_may_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    error = ValueError("a fault") if fault == "of the code" else StorageError("the disk is full")
    prepare, failures = dir_moves.prepare_future, [error]

    def prepare_future(*given: Any) -> int:
        if failures:
            raise failures.pop()
        return prepare(*given)

    async def run() -> None:
        monkeypatch.setattr(dir_moves, "prepare_future", prepare_future)
        async with node_for(a, b) as node:
            await node.topics.create("t", 1)
            await produce(node, 3)
            target = b if Path(log_of(node).path).parent == a else a
            for count in (1, 0):
                assert await alter(node, (target, "t", [0])) == {("t", 0): 0}
                while len(node.store.future_logs) != count or node.parts["moves"]._tasks:
                    await asyncio.sleep(0.001)
            assert Path(log_of(node).path).parent == target and log_of(node).log_end_offset == 3

    asyncio.run(asyncio.wait_for(run(), 60))
    [logged] = [one for one in caplog.records if one.name == dir_moves.__name__]
    text = "the move of t-0 to another directory is given up"
    if fault == "of a disk":
        assert (logged.getMessage(), logged.exc_info) == (f"{text}: the disk is full", None)
    else:
        assert logged.getMessage() == text and logged.exc_info is not None and logged.exc_info[1] is error
