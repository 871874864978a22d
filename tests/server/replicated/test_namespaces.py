"""The table of promises where nodes have networks of their own, and packets are lost without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
from tests.server.replicated.cluster import NODES
from tests.server.replicated.namespaces import NamespacedCluster, why_not
from tests.server.replicated.test_promises import (
    COUNT,
    read,
    start_cluster,
    until_same,
    wait_until,
    write,
    write_by_new_clients,
)

_WHY_NOT = why_not()
pytestmark = [
    pytest.mark.slow, pytest.mark.crash,
    pytest.mark.skipif(_WHY_NOT is not None, reason=f"no network namespaces here: {_WHY_NOT}"),
]  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NamespacedCluster]:
    """Three nodes, of which the first one leads, and a topic `t` that all of them have."""
    with NamespacedCluster(tmp_path) as made:
        start_cluster(made)
        yield made


def test_a_leader_whose_cable_is_pulled_takes_nothing_that_all_acknowledged(cluster: NamespacedCluster) -> None:
    safe = write(cluster, "all", -1)
    assert len(safe) == COUNT
    cluster.unplug(1)
    wait_until(lambda: not cluster.promote(2))
    later = write(cluster, "later", -1, nodes=(2, 3))
    assert len(later) == COUNT
    cluster.plug(1)
    wait_until(lambda: set(cluster.states().values()) == {cluster.states()[2]} and len(cluster.states()) == len(NODES))
    assert safe | later == set(read(cluster, safe | later))
    until_same(cluster)


def test_a_leader_that_only_clients_reach_acknowledges_nothing_by_all(cluster: NamespacedCluster) -> None:
    safe = write(cluster, "all", -1)
    for other in (2, 3):
        cluster.cut(1, other)
    alone = write(cluster, "one", 1)
    assert len(alone) == COUNT
    assert write(cluster, "alone", -1, 4) == set()
    wait_until(lambda: not cluster.promote(3))
    later = write_by_new_clients(cluster, "later", (2, 3))
    for other in (2, 3):
        cluster.mend(1, other)
    wait_until(lambda: set(cluster.states().values()) == {cluster.states()[3]})
    assert set(read(cluster, safe | later)) & (safe | alone | later) == safe | later
    until_same(cluster)


def test_a_follower_that_hears_and_is_not_heard_is_in_sync_again_later(cluster: NamespacedCluster) -> None:
    cluster.cut(3, 1)
    acknowledged = write(cluster, "all", -1)
    assert len(acknowledged) == COUNT
    wait_until(lambda: cluster.in_sync(["t"]) == 2)
    cluster.mend(3, 1)
    read(cluster, acknowledged)
    until_same(cluster)
