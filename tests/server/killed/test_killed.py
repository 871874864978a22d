"""`kill -9` under load: what was acknowledged is there, and clients go on with the next server.

KAFKALOG_KILLS sets the number of kills; the default is two. What a killed process had written lies
in the page cache, so all of it outlives the kill, whatever is flushed; `tests/crash/test_server_power_cut.py` takes the
page cache away, too.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from kafkalog.testing import kafka_server

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")
from tests.server.killed.clients import (
    AIOKAFKA,
    LIBRDKAFKA,
    PARTITIONS,
    AioKafkaProducer,
    CommittingReader,
    LibrdkafkaProducer,
    TransactionalProducer,
    Writer,
    committed_offsets,
    values_of,
)

KILLS = int(os.environ.get("KAFKALOG_KILLS", "2"))
RECORDS_A_KILL = 60
"""Of each client, at the least, between two kills."""
DEADLINE_S = 300 + 20 * KILLS
POLICIES = {
    "every record flushed": {"log.flush.interval.messages": "1"},
    "flushed by the system": {},
    "two processes": {},
    "small segments": {"log.segment.bytes": "1048576", "log.roll.ms": "3000", "log.index.interval.bytes": "256"},
}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_acknowledged_is_there_after_kills_and_clients_go_on(tmp_path: Path, policy: str) -> None:
    chance = random.Random(f"{policy} {KILLS}")
    settings = {"group.min.session.timeout.ms": "1000", **POLICIES[policy]}
    clients = (
        LibrdkafkaProducer("librdkafka-once", LIBRDKAFKA, codec="zstd", is_idempotent=True),
        LibrdkafkaProducer("librdkafka-plain", LIBRDKAFKA, codec="gzip", is_idempotent=False),
        AioKafkaProducer("aiokafka-once", AIOKAFKA, codec="lz4", is_idempotent=True),
        AioKafkaProducer("aiokafka-plain", AIOKAFKA, codec=None, is_idempotent=False),
        TransactionalProducer("transactions", LIBRDKAFKA, codec="snappy", is_idempotent=True),
    )
    reader = CommittingReader("librdkafka-once")
    topics = {client.topic: PARTITIONS for client in clients}
    processes = 2 if policy == "two processes" else 1
    with kafka_server(directory=tmp_path / "data", settings=settings, topics=topics, workers=processes) as server:
        deadline = time.monotonic() + DEADLINE_S
        workers = (*clients, reader)
        for worker in workers:
            worker.start(server.bootstrap)
        try:
            for _ in range(KILLS):
                goals = [worker.done + RECORDS_A_KILL for worker in workers]
                _until(workers, goals, deadline, server.log)
                time.sleep(chance.random() / 10)
                server.kill()
                time.sleep(chance.random() / 5)
                server.start()
            _until(workers, [worker.done + RECORDS_A_KILL for worker in workers], deadline, server.log)
        finally:
            for worker in workers:
                worker.stop()
        for client in clients:
            _check(client, values_of(server.bootstrap, client.topic))
        offsets = committed_offsets(server.bootstrap, reader.group_id, reader.topic)
        assert all(offsets[index] >= at for index, at in reader.committed.items()), (offsets, reader.committed)
        server.kill()
        server.start()
        assert committed_offsets(server.bootstrap, reader.group_id, reader.topic) == offsets


def _until(workers: tuple[Writer, ...], goals: list[int], deadline: float, log: object) -> None:
    while any(worker.done < goal for worker, goal in zip(workers, goals, strict=True)):
        for worker in workers:
            assert worker.failure is None, f"{worker.topic}: {worker.failure!r}"
        late = [(worker.topic, worker.done, goal) for worker, goal in zip(workers, goals, strict=True)]
        assert time.monotonic() < deadline, f"{late}\n{log() if callable(log) else log}"
        time.sleep(0.01)


def _check(client: Writer, found: dict[int, list[int]]) -> None:
    assert client.failure is None, f"{client.topic}: {client.failure!r}"
    for index in range(PARTITIONS):
        acknowledged, there = client.acknowledged[index], found[index]
        if client.is_idempotent:
            assert there == sorted(set(there)), f"{client.topic}-{index}: in order, and each once"
        assert set(acknowledged) <= set(there), f"{client.topic}-{index}: {set(acknowledged) - set(there)} are lost"
        assert not set(there) & client.aborted, f"{client.topic}-{index}: what was aborted is read"
