"""A real broker starts on a data directory in which an opening kept what was behind damage, and leaves it alone."""

import shutil
import time
from pathlib import Path

import pytest

import kafkalog
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY
from kafkalog.tools.kept import restore_kept
from tests.crash.disk import read_image
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.interop.reference import Reference
from tests.storage.test_kept import FIRST, flip_bits, positions
from tests.tools.test_kept import values

confluent = pytest.importorskip("confluent_kafka", reason="it is not installed: pip install kafkalog[test]")
admin = pytest.importorskip("confluent_kafka.admin")
FEW = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
DELETES_SOON = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "1000"}


def create_topic(broker: Broker) -> None:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = admin.NewTopic("orders", num_partitions=1, replication_factor=1)
    client.create_topics([topic])["orders"].result(30)


def produce(broker: Broker, *values: bytes) -> None:
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("orders", value=value, partition=0)
        assert producer.flush(30) == 0


def test_a_broker_ignores_what_was_kept_and_deletes_it_with_the_topic(tmp_path: Path, reference: Reference) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = data / "orders-0"
    with Broker(reference, tmp_path / "work", data, FEW) as broker:
        create_topic(broker)
        produce(broker, b"first")
    marker = (data / CLEAN_SHUTDOWN_FILE).read_bytes()
    with kafkalog.open(path, "a") as log:
        for number in range(12):
            if number % 4 == 3:
                log.roll()
            log.append(b"%d" % number)
    flip_bits(path / FIRST, positions(path / FIRST)[2] + 65)
    (data / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    for point in data.glob("recovery-point-*"):
        point.unlink()
    kafkalog.open(path, "a").close()
    kept = read_image(path / KEPT_DIRECTORY)
    assert len([name for name in kept if name.endswith(".log")]) == 3
    copy = shutil.copytree(path, tmp_path / "copy" / "orders-0")  # the broker's recovery passes over it too
    with reference.open(copy, {}, clean=False) as opened:
        assert [record[0] for record in opened.read()] == [0, 1]
    assert read_image(copy / KEPT_DIRECTORY) == kept
    (data / CLEAN_SHUTDOWN_FILE).write_bytes(marker)  # with the epoch of the broker, which else has no leader left
    settings = FEW | DELETES_SOON
    # without the archive of classes: a broker that starts faster than its controller reports an error, and tries again
    with Broker(reference, tmp_path / "again", data, settings, options=toolchain.quick_start()) as broker:
        assert [record[0] for record in broker.consume("orders")] == [0, 1]
        produce(broker, b"after")
        assert [record[0] for record in broker.consume("orders")] == [0, 1, 2]
        for sign in ("-stray", "Found invalid", "ERROR"):
            assert sign not in broker.log(), sign
        assert read_image(path / KEPT_DIRECTORY) == kept
        restore_kept(data, tmp_path / "to")
        assert list(values(tmp_path / "to" / "orders-0")) == list(range(3, 13))
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        client.delete_topics(["orders"])["orders"].result(30)
        deadline = time.monotonic() + 90
        while list(data.glob("orders-0*")) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not list(data.glob("orders-0*"))
