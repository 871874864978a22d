"""Share groups here and in a broker of 4.4: calls, clients of Java and C, the tool, and one directory for both.

With two workers all calls go to the one that has the partitions, and it passes on those of groups.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AdminClient

from kafkalog.testing import kafka_server
from tests.interop import toolchain
from tests.interop.broker import Broker, quick_start
from tests.interop.clients_java import JavaClients
from tests.interop.group_members import LIMIT_S, QUICK, SHARE
from tests.interop.share_calls import Talker
from tests.interop.share_conversation import conversation
from tests.queue.steps import steps

TOOL_CALLS: Final = (
    ("--reset-offsets", "--group", "tooled", "--topic", "t", "--to-earliest", "--execute"),
    ("--describe", "--group", "tooled", "--offsets"), ("--delete-offsets", "--group", "tooled", "--topic", "t"),
    ("--delete", "--group", "tooled"),
)  # fmt: skip
TOOL: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP: Final = "both"


class Taker:
    """A share consumer of librdkafka that acknowledges on request; `taken` has (offset, delivery) pairs."""

    def __init__(self, bootstrap: str, group_id: str = GROUP) -> None:
        self._consumer = ShareConsumer({
            "bootstrap.servers": bootstrap, "group.id": group_id, "share.acknowledgement.mode": "explicit",
        })  # fmt: skip
        self._consumer.subscribe(["t"])
        self.taken: list[tuple[int, int]] = []

    def take(self, wanted: int, **types: Any) -> list[tuple[int, int]]:
        """Take so many records; types by offset as `_3=RELEASE`, others are accepted. Return the records."""
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"only {found}"
            for message in self._consumer.poll(0.5):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.delivery_count()))
                self._consumer.acknowledge(message, types.get(f"_{message.offset()}", AcknowledgeType.ACCEPT))
            self._consumer.commit_sync()
        return sorted(found)

    def __enter__(self) -> Taker:
        return self

    def __exit__(self, *raised: object) -> None:
        self._consumer.close()


def run_java_client(bootstrap: str) -> list[str]:
    """Return the output of the program of Java's clients."""
    command = toolchain.java_44_command("Share", bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def tool(java: JavaClients, bootstrap: str, *arguments: str) -> list[list[str]]:
    """The lines of kafka-share-groups, by words, sorted."""
    status, said = java.tool(TOOL, ["--bootstrap-server", bootstrap, *arguments])
    assert status == 0, said[-3000:]
    return sorted(line.split() for line in said.splitlines() if line.strip())


def begin(talker: Talker, group_id: str = GROUP) -> None:
    talker.topic_id = talker.make_topic()
    talker.set_group(group_id, share_auto_offset_reset="earliest")


def queued(talker: Talker) -> list[Any]:
    """Return what the workers of a queue receive."""
    talker.make_topic("jobs")
    talker.produce(6, topic="jobs")
    return list(steps(talker.bootstrap, "jobs", "workers"))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    """One JVM for all calls of the tool."""
    with JavaClients("4.3") as one:
        yield one


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, java: JavaClients) -> dict[str, Any]:
    """Return the answers of a broker of 4.4, and the directory that it left."""
    path = tmp_path_factory.mktemp("broker")
    settings = SHARE | QUICK
    with Broker(None, path / "work", path / "data", settings, version="4.4", options=quick_start("4.4")) as running:
        talker = Talker(running.bootstrap)
        found: dict[str, Any] = {"conversation": list(conversation(talker)), "java": run_java_client(running.bootstrap)}
        talker.set_group(GROUP, share_auto_offset_reset="earliest")
        talker.set_group("tooled", share_auto_offset_reset="earliest")
        with Taker(running.bootstrap, "tooled") as taker:
            taker.take(21)
        found["tool"] = [tool(java, running.bootstrap, *arguments) for arguments in TOOL_CALLS]
        with Taker(running.bootstrap) as taker:
            taker.take(21, _3=AcknowledgeType.RELEASE, _4=AcknowledgeType.REJECT)
        found["queue"] = queued(talker)
    return {**found, "data": path / "data"}


@contextmanager
def bootstrap_of(workers: int, **settings: str) -> Iterator[str]:
    """Run a server and return the address of its process that gets all further partitions."""
    with kafka_server(workers=workers, settings=settings) as server:
        if workers > 1:
            Talker(server.bootstrap).make_topic("_schemas", 30)  # all are the main process's
        metadata = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=LIMIT_S)
        last = metadata.brokers[max(metadata.brokers)]
        yield f"{last.host}:{last.port}"


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_are_answered_as_by_the_broker(broker: dict[str, Any], workers: int) -> None:
    with bootstrap_of(workers, **QUICK) as bootstrap:
        found = list(conversation(Talker(bootstrap)))
    assert [step for step, ours in zip(broker["conversation"], found, strict=True) if step != ours] == []


@pytest.mark.parametrize("workers", [1, 2])
def test_javas_clients_and_the_tool_get_what_they_get_from_the_broker(
    broker: dict[str, Any], java: JavaClients, workers: int
) -> None:
    with bootstrap_of(workers) as bootstrap:
        assert run_java_client(bootstrap) == broker["java"]
        talker = Talker(bootstrap)
        begin(talker, "tooled")
        talker.produce(4, 17)
        with Taker(bootstrap, "tooled") as taker:
            taker.take(21)
        for arguments, expected in zip(TOOL_CALLS, broker["tool"], strict=True):
            found = tool(java, bootstrap, *arguments)
            assert [_without_address(line) for line in found] == [_without_address(line) for line in expected]


def _without_address(line: list[str]) -> list[str]:
    return [word for word in line if ":" not in word]


def test_a_share_group_goes_from_a_broker_to_us_and_back(broker: dict[str, Any], tmp_path: Path) -> None:
    data: Path = broker["data"]
    with kafka_server(directory=data) as server:
        with Taker(server.bootstrap) as taker:
            assert taker.take(1, _3=AcknowledgeType.RELEASE) == [(3, 2)]
        Talker(server.bootstrap).produce(4)
        with Taker(server.bootstrap) as taker:
            found = taker.take(5, _3=AcknowledgeType.RELEASE, _22=AcknowledgeType.RELEASE)
        assert found == [(3, 3), *((offset, 1) for offset in range(21, 25))]
    with Broker(None, tmp_path / "work", data, SHARE | QUICK, version="4.4", options=quick_start("4.4")) as running:
        with Taker(running.bootstrap) as taker:
            assert taker.take(2) == [(3, 4), (22, 2)]
    with kafka_server(directory=data) as server:
        Talker(server.bootstrap).produce(1)
        with Taker(server.bootstrap) as taker:
            assert taker.take(1) == [(25, 1)]
        row = Talker(server.bootstrap).offsets(GROUP).groups[0].topics[0].partitions[0]
        assert (row.start_offset, row.lag) == (25, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_queue_gets_what_it_gets_from_the_broker(broker: dict[str, Any], workers: int) -> None:
    with bootstrap_of(workers, **QUICK) as bootstrap:
        assert queued(Talker(bootstrap)) == broker["queue"]
