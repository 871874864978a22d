"""The clock that a test moves: what a broker forgets after days is forgotten at once."""

from __future__ import annotations

from confluent_kafka import Producer

from kafkalog.testing import kafka_server
from tests.testing.calls import Link


def test_producers_and_transactional_ids_expire_with_the_clock() -> None:
    with kafka_server(topics="orders") as server, Link(server.bootstrap) as link:

        def known() -> tuple[int, list[str]]:
            rows = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
            (partition,) = link.call("describe_producers", 0, rows).topics[0].partitions
            filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
            listed = link.call("list_transactions", 1, filters).transaction_states
            return len(partition.active_producers), [one.transactional_id for one in listed]

        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "shop"})
        producer.init_transactions(120)
        producer.begin_transaction()
        producer.produce("orders", b"a value")
        producer.commit_transaction(120)
        assert known() == (1, ["shop"])
        server.advance(seconds=23 * 3600)
        assert known() == (1, ["shop"])
        server.advance(seconds=2 * 3600)
        server.wait_for(until=lambda: known() == (0, ["shop"]), timeout_s=120)
        server.advance(seconds=8 * 86_400)
        server.wait_for(until=lambda: known() == (0, []), timeout_s=120)
