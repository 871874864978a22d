"""kafka-python against a broker: one method per operation, on a topic that it creates itself."""

import math
import threading
import time
from typing import Any

from tests.interop.client_kit import Deadline, expected_values, until


class KafkaPython:
    """Operations of kafka-python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import kafka
        import kafka.admin

        self.lib = kafka
        self.admin_lib = kafka.admin
        self.topic = topic
        self._settings = {"bootstrap_servers": bootstrap, "request_timeout_ms": 30_000}
        self.admin = kafka.admin.KafkaAdminClient(**self._settings)
        self._deadline = Deadline()
        self._consumers: list[Any] = []

    def close(self) -> None:
        """Closes the admin client, and consumers that a failure left open: their threads would go on."""
        for consumer in self._consumers:
            consumer.close(autocommit=False, timeout_ms=1000)
        self.admin.close()

    def _create(self, partitions: int) -> None:
        self.admin.create_topics({self.topic: {"num_partitions": partitions, "replication_factor": 1}})

    def _producer(self, **settings: Any) -> Any:
        return self.lib.KafkaProducer(**self._settings, max_block_ms=30_000, **settings)

    def _consumer(self, *topics: str, **settings: Any) -> Any:
        own = {"group_id": self.topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = self.lib.KafkaConsumer(**self._settings, fetch_max_wait_ms=100, **(own | settings))
        self._consumers.append(consumer)
        for topic in topics:
            # 3.0 may hang where the topic's partitions get known to it only after it has joined the group
            consumer.partitions_for_topic(topic)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def _commit(self, consumer: Any, *offsets: Any) -> None:
        """Commit, again once the consumer has polled where its group rebalances meanwhile."""

        def is_done() -> bool:
            try:
                consumer.commit(*offsets)
            except self.lib.errors.RebalanceInProgressError:
                consumer.poll(50)
                return False
            return True

        until(self._deadline, is_done)

    def _at(self, partition: int = 0) -> Any:
        return self.lib.TopicPartition(self.topic, partition)

    def _offset(self, offset: int, metadata: str = "") -> Any:
        from kafka.structs import OffsetAndMetadata

        return OffsetAndMetadata(offset, metadata, -1)

    def _send(self, producer: Any, count: int, *, first: int = 0, partition: int | None = None) -> None:
        sent = [
            producer.send(self.topic, b"value-%d" % n, b"key-%d" % n, partition=partition, timestamp_ms=1000 * (n + 1))
            for n in range(first, first + count)
        ]
        producer.flush(self._deadline.left())
        for one in sent:
            one.get(self._deadline.left())

    def _sent(self, count: int, partition: int | None = None, **settings: Any) -> None:
        producer = self._producer(**settings)
        self._send(producer, count, partition=partition)
        producer.close()

    def _take(self, consumer: Any, count: int, within_s: float = math.inf) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + within_s
        while len(found) < count and time.monotonic() < end:
            self._deadline.left()
            for records in consumer.poll(100, max_records=count - len(found)).values():
                found += records
        return found

    def _all(self, count: int, **settings: Any) -> None:
        consumer = self._consumer(group_id=None, **settings)
        consumer.assign([self._at(0), self._at(1)])
        assert {one.value for one in self._take(consumer, count)} == expected_values(count)
        consumer.close()

    def acks(self, acks: str) -> None:
        self._create(2)
        self._sent(50, acks=acks if acks == "all" else int(acks), enable_idempotence=False)
        self._all(50)

    def codec(self, name: str) -> None:
        self._create(2)
        self._sent(50, compression_type=None if name == "none" else name, linger_ms=20)
        self._all(50)

    def headers_and_times(self) -> None:
        self._create(1)
        producer = self._producer()
        headers = [("a", b"1"), ("a", b"2"), ("e", b"")]
        producer.send(self.topic, None, b"only a key", headers, 0, 1234).get(self._deadline.left())
        producer.close()
        consumer = self._consumer(group_id=None)
        consumer.assign([self._at()])
        (one,) = self._take(consumer, 1)
        assert (one.key, one.value, one.timestamp) == (b"only a key", None, 1234)
        assert list(one.headers) == headers
        consumer.close()

    def idempotent(self) -> None:
        self._create(2)
        self._sent(300, enable_idempotence=True, batch_size=400)
        self._all(300)

    def transactions(self) -> None:
        self._create(2)
        producer = self._producer(transactional_id=self.topic)
        producer.init_transactions()
        for first, commit in ((0, True), (90, False), (10, True)):
            producer.begin_transaction()
            self._send(producer, 10, first=first)
            (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.close()
        self._all(20, isolation_level="read_committed")
        dirty = self._consumer(group_id=None)
        dirty.assign([self._at(0), self._at(1)])
        self._take(dirty, 30)
        dirty.close()
        self._fenced()

    def _fenced(self) -> None:
        from kafka.errors import KafkaError

        first, second = (self._producer(transactional_id=self.topic + "-f") for _ in range(2))
        first.init_transactions()
        second.init_transactions()
        try:
            first.begin_transaction()
            first.send(self.topic, b"x", partition=0).get(self._deadline.left())
            first.commit_transaction()
        except KafkaError as error:
            assert "Fenced" in repr(error) or "InvalidProducerEpoch" in repr(error), error
        else:
            raise AssertionError("the first producer is not fenced")
        finally:
            first.close(timeout=1)
            second.close()

    def transactional_offsets(self) -> None:
        self._create(2)
        self._sent(4, partition=0)
        consumer = self._consumer(self.topic)
        self._take(consumer, 4)
        producer = self._producer(transactional_id=self.topic)
        producer.init_transactions()
        for offset, commit in ((3, True), (4, False)):
            producer.begin_transaction()
            self._send(producer, 2, first=10, partition=1)
            producer.send_offsets_to_transaction({self._at(): self._offset(offset)}, self.topic)
            (producer.commit_transaction if commit else producer.abort_transaction)()
            assert consumer.committed(self._at()) == 3
        producer.close()
        consumer.close()

    def offsets(self) -> None:
        self._create(1)
        self._sent(10, partition=0)
        consumer = self._consumer(group_id=None)
        at = self._at()
        assert consumer.end_offsets([at]) == {at: 10}
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.offsets_for_times({at: 4500})[at].offset == 4
        assert consumer.offsets_for_times({at: 10**12})[at] is None
        consumer.close()

    def group_rebalance(self) -> None:
        self._create(2)
        for partition in (0, 1):
            self._sent(5, partition=partition)
        settings = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 300}
        first = self._consumer(self.topic, **settings)
        self._take(first, 10)
        self._commit(first)
        second = self._consumer(self.topic, **settings)
        over = threading.Event()

        def poll() -> None:
            while not over.is_set():
                second.poll(50)
            second.close()

        polls = threading.Thread(target=poll)
        polls.start()
        try:
            until(self._deadline, lambda: first.poll(50) is not None
                  and len(first.assignment()) == len(second.assignment()) == 1)  # fmt: skip
        finally:
            over.set()
        until(self._deadline, lambda: first.poll(50) is not None and len(first.assignment()) == 2)
        polls.join(self._deadline.left())
        assert [first.committed(self._at(one)) for one in (0, 1)] == [5, 5]
        first.close()

    def group_static(self) -> None:
        self._create(1)
        for _ in range(2):
            consumer = self._consumer(self.topic, group_instance_id="one", session_timeout_ms=20_000)
            until(self._deadline, lambda: consumer.poll(50) is not None and bool(consumer.assignment()))  # noqa: B023
            (found,) = self.admin.describe_groups([self.topic]).values()
            assert [one["group_instance_id"] for one in found["members"]] == ["one"]
            consumer.close()

    def group_commit_and_reset(self) -> None:
        self._create(1)
        self._sent(10, partition=0)
        at = self._at()
        consumer = self._consumer(self.topic)
        assert self._take(consumer, 4)[0].offset == 0
        self._commit(consumer, {at: self._offset(4, "halfway")})
        consumer.close()
        consumer = self._consumer(self.topic)
        assert self._take(consumer, 6)[0].offset == 4
        assert consumer.committed(at, metadata=True).metadata == "halfway"
        for to, count, first in ((1, 9, 1), (5000, 10, 0)):
            found: list[Any] = []
            while len(found) < count:  # 3.0 once fetched nothing after a seek
                consumer.seek(at, to)
                found = self._take(consumer, count, within_s=20)
            assert found[0].offset == first
        consumer.close()

    def admin_topics(self) -> None:
        asked = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "60000"}}
        self.admin.create_topics({self.topic: asked})
        assert self.topic in self.admin.list_topics()
        (found,) = self.admin.describe_topics([self.topic])
        assert len(found["partitions"]) == 3
        self.admin.delete_topics([self.topic])
        until(self._deadline, lambda: self.topic not in self.admin.list_topics())

    def admin_configs(self) -> None:
        self._create(1)
        lib = self.admin_lib
        for incremental, value in ((True, "70000"), (False, "80000")):
            change = lib.ConfigResource("TOPIC", self.topic, {"retention.ms": value})
            self.admin.alter_configs([change], incremental=incremental)
            found = self.admin.describe_configs([lib.ConfigResource("TOPIC", self.topic)])
            assert value in repr(found), found
        assert "log.dirs" in repr(self.admin.describe_configs([lib.ConfigResource("BROKER", "1")], config_filter="all"))

    def admin_partitions(self) -> None:
        self._create(1)
        self.admin.create_partitions({self.topic: 4})
        (found,) = self.admin.describe_topics([self.topic])
        assert len(found["partitions"]) == 4

    def admin_delete_records(self) -> None:
        self._create(1)
        self._sent(10, partition=0)
        assert "3" in repr(self.admin.delete_records({self._at(): 3}))
        consumer = self._consumer(group_id=None)
        assert consumer.beginning_offsets([self._at()]) == {self._at(): 3}
        consumer.close()

    def admin_offsets(self) -> None:
        self._create(1)
        self._sent(10, partition=0)
        spec = self.admin_lib.OffsetSpec
        for asked, offset in ((spec.LATEST, 10), (spec.MAX_TIMESTAMP, 9), (spec.EARLIEST, 0)):
            assert self.admin.list_partition_offsets({self._at(): asked})[self._at()].offset == offset, asked

    def admin_groups(self) -> None:
        self._create(1)
        self._sent(10, partition=0)
        consumer = self._consumer(self.topic)
        self._take(consumer, 10)
        self._commit(consumer)
        assert self.topic in repr(self.admin.list_groups())
        (found,) = self.admin.describe_groups([self.topic]).values()
        assert len(found["members"]) == 1
        consumer.close()
        assert self.admin.list_group_offsets({self.topic: None})[self.topic][self._at()].offset == 10
        self.admin.alter_group_offsets(self.topic, {self._at(): self._offset(2)})
        assert self.admin.list_group_offsets({self.topic: None})[self.topic][self._at()].offset == 2
        self.admin.delete_group_offsets(self.topic, [self._at()])
        self.admin.delete_groups([self.topic])
        assert self.topic not in repr(self.admin.list_groups())

    def admin_acls(self) -> None:
        lib = self.admin_lib
        pattern = lib.ResourcePattern(lib.ResourceType.TOPIC, self.topic, lib.ACLResourcePatternType.PREFIXED)
        acl = lib.ACL("User:somebody", "*", lib.ACLOperation.READ, lib.ACLPermissionType.ALLOW, pattern)
        self.admin.create_acls([acl])
        assert self.admin.describe_acls(acl)[0] == [acl]
        self.admin.delete_acls([acl])
        assert self.admin.describe_acls(acl)[0] == []

    def admin_scram(self) -> None:
        lib = self.admin_lib
        upsert = lib.UserScramCredentialUpsertion(self.topic, lib.ScramMechanism.SCRAM_SHA_256, "a password")
        self.admin.alter_user_scram_credentials([upsert])
        assert "SCRAM_SHA_256" in repr(self.admin.describe_user_scram_credentials([self.topic]))
        deletion = lib.UserScramCredentialDeletion(self.topic, lib.ScramMechanism.SCRAM_SHA_256)
        self.admin.alter_user_scram_credentials([deletion])
        assert self.topic not in repr(self.admin.describe_user_scram_credentials())

    def admin_log_dirs(self) -> None:
        self._create(1)
        assert self.topic in repr(self.admin.describe_log_dirs())

    def admin_transactions(self) -> None:
        self._create(1)
        producer = self._producer(transactional_id=self.topic)
        producer.init_transactions()
        producer.begin_transaction()
        self._send(producer, 2, partition=0)
        assert self.topic in repr(self.admin.list_transactions())
        assert self.topic in repr(self.admin.describe_transactions([self.topic]))
        assert "producer_id" in repr(self.admin.describe_producers([self._at()]))
        producer.commit_transaction()
        producer.close()

    def admin_cluster(self) -> None:
        found = self.admin.describe_cluster()
        assert [one["node_id"] for one in found["brokers"]] == [1] if "node_id" in found["brokers"][0] else True
        assert found["controller_id"] == 1
