"""Clients that write and read in their own threads while a server is killed, and record its answers."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any, Final

from tests.backup.load import until_loaded

PARTITIONS: Final = 3
TIMEOUT_S: Final = 90
MOST_WAITING: Final = 400
# once all brokers are gone, librdkafka 2.16 forgets those it knew
LIBRDKAFKA: Final = {
    "metadata.recovery.strategy": "none", "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0,
}  # fmt: skip
AIOKAFKA: Final = {"retry_backoff_ms": 30, "request_timeout_ms": TIMEOUT_S * 1000}


class Writer:
    """Numbers, written to the partitions of a topic in turn, until it is stopped.

    `acknowledged` has those of each partition that the server said it has, `done` how many those are, `aborted` those
    that must not be read; `failure` is why it ended before.
    """

    def __init__(self, topic: str, settings: dict[str, Any], codec: str | None, is_idempotent: bool) -> None:
        self.topic = topic
        self.settings = settings
        self.codec = codec
        self.is_idempotent = is_idempotent
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.aborted: set[int] = set()
        self.done = 0
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._chance = random.Random(topic)

    def start(self, bootstrap: str) -> None:
        self._thread = threading.Thread(target=self._run, args=(bootstrap,), name=self.topic)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, bootstrap: str) -> None:
        try:
            self.work(bootstrap)
        except BaseException as error:
            self.failure = error

    def work(self, bootstrap: str) -> None:
        raise NotImplementedError

    def value(self, number: int) -> bytes:
        return b"%d " % number + self._chance.randbytes(self._chance.randrange(2000))

    def note(self, index: int, number: int) -> None:
        self.acknowledged[index].append(number)
        self.done += 1


class LibrdkafkaProducer(Writer):
    def producer(self, bootstrap: str, **more: Any) -> Any:
        import confluent_kafka as ck

        return ck.Producer({
            **self.settings, "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "retry.backoff.ms": 20,
            "enable.idempotence": self.is_idempotent, "compression.type": self.codec or "none",
            "message.timeout.ms": TIMEOUT_S * 1000, **more,
        })  # fmt: skip

    def send(self, producer: Any, number: int) -> None:
        index = number % PARTITIONS

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self.note(index, number)
            elif not self.aborted:
                self.failure = self.failure or RuntimeError(f"{number}: {error}")

        producer.produce(self.topic, self.value(number), partition=index, on_delivery=delivered)

    def work(self, bootstrap: str) -> None:
        producer = self.producer(bootstrap)
        number = 0
        while not self._is_over.is_set():
            self.send(producer, number)
            number += 1
            producer.poll(0)
            while len(producer) >= MOST_WAITING:
                producer.poll(0.05)
            time.sleep(0.001)
        left = producer.flush(TIMEOUT_S)
        if left:
            raise TimeoutError(f"{left} records are not acknowledged")


class TransactionalProducer(LibrdkafkaProducer):
    """Transactions of a few records; each fourth is aborted. An unanswered commit may be in the log or not."""

    def work(self, bootstrap: str) -> None:
        producer = self.producer(bootstrap, **{"transactional.id": self.topic, "transaction.timeout.ms": 120_000})
        producer.init_transactions(TIMEOUT_S)
        number = 0
        while not self._is_over.is_set():
            numbers = range(number, number + 1 + self._chance.randrange(20))
            number = numbers.stop
            producer.begin_transaction()
            for one in numbers:
                producer.produce(self.topic, self.value(one), partition=one % PARTITIONS)
            if self._chance.random() < 0.25 or not self._commits(producer):
                self.aborted |= set(numbers)
                producer.abort_transaction(TIMEOUT_S)
            else:
                for one in numbers:
                    self.note(one % PARTITIONS, one)

    def _commits(self, producer: Any) -> bool:
        import confluent_kafka as ck

        try:
            producer.commit_transaction(TIMEOUT_S)
        except ck.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            return False
        return True


class AioKafkaProducer(Writer):
    def work(self, bootstrap: str) -> None:
        asyncio.run(self._work(bootstrap))

    async def _work(self, bootstrap: str) -> None:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=self.is_idempotent, linger_ms=2,
            compression_type=self.codec, **self.settings,
        )  # fmt: skip
        await producer.start()
        waiting: set[asyncio.Task[None]] = set()
        try:
            number = 0
            while not self._is_over.is_set():
                index = number % PARTITIONS
                sent = await producer.send(self.topic, self.value(number), partition=index)
                task = asyncio.ensure_future(self._acknowledge(producer, sent, index, number))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                number += 1
                while len(waiting) >= MOST_WAITING:
                    await asyncio.wait(waiting, timeout=1, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0.001)
            if waiting:
                await asyncio.wait_for(asyncio.gather(*waiting), TIMEOUT_S)
        finally:
            await producer.stop()

    async def _acknowledge(self, producer: Any, sent: Any, index: int, number: int) -> None:
        import aiokafka.errors

        try:
            await sent
        except aiokafka.errors.KafkaError as error:
            # aiokafka gives up on a batch that was in flight when its time was over; it was not acknowledged
            if self.is_idempotent:
                self.failure = self.failure or error
            return
        self.note(index, number)


class CommittingReader(Writer):
    """A member of a group that commits what it has read; `committed` is what the server took."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic, LIBRDKAFKA, None, False)
        self.group_id = "readers"
        self.committed: dict[int, int] = {}

    def work(self, bootstrap: str) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer({
            **self.settings, "bootstrap.servers": bootstrap, "group.id": self.group_id, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300,
            "fetch.wait.max.ms": 50,
        })  # fmt: skip
        consumer.subscribe([self.topic])
        try:
            while not self._is_over.is_set():
                for record in consumer.consume(20, 0.1):
                    if record.error() is None:
                        self._read(record.partition(), record.offset())
                self._commit(consumer)
        finally:
            consumer.close()

    def _read(self, index: int, offset: int) -> None:
        if offset < self.committed.get(index, 0):
            raise AssertionError(f"partition {index}: {self.committed[index]} was committed, {offset} is read again")
        self.acknowledged[index].append(offset)
        self.done += 1

    def _commit(self, consumer: Any) -> None:
        import confluent_kafka as ck

        ends = {index: offsets[-1] + 1 for index, offsets in self.acknowledged.items() if offsets}
        new = {index: end for index, end in ends.items() if self.committed.get(index) != end}
        if not new:
            return
        try:
            consumer.commit(
                offsets=[ck.TopicPartition(self.topic, index, end) for index, end in new.items()], asynchronous=False
            )
        except ck.KafkaException:
            return  # the server is down or the group rebalances: the next commit includes this one
        self.committed |= new


def values_of(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The committed numbers of each partition, in their order."""
    import confluent_kafka as ck

    consumer = ck.Consumer({
        **LIBRDKAFKA, "bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    left = set(found)
    end = time.monotonic() + TIMEOUT_S
    while left:
        assert time.monotonic() < end, f"{topic}: {left} have no end"
        for record in consumer.consume(500, 0.05):
            if record.error() is None:
                found[record.partition()].append(int(record.value().split(b" ", 1)[0]))
            elif record.error().code() == ck.KafkaError._PARTITION_EOF:
                left.discard(record.partition())
    consumer.close()
    return found


def committed_offsets(bootstrap: str, group_id: str, topic: str) -> dict[int, int]:
    import confluent_kafka as ck

    consumer = ck.Consumer({**LIBRDKAFKA, "bootstrap.servers": bootstrap, "group.id": group_id})
    found = {index: until_loaded(consumer, ck.TopicPartition(topic, index)).offset for index in range(PARTITIONS)}
    consumer.close()
    return found
