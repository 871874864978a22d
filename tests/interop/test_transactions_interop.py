"""A directory with open transactions goes from a real broker to our server and back: each ends the other's.

The clients are librdkafka's; what a consumer may see is asked of the broker's own consumer at the end.
"""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.server.wire.reader import read_response
from kafkalog.testing import kafka_server
from kafkalog.tools.handover.directories import handover
from kafkalog.types import TopicPartition
from tests.backup.load import until_loaded
from tests.interop.broker import Broker
from tests.interop.reference import Reference
from tests.server.nodes import KEYS, request_bytes

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")

TOPIC, GROUP = "txns", "interop-group"
TIMEOUT_S = 180
LOADING = 14
COMMITTED = TopicPartition(TOPIC, 0)


@dataclass
class Journey:
    """Results along the way."""

    data: Path
    states: dict[str, dict[str, str]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[bytes]] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)


def producer_of(bootstrap: str, name: str) -> Any:
    """A producer under a transactional id; whatever that id left open is aborted by now."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    producer = ck.Producer(settings | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Any, value: bytes, offset: int | None, ends: bool | None) -> None:
    """One transaction of a record and maybe of an offset; True commits it, False aborts it, None leaves it open."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, b"key", 0)
    producer.flush(TIMEOUT_S)
    if offset is not None:
        position = ck.TopicPartition(TOPIC, 0, offset)
        consumer = ck.Consumer({"bootstrap.servers": "localhost:1", "group.id": GROUP, "log_level": 0})
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
    if ends is not None:
        (producer.commit_transaction if ends else producer.abort_transaction)(TIMEOUT_S)


def committed_values(bootstrap: str) -> list[bytes]:
    """Return all that a consumer of committed records gets, up to the reported end."""
    consumer = ck.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 50,
    })  # fmt: skip
    found: list[bytes] = []
    try:
        consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for one in consumer.consume(100, 0.1):
                if one.error():
                    assert one.error().code() == ck.KafkaError._PARTITION_EOF, one.error()
                    return found
                found.append(one.value())
        raise TimeoutError("the end of the partition did not come")
    finally:
        consumer.close()


def committed_offset(bootstrap: str) -> int:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        return int(until_loaded(consumer, ck.TopicPartition(TOPIC, 0)).offset)
    finally:
        consumer.close()


def asked(bootstrap: str, name: str, version: int, tree: dict[str, Any]) -> Any:
    """Return the response of the current server; retry while a coordinator is not ready."""
    host, _, port = bootstrap.rpartition(":")
    frame = request_bytes(name, version, tree)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as stream:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
        found = read_response(KEYS[name], version, answer, 5)
        if found.error_code != LOADING or time.monotonic() > deadline:
            assert found.error_code == 0
            return found
        time.sleep(0.05)


def states(bootstrap: str) -> dict[str, str]:
    """The states of all transactional ids."""
    found = asked(bootstrap, "list_transactions", 1, {"state_filters": [], "producer_id_filters": []})
    return {one.transactional_id: one.transaction_state for one in found.transaction_states}


def plain_producer_id(bootstrap: str) -> int:
    """A producer id for one who begins no transaction."""
    found = asked(bootstrap, "init_producer_id", 4, {"transactional_id": None, "transaction_timeout": 1})
    return int(found.producer_id)


@pytest.fixture(scope="module")
def journey(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """Broker, server, broker; on each stay a transaction is committed, and one is left open for the next."""
    from confluent_kafka.admin import AdminClient, NewTopic

    root = tmp_path_factory.mktemp("transactions")
    seen = Journey(root / "data")
    seen.data.mkdir()
    with Broker(reference, root / "work", seen.data) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        write(producer_of(broker.bootstrap, "first"), b"broker, committed", 10, True)
        write(producer_of(broker.bootstrap, "aborted"), b"broker, aborted", 11, False)
        write(producer_of(broker.bootstrap, "left by broker"), b"broker, left open", 12, None)
        seen.producer_ids.append(plain_producer_id(broker.bootstrap))
    with kafka_server(directory=seen.data) as server:
        seen.states["taken over"] = states(server.bootstrap)
        seen.values["taken over"] = committed_values(server.bootstrap)
        write(producer_of(server.bootstrap, "second"), b"server, committed", None, True)
        seen.values["before the end"] = committed_values(server.bootstrap)
        left = producer_of(server.bootstrap, "left by broker")
        seen.values["after the end"] = committed_values(server.bootstrap)
        seen.offsets["after the end"] = committed_offset(server.bootstrap)
        write(left, b"server, the same id", 20, True)
        seen.offsets["in the server"] = committed_offset(server.bootstrap)
        write(producer_of(server.bootstrap, "left by server"), b"server, left open", 21, None)
        seen.values["in the server"] = committed_values(server.bootstrap)
        seen.producer_ids.append(plain_producer_id(server.bootstrap))
    report = handover([seen.data], apply=True)
    assert report.ok, report.plan.problems
    with Broker(reference, root / "work2", seen.data) as broker:
        seen.values["handed back"] = committed_values(broker.bootstrap)
        left = producer_of(broker.bootstrap, "left by server")
        seen.offsets["handed back"] = committed_offset(broker.bootstrap)
        write(left, b"broker again", 30, True)
        seen.producer_ids.append(plain_producer_id(broker.bootstrap))
        deadline = time.monotonic() + TIMEOUT_S
        while states(broker.bootstrap)["left by server"] != "CompleteCommit" and time.monotonic() < deadline:
            time.sleep(0.1)  # a commit is answered before the last marker is written
        seen.offsets["at the end"] = committed_offset(broker.bootstrap)
        seen.states["at the end"] = states(broker.bootstrap)
        found = broker.consume_all([COMMITTED], "read_committed")
        seen.values["at the end"] = [value for _, _, _, value, _ in found[str(COMMITTED)] if value is not None]
    yield seen


def test_the_server_knows_what_the_broker_left(journey: Journey) -> None:
    found = journey.states["taken over"]
    assert found == {"first": "CompleteCommit", "aborted": "CompleteAbort", "left by broker": "Ongoing"}
    assert journey.values["taken over"] == [b"broker, committed"]


def test_an_open_transaction_of_the_broker_is_ended_by_the_server(journey: Journey) -> None:
    assert journey.values["before the end"] == [b"broker, committed"]
    assert journey.values["after the end"] == [b"broker, committed", b"server, committed"]
    assert journey.offsets["after the end"] == 10
    assert journey.offsets["in the server"] == 20
    committed = [b"broker, committed", b"server, committed", b"server, the same id"]
    assert journey.values["in the server"] == committed


def test_an_open_transaction_of_the_server_is_ended_by_the_broker(journey: Journey) -> None:
    committed = [b"broker, committed", b"server, committed", b"server, the same id"]
    assert journey.values["handed back"] == committed
    assert journey.offsets["handed back"] == 20
    assert journey.values["at the end"] == [*committed, b"broker again"]
    assert journey.offsets["at the end"] == 30
    found = journey.states["at the end"]
    assert set(found) == {"first", "aborted", "left by broker", "second", "left by server"}
    assert found["left by server"] == "CompleteCommit" and "Ongoing" not in found.values()


def test_no_producer_id_is_given_twice(journey: Journey) -> None:
    written: dict[int, list[bytes | None]] = {}
    with kafkalog.open(journey.data / str(COMMITTED)) as log:
        for batch in log.batches():
            for record in () if batch.header.is_control else batch.records():
                written.setdefault(batch.header.producer_id, []).append(record.value)
    assert sorted(written.values(), key=str) == [
        [b"broker, aborted"], [b"broker, committed"], [b"broker, left open", b"server, the same id"],
        [b"server, committed"], [b"server, left open", b"broker again"],
    ]  # fmt: skip
    given = [*written, *journey.producer_ids]
    assert len(set(given)) == len(given) == 8
