"""The schema registry of a cluster: one content at all nodes, which survives its leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")
for name in ("confluent_kafka.schema_registry", "fastavro"):
    pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)

from kafkalog.errors import IllegalState  # noqa: E402
from kafkalog.testing import AsyncCluster, KafkaCluster, async_kafka_cluster, kafka_cluster  # noqa: E402
from tests.server.registry.calls import Rest, body, record  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*authlib.*", "ignore:.*httpx.*")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(nodes=3, registry=True) as found:
        yield found


def context(topic: str) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


def test_schemas_survive_the_leader(cluster: KafkaCluster) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    settings = {"url": cluster.registry_url, "max.retries": 1, "retries.wait.ms": 10}
    client = SchemaRegistryClient(settings)
    data = AvroSerializer(client, json.dumps(record(id="long")))({"id": 7}, context("orders"))
    first = cluster.leader
    cluster.kill(first)
    later = SchemaRegistryClient(settings)
    assert AvroDeserializer(later)(data, context("orders")) == {"id": 7}
    assert later.get_subjects() == ["orders-value"]
    cluster.start(first)
    cluster.move_leader(first)
    assert Rest(cluster.registry_url_of(first)).ok("GET", "/subjects") == ["orders-value"]


def test_every_node_registers_and_reads(cluster: KafkaCluster) -> None:
    nodes = {one: Rest(cluster.registry_url_of(one)) for one in cluster.nodes}
    assert len({one.url for one in nodes.values()}) == 3
    numbers = [one.register(f"of-{node}", record(f"R{node}", id="long")) for node, one in nodes.items()]
    assert len(set(numbers)) == 3
    for one in nodes.values():
        assert {"of-1", "of-2", "of-3"} <= set(one.ok("GET", "/subjects"))
        assert one.code("GET", "/subjects/none/versions") == 40401
        assert one.code("POST", "/subjects/bad/versions", {"schema": "{"}) == 42201


def test_a_snapshot_has_the_schemas(cluster: KafkaCluster) -> None:
    follower = Rest(cluster.registry_url_of(next(one for one in cluster.nodes if one != cluster.leader)))
    start = cluster.snapshot()
    follower.register("later", record("Later", id="long"))
    cluster.restore(start)
    assert "later" not in follower.ok("GET", "/subjects")


def test_without_a_leader_there_is_an_error(cluster: KafkaCluster) -> None:
    leader = cluster.leader
    others = [one for one in cluster.nodes if one != leader]
    rest = Rest(cluster.registry_url_of(others[0]))
    cluster.kill(leader, elect=False)
    assert rest.code("GET", "/subjects") in (50003, 50004)
    cluster.heal()


def test_a_leader_without_followers_gives_no_number(cluster: KafkaCluster) -> None:
    first = cluster.leader
    rest = Rest(cluster.registry_url_of(first))
    rest.register("kept", record("Kept", id="long"))
    with cluster.cut_off(first, silent=True):
        schema = body(record("Lost", id="long"))
        codes = [rest.code("POST", "/subjects/lost/versions", schema) for _ in range(2)]  # the second finds the first
        assert set(codes) <= {50001, 50003, 50004}
    cluster.heal()


def test_for_asyncio() -> None:
    async def use() -> tuple[list[str], AsyncCluster]:
        async with async_kafka_cluster(nodes=1, registry=True) as cluster:
            return await asyncio.to_thread(Rest(cluster.registry_url).ok, "GET", "/subjects"), cluster

    found, cluster = asyncio.run(use())
    assert found == [] and "," not in cluster.registry_url


def test_a_cluster_without_one_says_how_to_have_it() -> None:
    with kafka_cluster(nodes=1) as cluster, pytest.raises(IllegalState, match=r"kafka_cluster\(registry=True\)"):
        cluster.registry_url  # noqa: B018
