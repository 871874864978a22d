"""Third-party clients for reads and writes: librdkafka (confluent-kafka) and aiokafka, in the shapes of `reference.py`.

Both packages are optional: `pytest.importorskip` their names before these classes are used.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tests.interop.reference import Bytes, RecordTuple

TIMEOUT_S = 180

# timestamp, key, value, headers
Row = tuple[int, Bytes, Bytes, Sequence[tuple[str, Bytes]]]


class Client(Protocol):
    """A client of a broker at `bootstrap`; partition 0 is meant throughout."""

    def consume(self, topic: str, count: int) -> list[RecordTuple]:
        """The first `count` records; fewer do not come in time: TimeoutError."""
        ...

    def produce(self, topic: str, rows: Sequence[Row], codec: str) -> None:
        """Sends the rows, compressed with a codec of that name, and waits until the broker has them."""
        ...


class Librdkafka:
    """librdkafka by way of confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap}

    def consume(self, topic: str, count: int) -> list[RecordTuple]:
        import confluent_kafka as ck

        settings = {"group.id": "interop", "enable.auto.commit": False, "fetch.wait.max.ms": 50, "check.crcs": True}
        consumer = ck.Consumer(self._settings | settings)
        found: list[RecordTuple] = []
        try:
            consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(found)} of {count} records of {topic} came")
                for one in consumer.consume(count - len(found), 0.5):
                    if one.error():
                        raise ck.KafkaException(one.error())
                    kind, timestamp = one.timestamp()
                    if kind == ck.TIMESTAMP_NOT_AVAILABLE:
                        timestamp = -1
                    found.append((one.offset(), timestamp, one.key(), one.value(), tuple(one.headers() or ())))
        finally:
            consumer.close()
        return found

    def produce(self, topic: str, rows: Sequence[Row], codec: str) -> None:
        import confluent_kafka as ck

        failed: list[Any] = []
        producer = ck.Producer(self._settings | {"compression.type": codec, "linger.ms": 200})
        for timestamp, key, value, headers in rows:
            producer.produce(
                topic, value, key, 0, timestamp=timestamp, headers=list(headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        left = producer.flush(TIMEOUT_S)
        assert not left and not failed, f"{left} records are left, {failed[:1]}"


class Aiokafka:
    """aiokafka."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def consume(self, topic: str, count: int) -> list[RecordTuple]:
        return asyncio.run(asyncio.wait_for(self._consume(topic, count), TIMEOUT_S))

    async def _consume(self, topic: str, count: int) -> list[RecordTuple]:
        import aiokafka

        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        await consumer.start()
        found: list[RecordTuple] = []
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while len(found) < count:
                one = await consumer.getone(partition)
                timestamp = -1 if one.timestamp is None else one.timestamp
                found.append((one.offset, timestamp, one.key, one.value, tuple(one.headers)))
        finally:
            await consumer.stop()
        return found

    def produce(self, topic: str, rows: Sequence[Row], codec: str) -> None:
        asyncio.run(asyncio.wait_for(self._produce(topic, rows, codec), TIMEOUT_S))

    async def _produce(self, topic: str, rows: Sequence[Row], codec: str) -> None:
        import aiokafka

        kind = None if codec == "none" else codec
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, compression_type=kind, linger_ms=200)
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key, partition=0, timestamp_ms=timestamp, headers=list(headers))
                for timestamp, key, value, headers in rows
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
