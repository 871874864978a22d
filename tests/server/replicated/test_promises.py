"""The promises of docs/replication.md, failure by failure, three processes; `test_trial.py` mixes them randomly."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
from tests.server.replicated.clients import LIBRDKAFKA
from tests.server.replicated.cluster import NODES, SETTINGS, Cluster, copies_of
from tests.server.replicated.proxy import Condition

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "replication.md"
WAIT_S = 120
COUNT = 20
HOLE = Condition("hole")


@pytest.fixture(params=[1, 2], ids=["min.insync.replicas=1", "min.insync.replicas=2"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes, of which the first one leads, and a topic `t` that all of them have."""
    with Cluster(tmp_path, 0, {**SETTINGS, "min.insync.replicas": request.param}) as made:
        start_cluster(made)
        yield made


def start_cluster(cluster: Cluster) -> None:
    """The first one leads, and all have a topic `t`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    wait_until(lambda: len(cluster.states()) == len(NODES))
    wait_until(lambda: not cluster.promote(1))
    admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)
    wait_until(lambda: all((cluster.data_of(node) / "t-0").is_dir() for node in NODES))
    wait_until(lambda: in_sync(cluster) == len(NODES))


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def in_sync(cluster: Cluster) -> int:
    return cluster.in_sync(["t"])


def write(
    cluster: Cluster, name: str, acks: int, timeout_s: float = WAIT_S, nodes: Collection[int] | None = None
) -> set[str]:
    """The values of those that were acknowledged, of twenty; the client begins at these nodes."""
    from confluent_kafka import Producer

    done: set[str] = set()
    producer = Producer({
        **LIBRDKAFKA, "bootstrap.servers": cluster.bootstrap_of(nodes), "acks": acks, "retry.backoff.ms": 20,
        "message.timeout.ms": int(timeout_s * 1000), "request.timeout.ms": 5000, "max.in.flight": 1,
    })  # fmt: skip

    def on_delivery(error: Any, record: Any) -> None:
        if error is None:
            done.add(record.value().decode())

    for number in range(COUNT):
        producer.produce("t", f"{name}{number}".encode(), partition=0, on_delivery=on_delivery)
    producer.flush(2 * timeout_s)
    return done


def write_by_new_clients(cluster: Cluster, name: str, nodes: Collection[int]) -> set[str]:
    """Write twenty values by one client after another, until one has all of them acknowledged.

    A client may ask any node that it has learned of, also one that leads an older term; it then stays there, since
    none of that node's errors asks for new metadata.
    """
    done: list[set[str]] = []

    def is_written() -> bool:
        done.append(write(cluster, name, -1, 5, nodes))
        return len(done[-1]) == COUNT

    wait_until(is_written)
    return set().union(*done)


def write_unacknowledged(cluster: Cluster, name: str, leader: int = 1) -> set[str]:
    """Write twenty unacknowledged values to the leader's log."""
    sent = write(cluster, name, 0)
    assert len(sent) == COUNT

    def there() -> set[str]:
        return {value for _, value in copies_of({leader: cluster.data_of(leader)}, {"t": 1})["t", 0][leader].records}

    wait_until(lambda: sent <= there())
    return sent


def read(cluster: Cluster, acknowledged: Collection[str], nodes: Collection[int] = NODES) -> list[str]:
    """All values, in their order, by one client after another, until one gets all of the acknowledged ones.

    A client may ask a node that has just started, or leads an older term, and its end is then too early.
    """
    found: list[list[str]] = []

    def is_read() -> bool:
        found.append(read_to_end(cluster.bootstrap_of(nodes)))
        return set(acknowledged) <= set(found[-1])

    wait_until(is_read)
    return found[-1]


def read_to_end(bootstrap: str) -> list[str]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({
        **LIBRDKAFKA, "bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True,
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[str] = []
    end = time.monotonic() + WAIT_S
    try:
        while True:
            assert time.monotonic() < end
            for one in consumer.consume(500, 0.05):
                if one.error() is None:
                    found.append(one.value().decode())
                elif one.error().code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()


def until_same(cluster: Cluster) -> None:
    """All are in sync, have a last record, and the same bytes when they have stopped."""
    wait_until(lambda: in_sync(cluster) == len(NODES))
    assert len(write(cluster, "last", -1)) == COUNT
    assert [cluster.stop(node) for node in NODES] == [0, 0, 0]
    copies = copies_of({node: cluster.data_of(node) for node in NODES}, {"t": 1})["t", 0]
    assert len({copy.batches for copy in copies.values()}) == 1


@pytest.mark.slow
@pytest.mark.crash
def test_a_follower_that_dies_takes_nothing(cluster: Cluster) -> None:
    cluster.kill(3)
    acknowledged = [write(cluster, name, acks) for name, acks in (("none", 0), ("one", 1), ("all", -1))]
    assert [len(one) for one in acknowledged] == [COUNT] * 3
    wanted = [f"{name}{number}" for name in ("none", "one", "all") for number in range(COUNT)]
    assert read(cluster, wanted) == wanted
    cluster.start(3)
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_a_leader_that_comes_back_leads_on_and_has_what_was_acknowledged(cluster: Cluster) -> None:
    acknowledged = write(cluster, "one", 1) | write(cluster, "all", -1) | write_unacknowledged(cluster, "none")
    assert len(acknowledged) == 3 * COUNT
    cluster.kill(1)
    cluster.start(1)
    assert len(write(cluster, "later", -1)) == COUNT
    assert cluster.leader() == 1
    read(cluster, acknowledged)
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_with_the_leader_goes_what_it_had_alone_and_nothing_that_all_acknowledged(cluster: Cluster) -> None:
    safe = write(cluster, "all", -1)
    assert len(safe) == COUNT
    for follower in (2, 3):
        cluster.proxy.set(follower, 1, HOLE)
    alone = write(cluster, "one", 1) | write(cluster, "none", 0)
    assert len(alone) == 2 * COUNT
    assert write(cluster, "alone", -1, 3) == set()
    cluster.kill(1)
    wait_until(lambda: not cluster.promote(2))
    cluster.proxy.heal()
    later = write(cluster, "later", -1)
    assert len(later) == COUNT
    assert set(read(cluster, safe | later)) & (safe | alone) == safe
    cluster.start(1)
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_a_leader_that_is_cut_off_acknowledges_nothing_by_all_and_follows_the_next(cluster: Cluster) -> None:
    safe = write(cluster, "all", -1)
    for other in (2, 3):
        cluster.proxy.set(other, 1, HOLE)
        cluster.proxy.set(1, other, HOLE)
    alone = write(cluster, "one", 1) | write_unacknowledged(cluster, "none")
    assert len(alone) == 2 * COUNT
    wait_until(lambda: not cluster.promote(3))
    later = write_by_new_clients(cluster, "later", (2, 3))
    assert set(read(cluster, safe | later, (2, 3))) & (safe | alone) == safe
    cluster.proxy.heal()
    wait_until(lambda: set(cluster.states().values()) == {cluster.states()[3]})
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_without_a_majority_nothing_is_acknowledged_by_all_and_nobody_is_promoted(cluster: Cluster) -> None:
    safe = write(cluster, "all", -1)
    cluster.kill(2)
    cluster.kill(3)
    safe |= write(cluster, "one", 1) | write_unacknowledged(cluster, "none")
    assert len(safe) == 3 * COUNT
    assert write(cluster, "refused", -1, 3) == set()
    cluster.kill(1)
    cluster.start(3)
    wait_until(lambda: 3 in cluster.states())
    assert "ElectionFailed" in cluster.promote(3)
    cluster.start(1)
    cluster.start(2)
    assert len(write(cluster, "later", -1)) == COUNT
    read(cluster, safe)
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_who_is_forced_leads_with_what_it_has(cluster: Cluster) -> None:
    safe = write(cluster, "all", -1)
    for other in (1, 2):
        cluster.proxy.set(3, other, HOLE)
    behind = write(cluster, "two of three", -1) | write(cluster, "its leader", 1)
    behind |= write_unacknowledged(cluster, "none")
    assert len(behind) == 3 * COUNT
    cluster.kill(1)
    cluster.kill(2)
    assert cluster.promote(3, is_forced=True) == ""
    assert len(write(cluster, "one", 1)) == COUNT
    cluster.proxy.heal()
    cluster.start(1)
    cluster.start(2)
    later = write(cluster, "later", -1)
    assert len(later) == COUNT
    assert set(read(cluster, safe | later)) & (safe | behind) == safe
    until_same(cluster)


@pytest.mark.slow
@pytest.mark.crash
def test_a_slow_follower_leaves_the_replicas_in_sync_and_comes_back(cluster: Cluster) -> None:
    cluster.pause(2)
    acknowledged = write(cluster, "all", -1) | write(cluster, "one", 1) | write_unacknowledged(cluster, "none")
    assert len(acknowledged) == 3 * COUNT
    wait_until(lambda: in_sync(cluster) == 2)
    cluster.heal()
    wait_until(lambda: in_sync(cluster) == 3)
    read(cluster, acknowledged)
    until_same(cluster)


def test_each_cell_names_a_test() -> None:
    """The document is honest: the tests that it names are there, and every cell of the table of promises has one."""
    text = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named
    for path, test in named:
        there = (ROOT / path).read_text(encoding="utf-8")
        assert not test or re.search(rf"^(?:async )?def {test}\b", there, re.MULTILINE), f"{path}::{test}"
    table = text.partition("## The table of promises")[2].partition("\n## ")[0]
    shown: dict[str, str] = dict(re.findall(r"^(\d+)\. `([\w/.:]+)`", table, re.MULTILINE))
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    for row in rows:
        assert len(row) == 4, row
        for cell in row[1:]:
            numbers = [number for group in re.findall(r"\[([\d, ]+)\]", cell) for number in group.split(", ")]
            assert numbers and all(number in shown for number in numbers), cell
