"""What peers' suites saw to differ from a broker is answered as by a broker of 4.4, and so are administrators at every
node of a replica set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from kafkalog.testing import kafka_cluster, kafka_server
from tests.interop.broker import Broker
from tests.interop.clients_java import JavaClients
from tests.interop.peers_conversation import Step, administration, conversation, nodes_named_by
from tests.ports import free_ports

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


def test_a_set_names_the_same_nodes_whoever_is_asked(tmp_path: Path) -> None:
    """Three brokers of 4.4 beside three nodes: ids, hosts and racks in Metadata and DescribeCluster, from each node."""
    settings = {**COMMON, "broker.rack": "home"}
    ports = free_ports(6)
    voters = ",".join(f"{node}@localhost:{ports[node + 2]}" for node in (1, 2, 3))
    brokers = [
        Broker(
            None, tmp_path / f"work{node}", tmp_path / f"data{node}",
            {**settings, "node.id": str(node), "controller.quorum.voters": voters},
            ports=(ports[node - 1], ports[node + 2]), version="4.4",
        )
        for node in (1, 2, 3)
    ]  # fmt: skip
    with ExitStack() as stack:
        with ThreadPoolExecutor(3) as threads:  # none is up before two of them are
            list(threads.map(stack.enter_context, brokers))
        theirs = [nodes_named_by(one.bootstrap, 3) for one in brokers]
        for one in brokers:
            one.kill()  # the last ones would wait for a majority before they stop
    with kafka_cluster(nodes=3, settings=settings) as cluster:
        ours = [nodes_named_by(cluster.address(node), 3) for node in (1, 2, 3)]
    for asked in (theirs, ours):
        assert asked[0] == asked[1] == asked[2]
        assert {(node, rack) for node, _, _, rack in asked[0]} == {(1, "home"), (2, "home"), (3, "home")}
