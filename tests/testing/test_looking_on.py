"""Views of a server in a test: requests, lags, contents."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog.errors import IllegalArgument
from kafkalog.testing import (
    ConditionNotMet,
    FaultNeverMatchedWarning,
    KafkaServer,
    Recorder,
    kafka_cluster,
    kafka_server,
)
from tests.testing.calls import Link
from tests.testing.test_faults import fetched, produced


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(topics={"orders": 2, "lagging": 2}) as found:
        yield found


def test_requests_of_a_client_are_recorded(server: KafkaServer) -> None:
    began = time.monotonic()
    with server.record() as seen, Link(server.bootstrap, "a client") as link:
        link.call("produce", 9, produced(partition=1))
        seen.mark("read now")
        link.call("fetch", 11, fetched("orders", 0, 1))
        link.call("heartbeat", 3, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None})
    assert [one.api for one in seen] == ["Produce", "read now", "Fetch", "Heartbeat"]
    produce, _, fetch, heartbeat = seen.requests
    assert produce.topics == {"orders": {1: -1}} and fetch.topics == {"orders": {0: 0, 1: 0}}
    assert (produce.client_id, produce.version, produce.node, heartbeat.groups) == ("a client", 9, 1, ("g",))
    assert began < produce.time < fetch.time < time.monotonic()
    assert (seen.count("Produce"), seen.count("Produce", partition=0), seen.count("Fetch", partition=0)) == (1, 0, 1)
    with Link(server.bootstrap) as link:
        link.call("produce", 9, produced())
    assert len(seen) == 4


def test_asserted_counts_name_what_was_seen(server: KafkaServer) -> None:
    with server.record() as seen, Link(server.bootstrap, "a client") as link:
        for _ in range(2):
            link.call("fetch", 11, fetched("orders", 0))
        seen.assert_count("Fetch", 2)
        seen.assert_count("Fetch", 2, topic="orders", client_id="a client")
        seen.assert_count("Fetch", 0, topic="other")
        with pytest.raises(AssertionError, match="2 requests Fetch topic='orders', not 3; seen: Fetch of a client"):
            seen.assert_count("Fetch", 3, topic="orders")


@pytest.mark.parametrize(
    ("events", "is_right"),
    [
        ("cp", True),
        ("cpcp", True),
        ("ccpp", True),
        ("c", True),
        ("pc", False),
        ("cpp", False),
        ("cppc", False),
        ("", False),
        ("x", False),
    ],
)
def test_asserted_order(server: KafkaServer, events: str, is_right: bool) -> None:
    with server.record() as seen:
        for one in events:
            seen.mark({"c": "committed", "p": "processed"}.get(one, one))
        assert is_right == does_not_raise(seen)


def does_not_raise(seen: Recorder) -> bool:
    try:
        seen.assert_order("committed", "processed")
    except ConditionNotMet:
        return False
    return True


def test_lag_of_a_group(server: KafkaServer) -> None:
    assert server.lag("g") is None
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(10):
        producer.produce("lagging", str(number), partition=number % 2)
    producer.flush(120)
    server.wait_for(topic="lagging", records=10)
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 5), TopicPartition("lagging", 1, 2)], asynchronous=False)
    assert server.lag("g") == server.lag("g", "lagging") == 3
    assert server.lag("g", "orders") is None
    with pytest.raises(ConditionNotMet, match="after 0.01 s group g has a lag of 3"):
        server.wait_for(group="g", lag=2, timeout_s=0.01)
    consumer.commit(offsets=[TopicPartition("lagging", 1, 5)], asynchronous=False)
    server.wait_for(group="g", lag=0, until=lambda: True)
    consumer.close()


@pytest.mark.parametrize("given", [{}, {"group": "g"}, {"lag": 0}, {"records": 1}, {"topic": "orders"}])
def test_nothing_to_wait_for_is_an_error(server: KafkaServer, given: dict[str, object]) -> None:
    with pytest.raises(IllegalArgument):
        server.wait_for(**given)  # type: ignore[arg-type]


def test_contents_as_lists_and_frames() -> None:
    with kafka_cluster(nodes=1, topics={"orders": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(4):
            producer.produce("orders", str(number), key=f"k{number}", partition=number % 2)
        producer.flush(120)
        assert [record.value for record in cluster.records("orders")] == [b"0", b"2", b"1", b"3"]
        assert [record.key for record in cluster.records("orders", 1)] == [b"k1", b"k3"]
        assert cluster.table("orders", ["value"])["value"].to_pylist() == [b"0", b"2", b"1", b"3"]
        assert cluster.frame("orders")["key"].tolist() == [b"k0", b"k2", b"k1", b"k3"]
        seen = cluster.record()
        seen.mark("last")
        with Link(cluster.bootstrap) as link:
            link.call("fetch", 11, fetched("orders", 0))
    assert [one.api for one in seen] == ["last", "Fetch"]  # also after the block that ended the recording


@pytest.mark.parametrize("version", [2, 4])
def test_search_for_a_coordinator_names_groups_or_transactions(server: KafkaServer, version: int) -> None:
    names = ({"key": "t"} if version < 4 else {"coordinator_keys": ["t"]}) | {"key_type": 1}
    wrong = server.fault("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", group="t")
    fault = server.fault("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", transactional_id="t")
    with server.record() as seen, Link(server.bootstrap) as link:
        assert "error_code=15" in repr(link.call("find_coordinator", version, names))
    assert (fault.fired, wrong.matched, seen.requests[0].transactional_ids) == (1, 0, ("t",))
    with pytest.warns(FaultNeverMatchedWarning):
        server.reset()
