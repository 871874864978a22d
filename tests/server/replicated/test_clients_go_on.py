"""Third-party clients follow a change of leader through the errors in answers: their metadata stays fresh for
five minutes here, and the tests do not wait for that."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")
from tests.server.replicated.clients import LIBRDKAFKA
from tests.server.replicated.cluster import NODES, SETTINGS, Cluster

pytestmark = pytest.mark.slow
WAIT_S = 120
FRESH_MS = 300_000
MORE = 50
AT_ONCE = 20
Seen = dict[int, list[tuple[int, bytes]]]
"""By partition: (offset, value), in the order of the acknowledgements."""


class Client(threading.Thread):
    """One client in a thread: a writer writes numbers to its partition, a reader reads both."""

    def __init__(self, bootstrap: str, partition: int | None = None) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.partition = partition
        self.seen: Seen = {0: [], 1: []}
        self.sent = 0
        self.is_over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    @property
    def next_value(self) -> bytes:
        self.sent += 1
        return b"%d" % (self.sent - 1)


class LibrdkafkaWriter(Client):
    def work(self) -> None:
        import confluent_kafka as ck

        producer = ck.Producer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0,
            "topic.metadata.refresh.interval.ms": FRESH_MS, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
        })  # fmt: skip
        assert self.partition is not None

        def delivered(error: object, record: ck.Message) -> None:
            assert error is None
            self.seen[record.partition()].append((record.offset(), record.value()))

        while not self.is_over.is_set():
            producer.produce("t", self.next_value, partition=self.partition, on_delivery=delivered)
            while producer.poll(0.01) or len(producer) > AT_ONCE:
                pass
        assert producer.flush(WAIT_S) == 0


class AioKafkaWriter(Client):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        import aiokafka

        assert self.partition is not None
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, acks="all", metadata_max_age_ms=FRESH_MS,
            retry_backoff_ms=50, request_timeout_ms=WAIT_S * 1000,
        )  # fmt: skip
        await producer.start()
        try:
            while not self.is_over.is_set():
                values = [self.next_value for _ in range(AT_ONCE)]
                sent = [await producer.send("t", value, partition=self.partition) for value in values]
                for value, acked in zip(values, await asyncio.gather(*sent), strict=True):
                    self.seen[acked.partition].append((acked.offset, value))
        finally:
            await producer.stop()


class LibrdkafkaReader(Client):
    def work(self) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer({
            **LIBRDKAFKA, "bootstrap.servers": self.bootstrap, "group.id": "g", "enable.auto.commit": False,
            "auto.offset.reset": "error", "fetch.wait.max.ms": 50, "topic.metadata.refresh.interval.ms": FRESH_MS,
        })  # fmt: skip
        consumer.assign([ck.TopicPartition("t", index, 0) for index in (0, 1)])
        try:
            while not self.is_over.is_set():
                for record in consumer.consume(100, 0.1):
                    assert not record.error(), record.error()
                    self.seen[record.partition()].append((record.offset(), record.value()))
        finally:
            consumer.close()


class AioKafkaReader(Client):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        import aiokafka

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none",
            metadata_max_age_ms=FRESH_MS, retry_backoff_ms=50, fetch_max_wait_ms=50,
        )  # fmt: skip
        await consumer.start()
        try:
            places = [aiokafka.TopicPartition("t", index) for index in (0, 1)]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            while not self.is_over.is_set():
                for place, records in (await consumer.getmany(timeout_ms=100)).items():
                    self.seen[place.partition].extend((one.offset, one.value) for one in records)
        finally:
            await consumer.stop()


def wait_until(holds: Callable[[], bool], clients: list[Client]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        for one in clients:
            assert one.failure is None, one.failure
        assert time.monotonic() < end, [(type(one), *map(len, one.seen.values())) for one in clients]
        time.sleep(0.05)


def until_all_go_on(clients: list[Client]) -> None:
    """Return once each client has more acknowledgements in each of its partitions."""

    def counts() -> list[int]:
        return [len(rows) for one in clients for index, rows in one.seen.items() if one.partition in (None, index)]

    before = counts()
    wait_until(lambda: all(now >= was + MORE for now, was in zip(counts(), before, strict=True)), clients)


def test_no_record_is_lost_or_doubled_by_a_promotion(tmp_path: Path) -> None:
    """FLOW-4: who leads no more says so, and who leads now."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with Cluster(tmp_path, 0, SETTINGS) as cluster:
        wait_until(lambda: len(cluster.states()) == len(NODES), [])
        wait_until(lambda: not cluster.promote(1), [])
        admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(WAIT_S)
        del admin  # with its connections
        wait_until(lambda: cluster.in_sync(["t"]) == len(NODES), [])
        writers = [LibrdkafkaWriter(cluster.bootstrap, 0), AioKafkaWriter(cluster.bootstrap, 1)]
        readers = [LibrdkafkaReader(cluster.bootstrap), AioKafkaReader(cluster.bootstrap)]
        clients: list[Client] = [*writers, *readers]
        for one in clients:
            one.start()
        until_all_go_on(clients)
        for leader in (2, 3, 1):
            wait_until(lambda leader=leader: not cluster.promote(leader), clients)  # type: ignore[misc]
            until_all_go_on(clients)
        for one in writers:
            one.is_over.set()
            one.join(WAIT_S)
        wait_until(lambda: all(len(one.seen[w.partition]) >= w.sent for one in readers for w in writers), clients)  # type: ignore[index]
        for one in readers:
            one.is_over.set()
            one.join(WAIT_S)
        assert [one.failure for one in clients] == [None] * len(clients)
        for writer in writers:
            assert writer.partition is not None
            acked = writer.seen[writer.partition]
            expected = [(offset, b"%d" % offset) for offset in range(writer.sent)]
            assert sorted(acked) == expected  # a record's number is its offset: none is missing, none is there twice
            for one in readers:
                assert one.seen[writer.partition] == expected
