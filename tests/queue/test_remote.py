"""Work queues through a server: workers in several processes, and directories that change hands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

import kafkalog
from kafkalog.errors import InvalidRecordState, KafkalogError, LogClosed, UnknownTopicOrPartition, from_code
from kafkalog.queue import connect
from kafkalog.server.client.errors import PeerError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.sharing.member import may_pass
from kafkalog.testing import KafkaCluster, KafkaServer, kafka_cluster, kafka_server
from tests.queue.test_local import LONG_S, values
from tests.server.looping import pass_time
from tests.trees import PACKAGE

TAKER = """
import sys
from kafkalog.queue import connect
queue = connect(sys.argv[1], "killed", "workers")
print(len(queue.acquire(2, timeout=60)), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    settings = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
    topics = {"tasks": 1, "killed": 1, "locked": 1, "kinds": 1, "idle": 1, "few": 1, "fenced": 1}
    with kafka_server(topics=topics, settings=settings) as found:
        yield found


def put(server: KafkaServer | KafkaCluster, topic: str, *given: bytes) -> None:
    """Append records to partition 0 of a topic."""
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": server.bootstrap})
    for value in given:
        producer.produce(topic, value, partition=0)
    assert producer.flush(LONG_S) == 0


def test_workers_share_the_records(server: KafkaServer) -> None:
    put(server, "tasks", b"a", b"b", b"c")
    with connect(server.bootstrap, "tasks", "workers") as one, connect(server.bootstrap, "tasks", "workers") as other:
        assert (one.name, one.topic) == ("workers", "tasks")
        mine, theirs = one.acquire(2, timeout=LONG_S), other.acquire(2, timeout=LONG_S)
        assert (values(mine), values(theirs)) == ([(b"a", 1), (b"b", 1)], [(b"c", 1)])
        one.ack(mine[:1])
        mine[1].renew()
        mine[1].release()
        theirs[0].reject()
        again = other.acquire(timeout=LONG_S)
        assert values(again) == [(b"b", 2)]
        other.ack(again)
        assert one.acquire() == []


def test_a_killed_worker_gives_back_what_it_had(server: KafkaServer) -> None:
    put(server, "killed", b"a", b"b", b"c")
    command = [sys.executable, "-c", TAKER, server.bootstrap]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert worker.stdin is not None and worker.stdout is not None
    with worker, connect(server.bootstrap, "killed", "workers") as queue:
        assert worker.stdout.readline() == "2\n"
        assert values(queue.acquire(timeout=LONG_S)) == [(b"c", 1)]
        worker.send_signal(signal.SIGKILL)
        assert values(queue.acquire(timeout=LONG_S)) == [(b"a", 2), (b"b", 2)]


def test_a_lock_expires_unless_it_is_renewed(server: KafkaServer) -> None:
    put(server, "locked", b"slow", b"renewed")
    settings = {"share.record.lock.duration.ms": 15_000, "share.session.timeout.ms": 60_000}
    with connect(server.bootstrap, "locked", "workers", settings=settings) as queue:
        slow, renewed = queue.acquire(timeout=LONG_S)
        server.advance(seconds=10)
        renewed.renew()
        server.advance(seconds=10)
        assert values(queue.acquire(timeout=LONG_S)) == [(b"slow", 2)]
        renewed.ack()
        assert queue.acquire() == []
        assert slow.offset == 0


def test_after_a_restart_of_the_server_a_worker_goes_on(tmp_path: Path) -> None:
    with kafka_server(topics={"tasks": 1}, directory=tmp_path / "data") as server:
        put(server, "tasks", b"a", b"b", b"c")
        with connect(server.bootstrap, "tasks", "workers") as queue:
            first, second, _ = queue.acquire(timeout=LONG_S)
            first.ack()
            server.kill()
            server.start()
            assert values(queue.acquire(timeout=LONG_S)) == [(b"b", 1), (b"c", 1)]  # its locks were in memory
            with pytest.raises(InvalidRecordState, match="records are no longer this worker's"):
                second.ack()
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs, dirs["tasks"].queue("workers") as local:
        found = local.acquire()
        assert [one.value for one in found] == [b"b", b"c"]
        found[0].ack()
    with kafka_server(directory=tmp_path / "data") as server:
        with connect(server.bootstrap, "tasks", "workers") as queue:
            assert [one.value for one in queue.acquire(timeout=LONG_S)] == [b"c"]


def test_a_server_that_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    with kafka_server(topics={"tasks": 1}, directory=tmp_path / "data") as server:
        queue = connect(server.bootstrap, "tasks", "workers")
        server.kill()
        begin_s = time.monotonic()
        with pytest.raises(PeerError):
            queue.acquire(timeout=0.5)
        queue.close()
        assert time.monotonic() - begin_s < LONG_S  # less than delivery.timeout.ms
        server.start()


def test_without_a_partition_or_a_leader_a_worker_waits(server: KafkaServer) -> None:
    with connect(server.bootstrap, "idle", "workers") as queue, ThreadPoolExecutor(1) as pool:
        worker: Any = queue._worker
        member = worker._member
        for _ in range(2):
            waiting = pool.submit(queue.acquire, timeout=LONG_S)
            worker._loop.call(asyncio.sleep(0.2))
            member._assigned = frozenset()  # as a heartbeat may say while it waits
            worker._loop.call(asyncio.sleep(0.5))  # others have their turn
            assert not waiting.done()
            member._topic = member._topic._replace(leaders=(-1,))  # as during an election
            member._assigned = frozenset({0})
            member._has_assignment.set()
            put(server, "idle", b"a")
            [item] = waiting.result(LONG_S)
            item.ack()
        found, member._topic = member._topic, member._topic._replace(leaders=(-1,))
        worker._loop.call(member.beat())  # as every few seconds: other partitions may have a leader
        assert member._topic == found


def test_worker_sends_no_needless_requests(server: KafkaServer) -> None:
    put(server, "few", b"a")
    settings = {"share.heartbeat.interval.ms": 15_000}
    with server.record() as seen:
        with connect(server.bootstrap, "few", "workers", settings=settings) as queue:
            queue.acquire(timeout=LONG_S)[0].ack()
            assert queue.acquire(timeout=0.5) == []
        seen.assert_count("ShareAcknowledge", 2)  # the other one ends its session
        assert seen.count("ShareGroupHeartbeat") < 4  # it joins and leaves, and may have been away for 15 s


def test_fenced_worker_joins_again(server: KafkaServer) -> None:
    async def end_beats() -> None:
        worker._member._beating.cancel()  # one of its own would be counted

    with connect(server.bootstrap, "fenced", "workers") as queue:
        worker: Any = queue._worker
        worker._loop.call(end_beats())
        for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            with server.fault("ShareGroupHeartbeat", error=int(code), times=1), server.record() as seen:
                worker._loop.call(worker._member.beat())  # as every few seconds
            seen.assert_count("ShareGroupHeartbeat", 2)
            put(server, "fenced", b"a")
            queue.acquire(timeout=LONG_S)[0].ack()
        with server.record() as seen:
            worker._loop.call(worker._member.beat())
        seen.assert_count("ShareGroupHeartbeat", 1)


def test_a_worker_that_its_group_refuses_says_so(server: KafkaServer, caplog: pytest.LogCaptureFixture) -> None:
    async def beat_soon() -> None:
        pass_time(600)

    with connect(server.bootstrap, "fenced", "workers") as queue:
        worker: Any = queue._worker
        with server.fault("ShareGroupHeartbeat", error="GROUP_AUTHORIZATION_FAILED"):
            worker._loop.call(beat_soon())
            with pytest.raises(KafkalogError) as refused:
                queue.acquire(timeout=None)
        assert refused.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert f"queue workers of topic fenced: no heartbeat: {refused.value}" in caplog.messages


@pytest.mark.parametrize(("error", "is_so"), [
    (PeerError("the connection broke"), True), (UnknownTopicOrPartition("t"), False), (LogClosed("t"), False),
    (from_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "t"), True), (from_code(ErrorCode.NOT_COORDINATOR, "t"), True),
    (from_code(ErrorCode.KAFKA_STORAGE_ERROR, "t"), True), (from_code(ErrorCode.INVALID_REQUEST, "t"), False),
])  # fmt: skip
def test_what_a_later_heartbeat_may_mend(error: KafkalogError, is_so: bool) -> None:
    assert may_pass(error) == is_so


def test_aborted_transactions_hide_no_records(tmp_path: Path) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    with kafka_server(topics={"tasks": 1}, directory=tmp_path / "data") as server:
        producer = confluent.Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "writer"})
        producer.init_transactions(LONG_S)
        for is_done in (False, False, True):
            producer.begin_transaction()
            for _ in range(3):
                producer.produce("tasks", b"done" if is_done else b"not", partition=0)
            producer.flush(LONG_S)
            (producer.commit_transaction if is_done else producer.abort_transaction)(LONG_S)
    settings = {"share.isolation.level": "read_committed"}
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs, dirs["tasks"].queue("workers", settings=settings) as local:
        assert [(one.offset, one.value) for _ in range(3) for one in local.acquire(1)] == [
            (8, b"done"), (9, b"done"), (10, b"done"),
        ]  # fmt: skip
        assert local.acquire(1) == []


def test_a_worker_follows_the_leader() -> None:
    with kafka_cluster(nodes=3, topics={"tasks": 1}) as cluster:
        put(cluster, "tasks", b"a", b"b")
        with connect(cluster.bootstrap, "tasks", "workers") as queue:
            queue.acquire(1, timeout=LONG_S)[0].ack()
            cluster.kill(cluster.leader)
            assert [one.value for one in queue.acquire(timeout=LONG_S)] == [b"b"]


def test_what_cannot_be_opened(server: KafkaServer) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="has no topic none"):
        connect(server.bootstrap, "none", "workers")
    with pytest.raises(KafkalogError, match=r"share\.delivery\.count\.limit"):
        connect(server.bootstrap, "tasks", "others", settings={"share.delivery.count.limit": 1000})
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers"})
    consumer.subscribe(["kinds"])
    server.wait_for(until=lambda: consumer.poll(0.01) is None and bool(consumer.assignment()))
    with pytest.raises(KafkalogError, match="readers is not a share group"):
        connect(server.bootstrap, "kinds", "readers")
    consumer.close()
    with pytest.raises(ConnectionError):
        connect("127.0.0.1:1", "tasks", "workers")
