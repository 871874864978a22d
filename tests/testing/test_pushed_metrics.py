"""A server or cluster for tests receives the metrics of clients (KIP-714)."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing import kafka_cluster, kafka_server

NAME = b"org.apache.kafka.producer.node.request.latency.avg"


def test_a_metric_of_librdkafka_is_seen_by_name_at_every_node() -> None:
    with kafka_cluster(nodes=3, topics="t", telemetry=True) as cluster:
        cluster.subscribe_metrics("org.apache.kafka.producer.", interval_ms=100, match="client_id=mine")
        clients = [
            Producer({"bootstrap.servers": cluster.address(node), "client.id": client, "enable.metrics.push": True})
            for node in cluster.nodes for client in ("mine", "other")
        ]  # fmt: skip
        for one in clients:
            one.produce("t", b"a value")
            assert one.flush(120) == 0
        pushed = []

        def is_seen() -> bool:
            pushed[:] = cluster.pushed_metrics()
            is_named = any(NAME in one.metrics for one in pushed)
            return is_named and len({one.client_instance_id for one in pushed}) == 3

        cluster.wait_for(until=is_seen, timeout_s=120)
        del one, clients
    assert {one.client_id for one in pushed} == {"mine"}
    assert pushed[0].push_interval_ms == 100 and "rdkafka" in pushed[0].software_version


def test_the_receiver_stays_when_the_data_is_restored() -> None:
    with kafka_server(topics="t", telemetry=True) as server, server.record() as seen:
        server.subscribe_metrics(interval_ms=1000)
        server.restore(server.snapshot())
        producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "mine", "enable.metrics.push": True})
        producer.produce("t", b"a value")
        assert producer.flush(120) == 0
        server.wait_for(until=lambda: server.pushed_metrics("mine"), timeout_s=120)
        assert server.pushed_metrics("another") == []
        assert seen.of("GetTelemetrySubscriptions") and seen.of("PushTelemetry")
        producer.produce("t", b"another value")  # an answer behind that of the push, without which the client ends mute
        assert producer.flush(120) == 0
        del producer
        server.wait_for(until=lambda: server.pushed_metrics("mine")[-1].is_terminating, timeout_s=120)


def test_who_did_not_ask_for_it_is_told_so() -> None:
    with kafka_server() as server:
        with pytest.raises(IllegalState, match="telemetry=True"):
            server.subscribe_metrics()
        with pytest.raises(IllegalState, match="telemetry=True"):
            server.pushed_metrics()
    with pytest.raises(IllegalArgument, match="one worker"), kafka_server(workers=2, telemetry=True):
        pass
    with kafka_server(telemetry=True) as server, pytest.raises(KafkalogError, match=r"interval\.ms"):
        server.subscribe_metrics(interval_ms=1)
