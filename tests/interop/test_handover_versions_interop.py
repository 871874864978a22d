"""Brokers of 4.3 and 4.4 take over what kafkalog wrote, formatted, started and stopped in every way.

Each path ends with the same: every record is read by the broker's consumer, no directory is stray, kafkalog goes on
after the broker, and a second handover of a new topic is taken as well.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

import kafkalog
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.storage.log import UnifiedLog
from kafkalog.testing import kafka_server
from kafkalog.tools.handover.apply import METADATA_LOG
from kafkalog.tools.handover.directories import handover, undo_handover
from kafkalog.tools.retain.directories import retain
from kafkalog.types import TopicPartition
from tests.broker_directory import batch
from tests.handover_cases import content, metadata_of
from tests.interop import toolchain
from tests.interop.broker import QUIET, Broker
from tests.interop.group_members import asked
from tests.interop.ours import served_on
from tests.interop.reference import RecordTuple, Reference
from tests.ports import free_ports
from tests.tools.test_handover_directories import as_an_earlier_release_did
from tests.trees import ROOT

ENDS_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
KEEP = {"retention_ms": -1}
SINCE_4_4 = {
    "retention.ms": "-1", "errors.deadletterqueue.group.enable": "true", "max.decompressed.message.bytes": "9000000",
    "remote.copy.lag.bytes": "7", "remote.copy.lag.ms": "5",
}  # fmt: skip


class HandoverPath(NamedTuple):
    """A way to hand over: formatter, whether and how that broker ran and stopped, new owner, directories, voters."""

    formatted: str
    ran: str
    takes: str
    directories: int
    has_voters: bool

    def __str__(self) -> str:
        voters = "standalone" if self.has_voters else "static"
        return f"{self.formatted}-{self.ran}-{self.takes}-{self.directories}dirs-{voters}"


PATHS = [
    HandoverPath("4.3", "never", "4.3", 1, True),
    HandoverPath("4.3", "never", "4.3", 2, False),
    HandoverPath("4.3", "never", "4.4", 2, True),
    HandoverPath("4.3", "stopped", "4.3", 2, False),
    HandoverPath("4.3", "killed", "4.4", 2, True),
    HandoverPath("4.4", "never", "4.4", 1, False),
    HandoverPath("4.4", "never", "4.4", 2, True),
    HandoverPath("4.4", "stopped", "4.4", 2, True),
    HandoverPath("4.4", "killed", "4.4", 2, False),
]


def test_the_document_has_each_path() -> None:
    page = (ROOT / "docs" / "handover.md").read_text(encoding="utf-8")
    rows = [row.strip("| ").split(" | ") for row in page.splitlines() if row.startswith("| 4.")]
    words = {"never": "never ran", "stopped": "was stopped", "killed": "was killed"}
    assert [row[:5] for row in rows] == [
        [one.formatted, words[one.ran], one.takes, str(one.directories), "standalone" if one.has_voters else "static"]
        for one in PATHS
    ]


class Cluster:
    """The data directories of a path and the broker on them."""

    def __init__(self, path: HandoverPath, root: Path, reference: Reference) -> None:
        self.path, self.root = path, root
        self._reference = reference
        self.dirs = [root / f"d{number}" for number in range(path.directories)]
        self._ports = free_ports(2)  # of the controller: a metadata that has voters knows it
        self.first = self.broker(path.formatted)

    def broker(self, version: str) -> Broker:
        made = Broker(
            self._reference, self.root / f"work{version}", self.dirs[0], QUIET, ports=self._ports, others=self.dirs[1:],
            version=version, has_voters=self.path.has_voters,
        )  # fmt: skip
        return made

    def write(self, name: str, count: int) -> None:
        for number, directory in enumerate(self.dirs):
            with kafkalog.open(directory / f"{name}{number}-0", "a", **KEEP) as log:
                log.append([(b"k%d" % i, b"%s %d" % (name.encode(), i)) for i in range(count)])

    def write_and_die(self, name: str, count: int) -> None:
        """Write in processes that are killed with the logs open."""
        for number, directory in enumerate(self.dirs):
            script = (
                "import os, signal, sys, kafkalog\n"
                "log = kafkalog.open(sys.argv[1], 'a', retention_ms=-1)\n"
                "log.append([(b'k%d' % i, b'%s %d' % (sys.argv[2].encode(), i)) for i in range(int(sys.argv[3]))])\n"
                "os.kill(os.getpid(), signal.SIGKILL)"
            )
            given = [str(directory / f"{name}{number}-0"), name, str(count)]
            assert subprocess.run([sys.executable, "-c", script, *given]).returncode == -signal.SIGKILL

    def records(self) -> dict[str, list[RecordTuple]]:
        found = {}
        for directory in self.dirs:
            for path in sorted(directory.glob("*-0")):
                if not path.name.startswith("__"):
                    with kafkalog.open(path) as log:
                        found[path.name] = [
                            (one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in log.records()
                        ]
        return found

    def read_by(self, broker: Broker, names: list[str]) -> dict[str, list[RecordTuple]]:
        partitions = [TopicPartition(name.rpartition("-")[0], 0) for name in names]
        return broker.consume_all(partitions, "read_committed")

    def stray(self) -> list[str]:
        return [path.name for one in self.dirs for path in one.iterdir() if path.name.endswith(("-stray", "-delete"))]


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_broker_takes_over_and_gives_back(path: HandoverPath, tmp_path: Path, reference: Reference) -> None:
    cluster = Cluster(path, tmp_path, reference)
    first = cluster.first
    if path.ran == "never":
        cluster.write("ours", 20)
        first.format()
    if path.ran != "never":
        with first as broker:
            broker.ask("create_topic", topic="theirs")
            broker.ask("produce", topic="theirs", prefix="x", count=5)
            if path.ran == "killed":
                broker.kill()
        cluster.write("ours", 20)
    before = [content(one) for one in cluster.dirs]
    assert handover(cluster.dirs[::-1], apply=True).ok
    undo_handover(cluster.dirs)
    for was, directory in zip(before, cluster.dirs, strict=True):
        now = content(directory)
        assert {name for name in was if was[name] != now.get(name)} <= derived(was), directory
    for round_, name in enumerate(("ours", "more")):
        if round_:
            cluster.write_and_die(name, 7)
        assert handover(cluster.dirs, apply=True).ok
        expected = cluster.records()
        assert len(expected) == len(cluster.dirs) * (1 + round_) + (path.ran != "never")
        with cluster.broker(path.takes) as broker:
            assert cluster.read_by(broker, list(expected)) == expected
            broker.ask("produce", topic=f"{name}0", prefix="of the broker ", count=3)
            if round_:
                broker.kill()
        assert not cluster.stray()
        after = cluster.records()
        assert [one[3] for one in after[f"{name}0-0"]][-3:] == [b"of the broker %d" % i for i in range(3)]
        with kafkalog.open(cluster.dirs[0] / f"{name}0-0", "a") as log:
            log.append(b"ours again")
    assert handover(cluster.dirs).plan.is_done


def derived(files: dict[str, bytes]) -> set[str]:
    """Return the files of the metadata log that opening it rebuilds, except its records."""
    return {name for name in files if name.startswith(METADATA_DIRECTORY) and not name.endswith(".log")}


def test_a_broker_of_4_4_starts_after_an_earlier_handover_is_taken_back(tmp_path: Path, reference: Reference) -> None:
    """State of an earlier release: no broker starts on it; it is detected, reverted and handed over."""
    data = tmp_path / "data"
    with kafkalog.open(data / "t-0", "a", **KEEP) as log:
        log.append([b"%d" % i for i in range(10)])
    broker = Broker(reference, tmp_path / "work", data, QUIET, version="4.4")
    broker.format()
    as_an_earlier_release_did(data, 0)
    with pytest.raises(RuntimeError, match="did not start"), broker:
        pass
    problems = handover([data], apply=True).plan.problems
    assert ["no broker can start" in one.what for one in problems] == [True]
    undo_handover([data])
    assert handover([data], apply=True).ok
    with broker:
        assert [row[3] for row in broker.consume("t")] == [b"%d" % i for i in range(10)]


def test_metadata_of_two_directories_after_the_broker_ran(tmp_path: Path, reference: Reference) -> None:
    """The one with the log counts in either order, and the other is refused where it is named."""
    one, two = tmp_path / "one", tmp_path / "two"
    settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    with Broker(reference, tmp_path / "work", one, QUIET, others=[two]) as broker:
        broker.ask("create_topic", topic="theirs", config=settings)
    for order in ((two, one), (one, two)):
        with served_on(tmp_path, *order) as server:
            shown = reference.ask("topic_settings", bootstrap=server.bootstrap, topics=["theirs"])
            assert shown == {"theirs": settings}
            assert refused_without_key(server.bootstrap, "theirs")
        assert handover(order).plan.is_done
    with pytest.raises(IllegalArgument, match="the broker's metadata is in"):
        handover([one, two], apply=True, metadata_dir=two)
    assert metadata_of(two).is_fresh and not metadata_of(two).image.topics


def refused_without_key(bootstrap: str, topic: str) -> bool:
    """Return True if a record without a key is refused as a compacted topic's partition refuses it."""
    codes: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", on_delivery=lambda error, _: codes.append(None if error is None else error.code()))
    producer.flush(20)
    return codes == [KafkaError.INVALID_RECORD]


def test_a_record_that_4_4_added_stops_nothing(tmp_path: Path, reference: Reference) -> None:
    """After `unregisterController` all that reads the broker's metadata goes on, with its topics and settings."""
    data = tmp_path / "data"
    broker = Broker(reference, tmp_path / "work", data, QUIET, version="4.4")
    with broker:
        broker.ask("create_topic", topic="theirs", config={"retention.ms": "-1", "remote.copy.lag.ms": "5"})
        broker.ask("produce", topic="theirs", prefix="x", count=5)
    register_controller(data, 2)
    with broker:
        command = toolchain.java_44_command("Unregister", broker.bootstrap, "2")
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    metadata = metadata_of(data)
    assert metadata.image.features["share.version"] == 2 and not metadata.image.skipped
    settings = {"retention.ms": "-1", "remote.copy.lag.ms": "5"}
    assert metadata.image.topic_settings("theirs") == settings
    assert handover([data]).plan.is_done
    with kafkalog.open_dirs(data, "a") as dirs:
        assert len(list(dirs["theirs", 0].records())) == 5
    assert not retain([data]).due
    with kafka_server(directory=data) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        assert consumer.list_topics(timeout=60).topics["theirs"].error is None
        consumer.close()
    with broker:
        assert len(broker.consume("theirs")) == 5
        assert broker.ask("topic_settings", topics=["theirs"]) == {"theirs": settings}


def test_settings_that_topics_have_since_4_4_are_shown_and_given_back(tmp_path: Path, reference: Reference) -> None:
    """Our server shows those of the broker's topic, and a change keeps them; the broker gets those of our topic."""
    data = tmp_path / "data"
    broker = Broker(reference, tmp_path / "work", data, QUIET, version="4.4")
    with broker:
        broker.ask("create_topic", topic="theirs", config=SINCE_4_4)
    with kafka_server(directory=data) as server:

        def shown(*topics: str) -> Any:
            return reference.ask("topic_settings", bootstrap=server.bootstrap, topics=list(topics))

        assert shown("theirs") == {"theirs": SINCE_4_4}
        reference.ask("create_topic", bootstrap=server.bootstrap, topic="ours", config=SINCE_4_4)
        change = {"name": "max.message.bytes", "config_operation": 0, "value": "100000"}
        resource = {"resource_type": 2, "resource_name": "theirs", "configs": [change]}
        asked(server.bootstrap, "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
        changed = SINCE_4_4 | {"max.message.bytes": "100000"}
        assert shown("ours", "theirs") == {"ours": SINCE_4_4, "theirs": changed}
    assert handover([data], apply=True).ok
    with broker:
        assert broker.ask("topic_settings", topics=["ours"]) == {"ours": SINCE_4_4}


def register_controller(data: Path, node_id: int) -> None:
    """A controller that was there once, in the metadata log behind what the broker wrote."""
    metadata = metadata_of(data)
    record = {
        "controllerId": node_id, "incarnationId": "Er3uhoIpQAyT3-6BGQRyUA", "zkMigrationReady": False, "endPoints": [],
        "features": [],
    }  # fmt: skip
    log = UnifiedLog.open(metadata.log_path, LogConfig.from_stored(METADATA_LOG))
    epoch = metadata.leader_epoch
    log.append_as_follower(batch([("RegisterControllerRecord", 0, record)], metadata.end_offset, epoch), epoch)
    log.close()


def test_a_transaction_that_the_coordinator_has_is_ended_by_the_broker(tmp_path: Path, reference: Reference) -> None:
    """No note asks for a manual abort, and readers of committed records continue past it."""
    data = tmp_path / "data"
    with kafka_server(directory=data, topics=["t"], settings={"transaction.state.log.num.partitions": 1}) as server:
        settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "x", "transaction.timeout.ms": 5000}
        producer = Producer(settings)
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"never committed")
        producer.flush(20)
        server.kill()
    broker = Broker(reference, tmp_path / "work", data, QUIET | ENDS_SOON, version="4.4")
    broker.format()
    report = handover([data], apply=True)
    assert report.ok and not [note for note in report.plan.notes if "open transaction" in note]
    with kafkalog.open(data / "t-0") as log:
        assert not list(log.records(isolation="read_committed")) and len(list(log.records())) == 1
    with broker:
        broker.ask("produce", topic="t", prefix="after ", count=1)
        deadline = time.monotonic() + 60
        found: list[RecordTuple] = []
        while not found and time.monotonic() < deadline:
            found = broker.consume_all([TopicPartition("t", 0)], "read_committed")["t-0"]
        assert [one[3] for one in found] == [b"after 0"]
