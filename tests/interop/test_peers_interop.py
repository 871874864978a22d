"""What peers' suites saw to differ from a broker is answered as by a broker of 4.4, and so are administrators at every
node of a replica set."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kafkalog.testing import kafka_cluster, kafka_server
from tests.interop.broker import Broker
from tests.interop.clients_java import JavaClients
from tests.interop.peers_conversation import Step, administration, conversation

COMMON: Final = {
    "super.users": "User:ANONYMOUS", "num.network.threads": "1", "num.io.threads": "2", "background.threads": "2",
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}  # fmt: skip

ADMINISTRATION: Final = ("admin_topics", "admin_configs", "admin_partitions", "admin_features")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Step], list[Step]]:
    """Return the answers of a broker of 4.4, a cluster by itself."""
    path = tmp_path_factory.mktemp("broker")
    with Broker(None, path / "work", path / "data", COMMON, version="4.4") as broker:
        return list(administration(broker.bootstrap, "x", [1])), list(conversation(broker.bootstrap))


def differences(ours: list[Step], theirs: list[Step]) -> list[tuple[Step, Step]]:
    return [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]


def test_calls_of_peers_are_answered_as_by_the_broker(theirs: tuple[list[Step], list[Step]], tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path / "data", settings={**COMMON, "node.id": "1"}) as server:
        found = list(conversation(server.bootstrap))
    assert differences(found, theirs[1]) == []


def test_administrators_get_the_brokers_answers_at_every_node(theirs: tuple[list[Step], list[Step]]) -> None:
    with kafka_cluster(nodes=3, settings=COMMON) as cluster:
        for node in (1, 2, 3):
            found = list(administration(cluster.address(node), str(node), [1, 2, 3]))
            assert differences(found, theirs[0]) == [], node


def test_java_administers_the_set_from_any_node() -> None:
    """Java's client sends administrators' calls to the node that it happens to know."""
    with kafka_cluster(nodes=3, settings=COMMON) as cluster, JavaClients("4.4") as java:
        for node in (1, 2, 3):
            for operation in ADMINISTRATION:
                java.operation(operation, cluster.address(node), f"{operation.replace('_', '-')}-{node}")
