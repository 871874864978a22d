"""Segments that a real broker has copied to tiered storage, by its own store of files, are read as a partition."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.copy.tiering import metadata_partition
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.util.fileio import OS
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.interop.reference import Reference
from tests.tiered_store import KeyPair, PluginStore

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
TIMEOUT_S = 180
RECORDS = 600
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def tiering(storage: Path) -> dict[str, str]:
    """A broker's settings: segments go to the directory `storage` as soon as they are rolled."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE,
        "remote.log.storage.manager.class.path": ":".join(map(str, toolchain.tiered_jars())),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(storage),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "500",
    }


def test_what_a_broker_has_tiered_is_its_log(tmp_path: Path, reference: Reference) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    data, storage = tmp_path / "data", tmp_path / "tiered"
    data.mkdir()
    with Broker(reference, tmp_path / "work", data, tiering(storage)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        small = {"internal.segment.bytes": "2500", "index.interval.bytes": "300"}
        config = {"remote.storage.enable": "true", "retention.ms": "-1", **small}
        for future in admin.create_topics([NewTopic("orders", 1, 1, config=config)]).values():
            future.result(TIMEOUT_S)
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": True})
        for n in range(RECORDS):
            producer.produce("orders", b"value %d" % n, b"key %d" % n, partition=0, timestamp=1_790_000_000_000 + n)
            if n % 20 == 19:
                producer.flush(TIMEOUT_S)
        rolled = sorted((data / "orders-0").glob("*.log"))[:-1]
        assert len(rolled) > 3
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and len(list(storage.rglob("*.log"))) < len(rolled):
            time.sleep(0.1)
        (place,) = [path for path in storage.rglob("orders-0-*") if path.is_dir()]
        assert len(list(place.glob("*.log"))) >= len(rolled), broker.log()[-2000:]
    with kafkalog.open(f"file://{place}") as log:
        assert log.topic_partition == ("orders", 0) and len(log.segments) >= len(rolled)
        found = [(record.offset, record.timestamp, record.key, record.value) for record in log.records()]
        assert found == [(n, 1_790_000_000_000 + n, b"key %d" % n, b"value %d" % n) for n in range(len(found))]
        assert len(found) == int(sorted((data / "orders-0").glob("*.log"))[-1].stem)
        middle = log.offset_for_time(1_790_000_000_000 + len(found) // 2)
        assert middle is not None and middle.offset == len(found) // 2


def produce(bootstrap: str, first: int, stop: int) -> None:
    """Write the values first to stop - 1, some of them in transactions, a third of these aborted."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": f"p{first}"})
    producer.init_transactions(TIMEOUT_S)
    for start in range(first, stop, 10):
        producer.begin_transaction()
        for n in range(start, start + 10):
            producer.produce("orders", b"value %d" % n, b"key %d" % n, partition=0, timestamp=1_790_000_000_000 + n)
        producer.flush(TIMEOUT_S)
        if start // 10 % 3 == 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def wait_for(condition: Any, broker: Broker) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, broker.log()[-3000:]
        time.sleep(0.1)


def consumed(bootstrap: str) -> list[tuple[int, bytes]]:
    """Return what the reference's consumer protocol gives of committed records, from the beginning to the end."""
    consumer = ck.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.assign([ck.TopicPartition("orders", 0, ck.OFFSET_BEGINNING)])
    found = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append((message.offset(), message.value()))
        elif message is not None and message.error().code() == ck.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


def as_plugin(storage: Path, target: Path, keys: KeyPair) -> None:
    """Convert the objects of Kafka's own file store into those of the plugin, compressed and encrypted."""
    names = {
        "offset": ".index", "timestamp": ".timeindex", "producerSnapshot": ".snapshot",
        "leaderEpoch": ".leader_epoch_checkpoint", "transaction": ".txnindex",
    }  # fmt: skip
    store = PluginStore(target, chunk_bytes=700, compressed=True, keys=keys)
    for path in storage.rglob("*.log"):
        topic, partition, topic_id = path.parent.name[:-25], path.parent.name[-24], path.parent.name[-22:]
        files = {name: path.with_suffix(suffix) for name, suffix in names.items()}
        parts = {name: one.read_bytes() if one.exists() else None for name, one in files.items()}
        store.put_objects(f"{target}/{topic}-{topic_id}/{partition}/{path.stem}", path.read_bytes(), parts, {})


def test_a_tiered_topic_is_read_whole_as_the_broker_reads_it(tmp_path: Path, reference: Reference) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    data, storage = tmp_path / "data", tmp_path / "tiered"
    data.mkdir()
    for run in range(2):  # a new leader epoch with each start
        with Broker(reference, tmp_path / "work", data, tiering(storage)) as broker:
            if not run:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                config = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "1000"}
                config |= {"internal.segment.bytes": "2500", "index.interval.bytes": "300"}
                for future in admin.create_topics([NewTopic("orders", 1, 1, config=config)]).values():
                    future.result(TIMEOUT_S)
            produce(broker.bootstrap, run * 300, run * 300 + 300)
            # local retention, by the records' times, deletes what was copied
            wait_for(lambda: len(list((data / "orders-0").glob("*.log"))) <= 2, broker)
            expected = consumed(broker.bootstrap)
            with kafkalog.open(data / "orders-0", tiered=f"file://{storage}/kafka-tiered-storage") as log:
                found = [(one.offset, one.value) for one in log.records(isolation="read_committed")]
                assert found == expected and len(found) == 200 * (run + 1)
                assert log.start_offset == 0
    with kafkalog.open(data / "orders-0") as local:
        assert local.start_offset > 300
    assert kafkalog.verify(data / "orders-0", deep=True, tiered=f"file://{storage}/kafka-tiered-storage").ok
    keys = KeyPair()
    as_plugin(storage, tmp_path / "plugin", keys)
    keys.write(tmp_path / "key1.pem")
    description = {"store": f"file://{tmp_path}/plugin", "keys": {"key1": "key1.pem"}}
    (tmp_path / "tiered.json").write_text(json.dumps(description))
    shutil.rmtree(storage)
    with kafkalog.open_dirs(data, tiered=tmp_path / "tiered.json") as dirs:
        log = dirs["orders", 0]
        assert [(one.offset, one.value) for one in log.records(isolation="read_committed")] == expected
    assert kafkalog.verify(data / "orders-0", deep=True, tiered=tmp_path / "tiered.json").ok


def test_a_broker_reads_a_redacted_tiered_topic(tmp_path: Path, reference: Reference) -> None:
    """Its consumer gets every other record as before, and those redacted without their values."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from kafkalog.redact import redact

    data, storage = tmp_path / "data", tmp_path / "tiered"
    data.mkdir()
    store = f"file://{storage}/kafka-tiered-storage"
    settings = tiering(storage) | {"rlmm.config.remote.log.metadata.topic.num.partitions": "7"}
    with Broker(reference, tmp_path / "work", data, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "1000"}
        config |= {"internal.segment.bytes": "2500", "index.interval.bytes": "300"}
        for future in admin.create_topics([NewTopic("orders", 1, 1, config=config)]).values():
            future.result(TIMEOUT_S)
        produce(broker.bootstrap, 0, 300)
        wait_for(lambda: len(list((data / "orders-0").glob("*.log"))) <= 2, broker)
        expected = consumed(broker.bootstrap)
    partition = TieredPartition("orders", 0, read_partition_metadata(OS, str(data / "orders-0")) or "")
    metadata = MetadataTopic(OS, [str(data)])
    assert metadata.copies(partition).finished
    place = metadata.place_of(partition)
    assert place is not None and place.number == metadata_partition(partition, read_known_topics([data]), [data], OS)
    metadata.close()
    offsets = [expected[3][0], expected[60][0], expected[61][0], expected[-1][0]]
    names = {one.name for one in storage.rglob("*.log")}
    keys = [b"key " + expected[20][1].removeprefix(b"value ")]
    report = redact(data, "orders", offsets={0: offsets}, keys=keys, tiered=store, apply=True)
    assert report.ok and report.left == 0 and report.records == 5
    in_store = [one for one in report.segments if one.path.startswith("file://")]
    assert len(in_store) >= 2 and len(names - {one.name for one in storage.rglob("*.log")}) == len(in_store)
    gone = {*offsets, expected[20][0]}
    wanted = [(offset, b"" if offset in gone else value) for offset, value in expected]
    with Broker(reference, tmp_path / "work", data, settings) as broker:
        assert consumed(broker.bootstrap) == wanted
        produce(broker.bootstrap, 300, 400)  # tiering goes on, with the events of the redaction before the new ones
        wait_for(lambda: len(list((data / "orders-0").glob("*.log"))) <= 2, broker)
        more = consumed(broker.bootstrap)
    assert more[: len(wanted)] == wanted and len(more) > len(wanted)
    with kafkalog.open(data / "orders-0", tiered=store) as log:
        assert [(one.offset, one.value) for one in log.records(isolation="read_committed")] == more
