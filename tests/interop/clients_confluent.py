"""confluent-kafka (librdkafka) against a broker: one method per operation, on a topic that it creates itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop.client_kit import Deadline, expected_values, until


class ConfluentKafka:
    """Operations of confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import confluent_kafka
        import confluent_kafka.admin

        self.lib = confluent_kafka
        self.admin_lib = confluent_kafka.admin
        self.topic = topic
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = confluent_kafka.admin.AdminClient(self._settings)
        self._deadline = Deadline()

    def close(self) -> None:
        """Nothing is left open."""

    def _create(self, partitions: int) -> None:
        self._each(self.admin.create_topics([self.admin_lib.NewTopic(self.topic, partitions, 1)]))

    def _each(self, futures: Any) -> list[Any]:
        return [future.result(self._deadline.left()) for future in futures.values()]

    def _producer(self, **settings: Any) -> Any:
        return self.lib.Producer(self._settings | {"message.timeout.ms": 30_000} | _dotted(settings))

    def _consumer(self, **settings: Any) -> Any:
        own = {"group.id": self.topic, "auto.offset.reset": "earliest", "enable.auto.commit": False,
               "fetch.wait.max.ms": 100}  # fmt: skip
        return self.lib.Consumer(self._settings | own | _dotted(settings))

    def _send(self, producer: Any, count: int, *, first: int = 0, partition: int | None = None) -> None:
        failed: list[Any] = []
        where = {} if partition is None else {"partition": partition}
        for n in range(first, first + count):
            producer.produce(
                self.topic, b"value-%d" % n, b"key-%d" % n, timestamp=1000 * (n + 1),
                on_delivery=lambda error, message: failed.append(error) if error else None, **where,
            )  # fmt: skip
        assert producer.flush(self._deadline.left()) == 0
        assert not failed, failed

    def _take(self, consumer: Any, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            self._deadline.left()
            for message in consumer.consume(count - len(found), 0.1):
                assert message.error() is None, message.error()
                found.append(message)
        return found

    def _all(self, count: int, partitions: Sequence[int] = (0, 1), **settings: Any) -> None:
        consumer = self._consumer(**settings)
        try:
            consumer.assign([self._at(one, self.lib.OFFSET_BEGINNING) for one in partitions])
            assert {one.value() for one in self._take(consumer, count)} == expected_values(count)
        finally:
            consumer.close()

    def _at(self, partition: int = 0, offset: int = -1001, *metadata: str) -> Any:
        return self.lib.TopicPartition(self.topic, partition, offset, *metadata)

    def acks(self, acks: str) -> None:
        self._create(2)
        self._send(self._producer(acks=acks), 50)
        self._all(50)

    def codec(self, name: str) -> None:
        self._create(2)
        self._send(self._producer(compression_type=name, linger_ms=20), 50)
        self._all(50)

    def share_group(self) -> None:
        self._create(1)
        self._send(self._producer(), 10)
        kind = self.lib.AcknowledgeType
        resource = self.admin_lib.ConfigResource(self.admin_lib.ResourceType.GROUP, self.topic, incremental_configs=[
            self.admin_lib.ConfigEntry(
                "share.auto.offset.reset", "earliest",
                incremental_operation=self.admin_lib.AlterConfigOpType.SET,
            )
        ])  # fmt: skip
        self._each(self.admin.incremental_alter_configs([resource]))
        own = {"group.id": self.topic, "share.acknowledgement.mode": "explicit"}
        consumer = self.lib.ShareConsumer(self._settings | own)
        consumer.subscribe([self.topic])
        others = {3: kind.RELEASE, 4: kind.RELEASE, 5: kind.REJECT}
        try:
            assert self._shared(consumer, 10, others) == dict.fromkeys(range(10), 1)
            assert self._shared(consumer, 2, {}) == {3: 2, 4: 2}
        finally:
            consumer.close()

    def _shared(self, consumer: Any, count: int, others: Mapping[int, Any]) -> dict[int, int]:
        """Take so many records of a share group; return the delivery counts by offset."""
        found: dict[int, int] = {}
        while len(found) < count:
            self._deadline.left()
            for message in consumer.poll(0.5):
                assert message.error() is None, message.error()
                found[message.offset()] = message.delivery_count()
                consumer.acknowledge(message, others.get(message.offset(), self.lib.AcknowledgeType.ACCEPT))
            consumer.commit_sync()
        return found

    def headers_and_times(self) -> None:
        self._create(1)
        producer = self._producer()
        producer.produce(self.topic, None, None, 0, timestamp=1234, headers=[("a", b"1"), ("a", None), ("e", b"")])
        assert producer.flush(self._deadline.left()) == 0
        consumer = self._consumer()
        consumer.assign([self._at(0, 0)])
        (one,) = self._take(consumer, 1)
        assert (one.key(), one.value(), one.timestamp()[1]) == (None, None, 1234)
        assert one.headers() == [("a", b"1"), ("a", None), ("e", b"")]
        consumer.close()

    def idempotent(self) -> None:
        self._create(2)
        self._send(self._producer(enable_idempotence=True, batch_size=400), 300)
        self._all(300)

    def transactions(self) -> None:
        self._create(2)
        producer = self._producer(transactional_id=self.topic)
        producer.init_transactions(self._deadline.left())
        for first, commit in ((0, True), (90, False), (10, True)):
            producer.begin_transaction()
            self._send(producer, 10, first=first)
            (producer.commit_transaction if commit else producer.abort_transaction)(self._deadline.left())
        self._all(20, isolation_level="read_committed")
        dirty = self._consumer(isolation_level="read_uncommitted")
        dirty.assign([self._at(0, 0), self._at(1, 0)])
        self._take(dirty, 30)
        dirty.close()
        self._fenced()

    def _fenced(self) -> None:
        first, second = (self._producer(transactional_id=self.topic + "-f") for _ in range(2))
        first.init_transactions(self._deadline.left())
        second.init_transactions(self._deadline.left())
        try:
            first.begin_transaction()
            first.produce(self.topic, b"x", partition=0)
            first.commit_transaction(self._deadline.left())
        except self.lib.KafkaException as error:
            assert error.args[0].fatal() or error.args[0].code() == self.lib.KafkaError._FENCED, error
        else:
            raise AssertionError("the first producer is not fenced")

    def transactional_offsets(self) -> None:
        self._create(2)
        self._send(self._producer(), 4, partition=0)
        consumer = self._consumer()
        consumer.subscribe([self.topic])
        self._take(consumer, 4)
        producer = self._producer(transactional_id=self.topic)
        producer.init_transactions(self._deadline.left())
        for offset, commit in ((3, True), (4, False)):
            producer.begin_transaction()
            self._send(producer, 2, first=10, partition=1)
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([self._at(0, offset)], group, self._deadline.left())
            (producer.commit_transaction if commit else producer.abort_transaction)(self._deadline.left())
            assert consumer.committed([self._at()], self._deadline.left())[0].offset == 3
        consumer.close()

    def offsets(self) -> None:
        self._create(1)
        self._send(self._producer(), 10, partition=0)
        consumer = self._consumer()
        assert consumer.get_watermark_offsets(self._at(), self._deadline.left()) == (0, 10)
        found = consumer.offsets_for_times([self._at(0, 4500)], self._deadline.left())
        assert found[0].offset == 4
        consumer.close()

    def group_rebalance(self) -> None:
        self._rebalance(session_timeout_ms=20_000, heartbeat_interval_ms=300)

    def group_848(self) -> None:
        self._rebalance(group_protocol="consumer")

    def _rebalance(self, **settings: Any) -> None:
        self._create(2)
        for partition in (0, 1):
            self._send(self._producer(), 5, partition=partition)
        first, second = self._consumer(**settings), self._consumer(**settings)
        first.subscribe([self.topic])
        self._take(first, 10)
        first.commit(asynchronous=False)
        second.subscribe([self.topic])
        until(self._deadline, lambda: (first.poll(0.05), second.poll(0.05)) is None
              or len(first.assignment()) == len(second.assignment()) == 1)  # fmt: skip
        second.close()
        until(self._deadline, lambda: first.poll(0.05) is None and len(first.assignment()) == 2)
        committed = first.committed([self._at(0), self._at(1)], self._deadline.left())
        assert [one.offset for one in committed] == [5, 5]
        first.close()

    def group_static(self) -> None:
        self._create(1)
        members = []
        for _ in range(2):
            consumer = self._consumer(group_instance_id="one", session_timeout_ms=20_000)
            consumer.subscribe([self.topic])
            until(self._deadline, lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))  # noqa: B023
            group = self._each(self.admin.describe_consumer_groups([self.topic]))[0]
            members.append((group.members[0].member_id, group.members[0].group_instance_id, len(group.members)))
            consumer.close()
        assert members[0][0] != members[1][0]
        assert [one[1:] for one in members] == [("one", 1)] * 2

    def group_commit_and_reset(self) -> None:
        self._create(1)
        self._send(self._producer(), 10, partition=0)
        consumer = self._consumer()
        consumer.subscribe([self.topic])
        assert self._take(consumer, 4)[0].offset() == 0
        consumer.commit(offsets=[self._at(0, 4, "halfway")], asynchronous=False)
        consumer.close()
        consumer = self._consumer()
        consumer.subscribe([self.topic])
        assert self._take(consumer, 6)[0].offset() == 4
        assert consumer.committed([self._at()], self._deadline.left())[0].metadata == "halfway"
        for to, first in ((1, 1), (5000, 0)):
            consumer.seek(self._at(0, to))
            assert self._take(consumer, 9 if to == 1 else 10)[0].offset() == first
        consumer.close()

    def admin_topics(self) -> None:
        lib = self.admin_lib
        self._each(self.admin.create_topics([lib.NewTopic(self.topic, 3, 1, config={"retention.ms": "60000"})]))
        assert len(self.admin.list_topics(self.topic, self._deadline.left()).topics[self.topic].partitions) == 3
        (found,) = self._each(self.admin.describe_topics(self.lib.TopicCollection([self.topic])))
        assert (found.name, len(found.partitions)) == (self.topic, 3)
        self._each(self.admin.delete_topics([self.topic]))
        until(self._deadline, lambda: self.topic not in self.admin.list_topics(timeout=self._deadline.left()).topics)

    def admin_configs(self) -> None:
        self._create(1)
        lib, kind = self.admin_lib, self.admin_lib.ConfigResource.Type
        topic, broker = lib.ConfigResource(kind.TOPIC, self.topic), lib.ConfigResource(kind.BROKER, "1")
        entry = lib.ConfigEntry("retention.ms", "70000", incremental_operation=lib.AlterConfigOpType.SET)
        change = lib.ConfigResource(kind.TOPIC, self.topic, incremental_configs=[entry])
        self._each(self.admin.incremental_alter_configs([change]))
        (found,) = self._each(self.admin.describe_configs([topic]))
        assert found["retention.ms"].value == "70000"
        (found,) = self._each(self.admin.describe_configs([broker]))
        assert found["log.dirs"].value
        replaced = lib.ConfigResource(kind.TOPIC, self.topic, set_config={"segment.bytes": "2000000"})
        self._each(self.admin.alter_configs([replaced]))
        (found,) = self._each(self.admin.describe_configs([topic]))
        assert (found["retention.ms"].value, found["segment.bytes"].value) == ("604800000", "2000000")

    def admin_partitions(self) -> None:
        self._create(1)
        self._each(self.admin.create_partitions([self.admin_lib.NewPartitions(self.topic, 4)]))
        topics = self.admin.list_topics(self.topic, self._deadline.left()).topics
        assert len(topics[self.topic].partitions) == 4

    def admin_delete_records(self) -> None:
        self._create(1)
        self._send(self._producer(), 10, partition=0)
        (found,) = self._each(self.admin.delete_records([self._at(0, 3)]))
        assert found.low_watermark == 3
        consumer = self._consumer()
        assert consumer.get_watermark_offsets(self._at(), self._deadline.left()) == (3, 10)
        consumer.close()

    def admin_offsets(self) -> None:
        self._create(1)
        self._send(self._producer(), 10, partition=0)
        spec = self.admin_lib.OffsetSpec
        for asked, offset in ((spec.latest(), 10), (spec.max_timestamp(), 9), (spec.for_timestamp(2500), 2)):
            (found,) = self._each(self.admin.list_offsets({self._at(): asked}))
            assert found.offset == offset, asked

    def admin_groups(self) -> None:
        self._create(1)
        self._send(self._producer(), 10, partition=0)
        consumer = self._consumer()
        consumer.subscribe([self.topic])
        self._take(consumer, 10)
        consumer.commit(asynchronous=False)
        listed = self.admin.list_consumer_groups().result(self._deadline.left())
        assert self.topic in [one.group_id for one in listed.valid]
        (described,) = self._each(self.admin.describe_consumer_groups([self.topic]))
        assert len(described.members) == 1
        consumer.close()
        asked = self.lib.ConsumerGroupTopicPartitions(self.topic)
        (found,) = self._each(self.admin.list_consumer_group_offsets([asked]))
        assert [one.offset for one in found.topic_partitions] == [10]
        moved = self.lib.ConsumerGroupTopicPartitions(self.topic, [self._at(0, 2)])
        self._each(self.admin.alter_consumer_group_offsets([moved]))
        (found,) = self._each(self.admin.list_consumer_group_offsets([asked]))
        assert [one.offset for one in found.topic_partitions] == [2]
        self._each(self.admin.delete_consumer_groups([self.topic]))
        listed = self.admin.list_consumer_groups().result(self._deadline.left())
        assert self.topic not in [one.group_id for one in listed.valid]

    def admin_acls(self) -> None:
        lib = self.admin_lib
        what = (lib.ResourceType.TOPIC, self.topic, lib.ResourcePatternType.PREFIXED, "User:somebody", "*",
                lib.AclOperation.READ, lib.AclPermissionType.ALLOW)  # fmt: skip
        self._each(self.admin.create_acls([lib.AclBinding(*what)]))
        wanted = lib.AclBindingFilter(*what)
        assert self.admin.describe_acls(wanted).result(self._deadline.left()) == [lib.AclBinding(*what)]
        (deleted,) = self._each(self.admin.delete_acls([wanted]))
        assert len(deleted) == 1
        assert self.admin.describe_acls(wanted).result(self._deadline.left()) == []

    def admin_scram(self) -> None:
        lib = self.admin_lib
        info = lib.ScramCredentialInfo(lib.ScramMechanism.SCRAM_SHA_256, 4096)
        upsert = lib.UserScramCredentialUpsertion(self.topic, info, b"a password")
        self._each(self.admin.alter_user_scram_credentials([upsert]))
        found = self._each(self.admin.describe_user_scram_credentials([self.topic]))[0]
        assert [one.iterations for one in found.scram_credential_infos] == [4096]
        deletion = lib.UserScramCredentialDeletion(self.topic, info.mechanism)
        self._each(self.admin.alter_user_scram_credentials([deletion]))
        users = self.admin.describe_user_scram_credentials
        until(self._deadline, lambda: self.topic not in users().result(self._deadline.left()))

    def admin_cluster(self) -> None:
        found = self.admin.describe_cluster().result(self._deadline.left())
        assert (len(found.nodes), found.controller.id) == (1, 1)
        assert found.cluster_id


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
