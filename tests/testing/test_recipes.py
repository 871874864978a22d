"""The recipes of docs/testing.md, each with two client libraries."""

from __future__ import annotations

import gc
import threading
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest

from kafkalog import values
from kafkalog.testing import KafkaCluster, KafkaServer, kafka_cluster, kafka_server
from kafkalog.testing.controlled import Snapshot
from tests.server.registry.calls import Rest, body, record
from tests.testing.clients import CONSUMERS, TRANSACTORS, Consuming, Transacting

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own calls
VALUES = [b"order %d" % number for number in range(20)]


@pytest.fixture(autouse=True)
def _without_sockets_of_clients() -> Iterator[None]:
    """Free the sockets that a client leaves open where its connection was refused."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[KafkaServer, Snapshot]]:
    settings = {"auto.create.topics.enable": False}
    with kafka_server(topics={"orders": 2, "orders.dead": 1}, settings=settings, unmatched="error") as found:
        yield found, found.snapshot()


@pytest.fixture
def server(running: tuple[KafkaServer, Snapshot]) -> Iterator[KafkaServer]:
    """The server of this file, without records and groups."""
    found, empty = running
    yield found
    found.reset()
    found.restore(empty)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(nodes=3, unmatched="error") as found:
        yield found


@pytest.fixture(params=CONSUMERS.values(), ids=CONSUMERS)
def client(request: pytest.FixtureRequest) -> Consuming:
    found: Consuming = request.param
    return found


def test_rebalance_storm(server: KafkaServer, client: Consuming) -> None:
    """Each record is processed, though the group rebalances again and again.

    Heartbeats that are answered before the member joins again are of one rebalance, so there may be fewer joins.
    """
    client.produce(server.bootstrap, "orders", VALUES)
    seen: Counter[bytes] = Counter()
    with (
        server.record() as requests,
        server.fault("Heartbeat", error="REBALANCE_IN_PROGRESS", group="g", times=3) as storm,
    ):
        client.consume(
            server.bootstrap, "orders", "g", lambda value: seen.update([value]),
            lambda: storm.fired == 3 and requests.count("JoinGroup", group="g") > 1 and server.lag("g") == 0,
        )  # fmt: skip
    assert set(seen) == set(VALUES)


def test_poison_pill(server: KafkaServer, client: Consuming) -> None:
    """A record that cannot be processed goes to another topic, and the others are processed."""
    client.produce(server.bootstrap, "orders", [VALUES[0], b"\xff not an order", *VALUES[1:]])
    processed = []

    def process(value: bytes) -> None:
        try:
            processed.append(value.decode())
        except UnicodeDecodeError:
            client.produce(server.bootstrap, "orders.dead", [value])

    client.consume(server.bootstrap, "orders", "g", process, lambda: server.lag("g") == 0)
    assert sorted(processed) == sorted(value.decode() for value in VALUES)
    assert [record.value for record in server.records("orders.dead")] == [b"\xff not an order"]


@pytest.mark.parametrize("client", TRANSACTORS.values(), ids=TRANSACTORS)
def test_exactly_once_under_failover(cluster: KafkaCluster, client: Transacting) -> None:
    """A transaction whose coordinator dies, and whose end is answered too late, is there once."""
    topic = f"orders-{type(client).__name__}"
    cluster.create_topics({topic: 1})
    cluster.heal()
    with cluster.fault("EndTxn", close=True, applied=True, times=1) as lost_answer:
        client.transact(cluster.bootstrap, topic, VALUES, lambda: cluster.kill(cluster.leader))
    assert lost_answer.fired == 1
    assert client.read_committed(cluster.bootstrap, topic, len(VALUES)) == VALUES
    assert [record.value for record in cluster.records(topic)] == VALUES
    cluster.heal()


def test_slow_consumer(server: KafkaServer, client: Consuming) -> None:
    """One group lags while its fetches are late, another one does not, and the first catches up."""
    client.produce(server.bootstrap, "orders", VALUES)
    late = server.fault("Fetch", silent=True, client_id="slow")
    slow: list[bytes] = []
    thread = threading.Thread(target=client.consume, args=(
        server.bootstrap, "orders", "slow", slow.append, lambda: not late.is_active and server.lag("slow") == 0,
    ), kwargs={"client_id": "slow"})  # fmt: skip
    thread.start()
    try:
        quick: list[bytes] = []
        client.consume(server.bootstrap, "orders", "quick", quick.append, lambda: server.lag("quick") == 0)
        server.wait_for(until=lambda: late.fired)
        assert (sorted(quick), slow, server.lag("slow")) == (sorted(VALUES), [], None)
    finally:
        late.remove()
        thread.join()
    assert set(slow) == set(VALUES)


def test_schema_evolution(client: Consuming) -> None:
    """Old and new records are read with a schema that got a field; a schema that could not read them is refused."""
    pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
    schemas = [record(id="long"), record(id="long", paid=("boolean", False))]
    with kafka_server(topics={"orders": 1}, registry=True) as server:
        rest = Rest(server.registry_url)
        old, new = (rest.register("orders-value", schema) for schema in schemas)
        assert rest.code("POST", "/subjects/orders-value/versions", body(record(id="string"))) == 409
        framed = [b"\0" + number.to_bytes(4, "big") + data for number, data in ((old, b"\2"), (new, b"\4\1"))]
        client.produce(server.bootstrap, "orders", framed)
        seen: list[bytes] = []
        client.consume(server.bootstrap, "orders", "g", seen.append, lambda: server.lag("g") == 0)
        decoder = values.decoder("avro", registry=server.registry_url, subject="orders-value")
        assert decoder.decode(pa.array(seen)).values.to_pylist() == [
            {"id": 1, "paid": False}, {"id": 2, "paid": True},
        ]  # fmt: skip
