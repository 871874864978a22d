"""Fixtures for pytest: a Kafka server for a whole test session, and a cluster for tests that make it fail.

pytest finds them if kafkalog is installed: a test with an argument `kafka_server` gets a running
`kafkalog.testing.KafkaServer`, one with `kafka_cluster` a `kafkalog.testing.KafkaCluster`, one with
`async_kafka_cluster` the same for asyncio. A project configures them with its own session fixtures named
`kafka_server_settings` and `kafka_cluster_settings` (a dict), `kafka_server_topics` and `kafka_cluster_topics` (names,
or names and numbers of partitions), `kafka_server_users` (a dict of passwords), `kafka_cluster_nodes` (a number) and
`kafka_cluster_unmatched` ("warn", "error" or "ignore"). `schema_registry` is the address of the schema registry of
`kafka_server`, which has one if any test asks for it, or if `kafka_server_registry` is True; that of the cluster is
`kafka_cluster.registry_url` if `kafka_cluster_registry` is True. Under pytest-xdist each worker has its own server and
cluster; `kafka_prefix` begins names that no other test uses. `-p no:kafkalog.pytest_plugin` disables them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # every run of pytest imports this file
    from kafkalog.testing import AsyncCluster, KafkaCluster, KafkaServer
    from kafkalog.testing.controlled import Snapshot
    from kafkalog.testing.faults import Unmatched

_LONGEST_NAME = 100


@pytest.fixture(scope="session")
def kafka_server_settings() -> Mapping[str, Any]:
    """Settings that override the defaults; empty."""
    return {}


@pytest.fixture(scope="session")
def kafka_server_topics() -> Mapping[str, int] | Iterable[str]:
    """Topics created at the start; empty."""
    return ()


@pytest.fixture(scope="session")
def kafka_server_users() -> Mapping[str, str]:
    """Passwords of users created at the start; empty."""
    return {}


@pytest.fixture(scope="session")
def kafka_server_registry(request: pytest.FixtureRequest) -> bool:
    """True for a server with a schema registry: by default if a test of the session has `schema_registry`."""
    return any("schema_registry" in getattr(one, "fixturenames", ()) for one in request.session.items)


@pytest.fixture(scope="session")
def kafka_server(
    kafka_server_settings: Mapping[str, Any],
    kafka_server_topics: Mapping[str, int] | Iterable[str],
    kafka_server_users: Mapping[str, str],
    kafka_server_registry: bool,
) -> Iterator[KafkaServer]:
    """Server that all tests of the session share."""
    from kafkalog.testing import kafka_server as running

    with running(
        topics=kafka_server_topics, settings=kafka_server_settings, users=kafka_server_users,
        registry=kafka_server_registry,
    ) as server:  # fmt: skip
        yield server


@pytest.fixture(scope="session")
def schema_registry(kafka_server: KafkaServer) -> str:
    """Address of the schema registry of `kafka_server`, "http://HOST:PORT"."""
    return kafka_server.registry_url


@pytest.fixture(scope="session")
def kafka_cluster_nodes() -> int:
    """Number of nodes; 3."""
    return 3


@pytest.fixture(scope="session")
def kafka_cluster_settings() -> Mapping[str, Any]:
    """Settings of all nodes that override the defaults; empty."""
    return {}


@pytest.fixture(scope="session")
def kafka_cluster_topics() -> Mapping[str, int] | Iterable[str]:
    """Topics that each test finds empty; none."""
    return ()


@pytest.fixture(scope="session")
def kafka_cluster_unmatched() -> Unmatched:
    """Report of a fault that never matched: "warn", "error" or "ignore"; a warning."""
    return "warn"


@pytest.fixture(scope="session")
def kafka_cluster_registry() -> bool:
    """True for a cluster with a schema registry; False."""
    return False


@pytest.fixture(scope="session")
def _kafka_cluster_of_session(
    kafka_cluster_nodes: int,
    kafka_cluster_settings: Mapping[str, Any],
    kafka_cluster_topics: Mapping[str, int] | Iterable[str],
    kafka_cluster_unmatched: Unmatched,
    kafka_cluster_registry: bool,
) -> Iterator[tuple[KafkaCluster, Snapshot]]:
    from kafkalog.testing import kafka_cluster as running

    with running(
        kafka_cluster_nodes, topics=kafka_cluster_topics, settings=kafka_cluster_settings,
        unmatched=kafka_cluster_unmatched, registry=kafka_cluster_registry,
    ) as cluster:  # fmt: skip
        yield cluster, cluster.snapshot()


@pytest.fixture
def kafka_cluster(_kafka_cluster_of_session: tuple[KafkaCluster, Snapshot]) -> Iterator[KafkaCluster]:
    """Cluster of the session. After the test it is whole, without faults, with the data that it had at the start."""
    cluster, start = _kafka_cluster_of_session
    yield cluster
    try:
        cluster.reset()
    finally:
        cluster.heal()
        cluster.restore(start)


@pytest.fixture
def async_kafka_cluster(kafka_cluster: KafkaCluster) -> AsyncCluster:
    """`kafka_cluster` for a test with asyncio."""
    from kafkalog.testing import AsyncCluster

    return AsyncCluster(kafka_cluster)


@pytest.fixture
def kafka_prefix(request: pytest.FixtureRequest) -> str:
    """Beginning of names of topics, groups and transactional ids that no other test or worker of this run uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    number = request.session.stash.setdefault(_PREFIXES, [0])
    number[0] += 1
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:_LONGEST_NAME]
    return f"{worker}-{number[0]}-{name}-"


_PREFIXES = pytest.StashKey[list[int]]()
