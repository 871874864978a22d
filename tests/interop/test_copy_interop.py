"""Copies to and from a real broker: consumer groups go on in it, and what it had is read from a copy of it."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.copy import copy_topics
from kafkalog.server.groups.stored import committed_offsets
from tests.backup.load import TIMEOUT_S
from tests.copy.topics import GROUPS, expected_of, fill, records_in
from tests.interop.broker import QUIET, Broker
from tests.interop.reference import Reference
from tests.redact.model import read_all

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
TOPICS = ("compacted", "old", "plain", "transactions", "trimmed")
FEW = {**QUIET, "offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


def read_on(bootstrap: str, group: str, topic: str, count: int) -> list[tuple[int, int, bytes | None]]:
    """Read as a member of the group, which subscribes to a topic: (partition, offset, value)."""
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None, message and message.error()
        found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return sorted(found)


def test_directory_to_broker_and_back(tmp_path: Path, reference: Reference) -> None:
    data, files, back = tmp_path / "data", tmp_path / "broker", tmp_path / "back"
    fill(data)
    files.mkdir()
    with Broker(reference, tmp_path / "work", files, FEW) as broker:
        place = f"kafka://{broker.bootstrap}"
        first = copy_topics(str(data), place, TOPICS, apply=True)
        again = copy_topics(str(data), place, TOPICS, apply=True)
        assert first.ok and again.ok and first.records > 0 == again.records, again
        for topic in ("plain", "trimmed", "compacted"):
            wanted = []
            for number, offset in GROUPS["readers"][topic].items():
                records = expected_of(data)[f"{topic}-{number}"].records
                pairs = enumerate(records)
                wanted += [(number, at, one.value) for at, one in pairs if one.offset >= offset]
            assert read_on(broker.bootstrap, "readers", topic, len(wanted)) == wanted
        report = copy_topics(place, str(back), TOPICS, apply=True)
        assert report.records == first.records
    for name, wanted in expected_of(data).items():
        found = records_in(files / name)
        assert [one[1:] for one in found] == [one[1:] for one in wanted.records], name
        assert read_all(back / name) == read_all(files / name)  # what the broker wrote, batch by batch
        with kafkalog.open(back / name) as log:
            assert [(one.offset, one.value) for one in log] == [(one.offset, one.value) for one in found]
    both = [committed_offsets([str(one)]) for one in (files, back)]
    assert both[0]["readers"] == both[1]["readers"] and both[0]["at-ends"] == both[1]["at-ends"]
