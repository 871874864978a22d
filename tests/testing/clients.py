"""The same steps with two client libraries, for the recipes of docs/testing.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

STEPS_S = 180


class Consuming(Protocol):
    """A client library with groups. Loops end when `done()` is true."""

    def produce(self, bootstrap: str, topic: str, values: Iterable[bytes]) -> None: ...

    def consume(
        self, bootstrap: str, topic: str, group: str, process: Callable[[bytes], object], done: Callable[[], bool],
        *, client_id: str = "consumer",
    ) -> None:
        """Consume with a commit after each record."""  # fmt: skip


class Transacting(Protocol):
    """A client library with transactions."""

    def transact(self, bootstrap: str, topic: str, values: Iterable[bytes], between: Callable[[], object]) -> None:
        """Write values in one transaction, calling `between` before its end."""

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]: ...


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + STEPS_S
    while not done():
        assert time.monotonic() < deadline, "the client did not get there"
        step()


class Confluent:
    """confluent-kafka."""

    def produce(self, bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(STEPS_S) == 0

    def _consumer(self, bootstrap: str, topic: str, group: str, client_id: str) -> Any:
        from confluent_kafka import Consumer

        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": client_id, "log_level": 0,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 20,
            "isolation.level": "read_committed",
        })  # fmt: skip
        consumer.subscribe([topic])
        return consumer

    def consume(
        self, bootstrap: str, topic: str, group: str, process: Callable[[bytes], object], done: Callable[[], bool],
        *, client_id: str = "consumer",
    ) -> None:  # fmt: skip
        from confluent_kafka import KafkaException

        consumer = self._consumer(bootstrap, topic, group, client_id)

        def step() -> None:
            message = consumer.poll(0.1)
            if message is None or message.error():
                return
            process(message.value())
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException:  # another generation; the record comes again
                pass

        until(done, step)
        consumer.close()

    def transact(self, bootstrap: str, topic: str, values: Iterable[bytes], between: Callable[[], object]) -> None:
        from confluent_kafka import KafkaException, Producer

        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "recipe", "log_level": 0})
        producer.init_transactions(STEPS_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(STEPS_S)
        between()
        is_done = False

        def step() -> None:
            nonlocal is_done
            try:
                producer.commit_transaction(STEPS_S)
                is_done = True
            except KafkaException as error:
                assert error.args[0].retriable(), error

        until(lambda: is_done, step)

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        self.consume(bootstrap, topic, "readers", found.append, lambda: len(found) >= count)
        return found


class KafkaPython:
    """kafka-python."""

    def produce(self, bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        for sent in [producer.send(topic, value) for value in values]:
            sent.get(STEPS_S)
        producer.close()

    def consume(
        self, bootstrap: str, topic: str, group: str, process: Callable[[bytes], object], done: Callable[[], bool],
        *, client_id: str = "consumer",
    ) -> None:  # fmt: skip
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, client_id=client_id, auto_offset_reset="earliest",
            enable_auto_commit=False, heartbeat_interval_ms=20, isolation_level="read_committed", max_poll_records=1,
        )  # fmt: skip
        consumer.partitions_for_topic(topic)  # 3.0 may hang where they get known only after it has joined the group
        consumer.subscribe([topic])

        def step() -> None:
            for records in consumer.poll(100).values():
                for record in records:
                    process(record.value)
                    try:
                        consumer.commit()
                    except KafkaError:  # another generation; the record comes again
                        pass

        until(done, step)
        consumer.close()


class Aiokafka:
    """aiokafka."""

    def transact(self, bootstrap: str, topic: str, values: Iterable[bytes], between: Callable[[], object]) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="recipe")
            await producer.start()
            async with producer.transaction():
                for sent in [await producer.send(topic, value) for value in values]:
                    await sent
                await asyncio.to_thread(between)
            await producer.stop()

        asyncio.run(asyncio.wait_for(run(), STEPS_S))

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer

        async def run() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
            )
            await consumer.start()
            found = [(await consumer.getone()).value for _ in range(count)]
            await consumer.stop()
            return found

        return asyncio.run(asyncio.wait_for(run(), STEPS_S))


CONSUMERS: dict[str, Consuming] = {"confluent-kafka": Confluent(), "kafka-python": KafkaPython()}
TRANSACTORS: dict[str, Transacting] = {"confluent-kafka": Confluent(), "aiokafka": Aiokafka()}
