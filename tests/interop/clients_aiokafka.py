"""aiokafka against a broker: one method per operation, on a topic that it creates itself."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.interop.client_kit import LIMIT_S, expected_values


class AioKafka:
    """Operations of aiokafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self.topic = topic

    def run(self, operation: str, *arguments: Any) -> None:
        """Does it, in a separate event loop."""
        work: Coroutine[Any, Any, None] = getattr(self, operation)(*arguments)
        asyncio.run(asyncio.wait_for(work, LIMIT_S))

    def close(self) -> None:
        """Nothing is left open."""

    async def _admin(self) -> Any:
        from aiokafka.admin import AIOKafkaAdminClient

        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=30_000)
        await admin.start()
        return admin

    async def _create(self, partitions: int) -> None:
        from aiokafka.admin import NewTopic

        admin = await self._admin()
        _no_errors(await admin.create_topics([NewTopic(self.topic, partitions, 1)]), "topic_errors")
        await admin.close()

    async def _producer(self, **settings: Any) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, request_timeout_ms=30_000, **settings)
        await producer.start()
        return producer

    async def _consumer(self, *topics: str, **settings: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        own = {"group_id": self.topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=self._bootstrap, request_timeout_ms=30_000, fetch_max_wait_ms=100,
            **(own | settings),
        )  # fmt: skip
        await consumer.start()
        return consumer

    def _at(self, partition: int = 0) -> Any:
        from aiokafka import TopicPartition

        return TopicPartition(self.topic, partition)

    async def _send(self, producer: Any, count: int, *, first: int = 0, partition: int | None = None) -> None:
        sent = [
            await producer.send(self.topic, b"value-%d" % n, b"key-%d" % n, partition, timestamp_ms=1000 * (n + 1))
            for n in range(first, first + count)
        ]
        await asyncio.gather(*sent)

    async def _sent(self, count: int, partition: int | None = None, **settings: Any) -> None:
        producer = await self._producer(**settings)
        await self._send(producer, count, partition=partition)
        await producer.stop()

    async def _take(self, consumer: Any, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=100, max_records=count - len(found))).values():
                found += records
        return found

    async def _all(self, count: int, **settings: Any) -> None:
        consumer = await self._consumer(group_id=None, **settings)
        consumer.assign([self._at(0), self._at(1)])
        assert {one.value for one in await self._take(consumer, count)} == expected_values(count)
        await consumer.stop()

    async def acks(self, acks: str) -> None:
        await self._create(2)
        await self._sent(50, acks=acks if acks == "all" else int(acks))
        await self._all(50)

    async def codec(self, name: str) -> None:
        await self._create(2)
        await self._sent(50, compression_type=None if name == "none" else name, linger_ms=20)
        await self._all(50)

    async def headers_and_times(self) -> None:
        await self._create(1)
        producer = await self._producer()
        headers = [("a", b"1"), ("a", b"2"), ("e", b"")]
        await producer.send_and_wait(self.topic, None, b"only a key", 0, timestamp_ms=1234, headers=headers)
        await producer.stop()
        consumer = await self._consumer(group_id=None)
        consumer.assign([self._at()])
        (one,) = await self._take(consumer, 1)
        assert (one.key, one.value, one.timestamp) == (b"only a key", None, 1234)
        assert list(one.headers) == headers
        await consumer.stop()

    async def idempotent(self) -> None:
        await self._create(2)
        await self._sent(300, enable_idempotence=True, max_batch_size=400)
        await self._all(300)

    async def transactions(self) -> None:
        await self._create(2)
        producer = await self._producer(transactional_id=self.topic)
        for first, commit in ((0, True), (90, False), (10, True)):
            await producer.begin_transaction()
            await self._send(producer, 10, first=first)
            await (producer.commit_transaction if commit else producer.abort_transaction)()
        await producer.stop()
        await self._all(20, isolation_level="read_committed")
        dirty = await self._consumer(group_id=None)
        dirty.assign([self._at(0), self._at(1)])
        await self._take(dirty, 30)
        await dirty.stop()
        await self._fenced()

    async def _fenced(self) -> None:
        from aiokafka.errors import ProducerFenced

        first = await self._producer(transactional_id=self.topic + "-f")
        second = await self._producer(transactional_id=self.topic + "-f")
        try:
            await first.begin_transaction()
            await first.send_and_wait(self.topic, b"x", partition=0)
            await first.commit_transaction()
        except ProducerFenced:
            pass
        else:
            raise AssertionError("the first producer is not fenced")
        finally:
            for one in (first, second):
                await one.stop()

    async def transactional_offsets(self) -> None:
        await self._create(2)
        await self._sent(4, partition=0)
        consumer = await self._consumer(self.topic)
        await self._take(consumer, 4)
        producer = await self._producer(transactional_id=self.topic)
        for offset, commit in ((3, True), (4, False)):
            await producer.begin_transaction()
            await self._send(producer, 2, first=10, partition=1)
            await producer.send_offsets_to_transaction({self._at(): offset}, self.topic)
            await (producer.commit_transaction if commit else producer.abort_transaction)()
            assert await consumer.committed(self._at()) == 3
        await producer.stop()
        await consumer.stop()

    async def offsets(self) -> None:
        await self._create(1)
        await self._sent(10, partition=0)
        consumer = await self._consumer(group_id=None)
        at = self._at()
        assert await consumer.end_offsets([at]) == {at: 10}
        assert await consumer.beginning_offsets([at]) == {at: 0}
        assert (await consumer.offsets_for_times({at: 4500}))[at].offset == 4
        assert (await consumer.offsets_for_times({at: 10**12}))[at] is None
        await consumer.stop()

    async def group_rebalance(self) -> None:
        await self._create(2)
        for partition in (0, 1):
            await self._sent(5, partition=partition)
        settings = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 300}
        first = await self._consumer(self.topic, **settings)
        await self._take(first, 10)
        await first.commit()
        second = await self._consumer(self.topic, **settings)
        while not len(first.assignment()) == len(second.assignment()) == 1:
            await first.getmany(timeout_ms=50)
            await second.getmany(timeout_ms=50)
        await second.stop()
        while len(first.assignment()) != 2:
            await first.getmany(timeout_ms=50)
        assert [await first.committed(self._at(one)) for one in (0, 1)] == [5, 5]
        await first.stop()

    async def group_static(self) -> None:
        await self._create(1)
        for _ in range(2):
            consumer = await self._consumer(self.topic, group_instance_id="one", session_timeout_ms=20_000)
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=50)
            await consumer.stop()

    async def group_commit_and_reset(self) -> None:
        from aiokafka.structs import OffsetAndMetadata

        await self._create(1)
        await self._sent(10, partition=0)
        at = self._at()
        consumer = await self._consumer(self.topic)
        assert (await self._take(consumer, 4))[0].offset == 0
        await consumer.commit({at: OffsetAndMetadata(4, "halfway")})
        await consumer.stop()
        consumer = await self._consumer(self.topic)
        assert (await self._take(consumer, 6))[0].offset == 4
        for to, count, first in ((1, 9, 1), (5000, 10, 0)):
            consumer.seek(at, to)
            assert (await self._take(consumer, count))[0].offset == first
        await consumer.stop()

    async def admin_topics(self) -> None:
        from aiokafka.admin import NewTopic

        admin = await self._admin()
        asked = NewTopic(self.topic, 3, 1, topic_configs={"retention.ms": "60000"})
        _no_errors(await admin.create_topics([asked]), "topic_errors")
        assert self.topic in await admin.list_topics()
        (found,) = await admin.describe_topics([self.topic])
        assert len(found["partitions"]) == 3
        _no_errors(await admin.delete_topics([self.topic]), "topic_error_codes")
        while self.topic in await admin.list_topics():
            pass
        await admin.close()

    async def admin_configs(self) -> None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        await self._create(1)
        admin = await self._admin()
        change = ConfigResource(ConfigResourceType.TOPIC, self.topic, configs={"retention.ms": "80000"})
        await admin.alter_configs([change])
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic)])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "80000"
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")])
        assert answer.resources[0][0] == 0
        await admin.close()

    async def admin_partitions(self) -> None:
        from aiokafka.admin import NewPartitions

        await self._create(1)
        admin = await self._admin()
        _no_errors(await admin.create_partitions({self.topic: NewPartitions(4)}), "topic_errors")
        (found,) = await admin.describe_topics([self.topic])
        assert len(found["partitions"]) == 4
        await admin.close()

    async def admin_delete_records(self) -> None:
        from aiokafka.admin import RecordsToDelete

        await self._create(1)
        await self._sent(10, partition=0)
        admin = await self._admin()
        assert await admin.delete_records({self._at(): RecordsToDelete(3)}) == {self._at(): 3}
        await admin.close()

    async def admin_groups(self) -> None:
        await self._create(1)
        await self._sent(10, partition=0)
        consumer = await self._consumer(self.topic)
        await self._take(consumer, 10)
        await consumer.commit()
        admin = await self._admin()
        assert self.topic in [one[0] for one in await admin.list_consumer_groups()]
        (answer,) = await admin.describe_consumer_groups([self.topic])
        assert len(answer.groups[0][5]) == 1
        await consumer.stop()
        assert (await admin.list_consumer_group_offsets(self.topic))[self._at()].offset == 10
        await admin.close()

    async def admin_cluster(self) -> None:
        admin = await self._admin()
        found = await admin.describe_cluster()
        assert [one["node_id"] for one in found["brokers"]] == [1]
        assert found["controller_id"] == 1
        await admin.close()


def _no_errors(answer: Any, field: str) -> None:
    assert [one[1] for one in getattr(answer, field)] == [0] * len(getattr(answer, field)), answer
