"""A real broker on a data directory that we wrote in: it ignores our topics file, and serves our records."""

import hashlib
from pathlib import Path

import kafkalog
from tests.interop import ours
from tests.interop.broker import Broker
from tests.interop.reference import Reference

TOPICS_FILE = "kafkalog.topics.json"


def test_broker_ignores_the_topics_file_and_goes_on_with_our_log(reference: Reference, tmp_path: Path) -> None:
    """It makes a topic and stops; we append to it and keep settings beside it; it starts again."""
    data, work = tmp_path / "data", tmp_path / "broker"
    data.mkdir()
    with Broker(reference, work, data) as broker:
        broker.ask("create_topic", topic="shared", config={"segment.bytes": 1 << 20})
        broker.ask("produce", topic="shared", prefix="broker ", count=10)
    with kafkalog.open(data / "shared-0", "a") as log:
        log.append([b"ours %d" % i for i in range(100)])
    ours.command("topics", "create", "-d", str(data), "-t", "of_kafkalog", "--config", "segment.bytes=1048576")
    topics_file = data / TOPICS_FILE
    before = hashlib.sha256(topics_file.read_bytes()).digest()
    with Broker(reference, work, data) as broker:
        values = [record[3] for record in broker.consume("shared")]
        assert values == [b"broker %d" % i for i in range(10)] + [b"ours %d" % i for i in range(100)]
        assert "of_kafkalog" not in broker.ask("topics")
        last = broker.ask("produce", topic="shared", prefix="again ", count=5)
        assert last == 114
        said = broker.log()
    assert hashlib.sha256(topics_file.read_bytes()).digest() == before
    assert TOPICS_FILE not in said
    assert "since clean shutdown file was found" in said
    assert [record[3] for record in ours.records(data / "shared-0", 110)] == [b"again %d" % i for i in range(5)]
