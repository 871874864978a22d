"""A client of Kafka 4.4 sees the same at our server as at a broker of 4.4.0, and both write the same.

Transactions of version 2 (KIP-890), features (KIP-584), and operators' calls.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog.records.internal import coordinator_record
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.schemas.transactions import KEYS, VALUES
from kafkalog.storage.readonly.view import LogView
from kafkalog.testing import kafka_server
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.interop.client_metrics_conversation import conversation
from tests.interop.ours import PLAIN, served_on

SETTINGS = PLAIN | {"node.id": "1", "transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


class Seen(NamedTuple):
    """The client's output, the directories that it left, and the answers about client metrics."""

    said: list[str]
    directories: list[Path]
    subscriptions: list[tuple[Any, ...]]


def run_client(bootstrap: str, directories: list[Path]) -> list[str]:
    command = toolchain.java_44_command("Features", bootstrap, *map(str, directories))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def directories_in(path: Path) -> list[Path]:
    return [path / "one", path / "two"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path = tmp_path_factory.mktemp("theirs")
    one, two = directories_in(path)
    settings = {"log.initial.task.delay.ms": "3600000", "transaction.partition.verification.enable": "true"}
    with Broker(None, path / "work", one, settings, others=[two], version="4.4", has_voters=True) as broker:
        return Seen(run_client(broker.bootstrap, [one, two]), [one, two], list(conversation(broker.bootstrap)))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path = tmp_path_factory.mktemp("ours")
    one, two = directories_in(path)
    with served_on(path, one, two, settings=SETTINGS) as server:
        said = run_client(server.bootstrap, [one, two])
        with_librdkafka(server.bootstrap)
        subscriptions = list(conversation(server.bootstrap))
    return Seen(said, [one, two], subscriptions)


def with_librdkafka(bootstrap: str) -> None:
    """librdkafka announces its partitions in the older way, beside a client of version 2."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "other", "log_level": 0})
    producer.init_transactions(60)
    for number in range(2):
        producer.begin_transaction()
        producer.produce("t", b"librdkafka %d" % number, partition=0)
        producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g2", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < 6:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        values.append(message.value())
    consumer.close()
    assert values == [b"v0", b"v2", b"v4", b"second", b"librdkafka 0", b"librdkafka 1"]


def test_the_client_is_told_the_same(theirs: Seen, ours: Seen) -> None:
    assert ours.said == theirs.said
    assert any(line.startswith("committed [v0, v2, v4, second]") for line in ours.said)
    assert any("transaction.version=2" in line for line in ours.said)


def test_subscriptions_to_metrics_of_clients_are_answered_as_by_the_broker(theirs: Seen, ours: Seen) -> None:
    assert [one for one in zip(theirs.subscriptions, ours.subscriptions, strict=True) if one[0] != one[1]] == []


def test_the_tool_changes_and_shows_subscriptions(tmp_path: Path) -> None:
    with kafka_server() as server:
        def tool(*arguments: str) -> list[str]:
            name = "org.apache.kafka.tools.ClientMetricsCommand"
            command = toolchain.java_command(
                name, "--bootstrap-server", server.bootstrap, *arguments, options=toolchain.quick_start()
            )
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.splitlines()

        tool("--alter", "--name", "slow", "--metrics", "org.apache.kafka.", "--interval", "5000")
        shown = tool("--describe")
        assert any("slow" in line for line in shown) and "  interval.ms=5000" in shown


def test_the_client_learns_the_versions_in_one_round_trip() -> None:
    with kafka_server() as server, server.record() as seen:
        command = toolchain.java_44_command("Unregister", server.bootstrap, "5")
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
        asked = [one for one in seen.requests if one.api == "ApiVersions"]
    assert {one.version for one in asked} == {5}
    assert len(asked) == len({one.connection for one in seen.requests}) > 0, "once for each connection"


def batches(seen: Seen, name: str) -> list[MemoryRecords]:
    (path,) = [one / name for one in seen.directories if (one / name).is_dir()]
    with LogView(path) as view:
        return [MemoryRecords(bytes(view.read(view.log_start_offset, 1 << 24).records.read()))]


def headers(seen: Seen) -> list[tuple[int, int, int, bool, bool]]:
    """Epoch, sequence and kind of each batch of the client's topic, without those of librdkafka."""
    (records,) = batches(seen, "t-0")
    rows = [
        (one.header.producer_epoch, one.header.base_sequence, one.header.count, one.header.is_transactional,
         one.header.is_control)
        for one in records.batches()
    ]  # fmt: skip
    return rows[:14]


def states(seen: Seen) -> dict[str, list[tuple[int, int, int, int, int, int]]]:
    """Each step of each transactional id: value version, state, epoch, client's version, number of partitions."""
    (records,) = batches(seen, "__transaction_state-0")
    found: dict[str, list[tuple[int, int, int, int, int, int]]] = {}
    for batch in records.batches():
        for record in batch.records():
            if batch.header.is_control:
                continue
            row = coordinator_record(record.key or b"", record.value, KEYS, VALUES)
            value = row.value
            assert value is not None and record.value is not None
            found.setdefault(row.key["transactionalId"], []).append((
                int.from_bytes(record.value[:2], "big"), value["transactionStatus"], value["producerEpoch"],
                value.get("clientTransactionVersion", 0), value.get("nextProducerId", -1),
                sum(len(one["partitionIds"]) for one in value["transactionPartitions"] or ()),
            ))  # fmt: skip
    return found


def test_both_write_the_same_batches_and_markers(theirs: Seen, ours: Seen) -> None:
    """KIP-890: each end bumps the epoch, and its marker has the new one."""
    assert headers(ours) == headers(theirs)
    assert [row[0] for row in headers(ours) if not row[4]] == [0, 1, 2, 3, 4, 5, 7]


def test_both_keep_the_same_states(theirs: Seen, ours: Seen) -> None:
    found = states(ours)
    del found["other"]
    assert found == states(theirs)
