"""Segments that a real broker has copied to tiered storage, by its own store of files, are read as a partition."""

import time
from pathlib import Path

import pytest

import kafkalog
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.interop.reference import Reference

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
TIMEOUT_S = 60
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
