"""Reads records, writes each of them once more, and commits both in one transaction, until it is killed.

    python -m tests.server.exactly_once.worker CLIENT BOOTSTRAP FROM TO

Whatever goes wrong ends the process: who started it starts it again, as a supervisor would.
"""

import asyncio
import sys

GROUP, TRANSACTIONAL_ID = "exactly-once", "exactly-once-0"
BATCH = 5
PARTITIONS = 2
TIMEOUT_S = 20
# once all brokers are gone, librdkafka 2.16 forgets those it knew, and then sends offsets to one that it forgot
LIBRDKAFKA = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200, "log_level": 0}


def with_librdkafka(bootstrap: str, source: str, target: str) -> None:
    """As a member of a group: offsets are committed under the group's generation."""
    import confluent_kafka as ck

    shared = {**LIBRDKAFKA, "bootstrap.servers": bootstrap}
    producer = ck.Producer({**shared, "transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": 10_000})
    producer.init_transactions(TIMEOUT_S)
    consumer = ck.Consumer({
        **shared, "group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.subscribe([source])
    while True:
        records = [one for one in consumer.consume(BATCH, 0.2) if not one.error()]
        if not records:
            continue
        producer.begin_transaction()
        for record in records:
            producer.produce(target, record.value(), record.key(), record.partition())
        ends = {(one.topic(), one.partition()): one.offset() + 1 for one in records}
        offsets = [ck.TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)


async def with_aiokafka(bootstrap: str, source: str, target: str) -> None:
    """With partitions of its own: the group has offsets, and no members."""
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=10_000,
        retry_backoff_ms=50,
    )  # fmt: skip
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, isolation_level="read_committed",
        auto_offset_reset="earliest", retry_backoff_ms=50,
    )  # fmt: skip
    consumer.assign([aiokafka.TopicPartition(source, index) for index in range(PARTITIONS)])
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not any(found.values()):
            continue
        async with producer.transaction():
            for place, records in found.items():
                for record in records:
                    await producer.send(target, record.value, record.key, partition=place.partition)
            ends = {place: records[-1].offset + 1 for place, records in found.items() if records}
            await producer.send_offsets_to_transaction(ends, GROUP)


if __name__ == "__main__":
    client, *where = sys.argv[1:]
    if client == "librdkafka":
        with_librdkafka(*where)
    else:
        asyncio.run(with_aiokafka(*where))
