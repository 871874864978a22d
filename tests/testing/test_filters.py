"""Filters of faults: names with brackets, share sessions, nodes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from kafkalog.errors import IllegalArgument
from kafkalog.testing import KafkaCluster, KafkaServer, kafka_cluster, kafka_server
from tests.testing.calls import Link
from tests.testing.test_faults import METADATA, code_of, produced


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(nodes=3, topics="orders", unmatched="ignore") as found:
        yield found


def shared(server: KafkaServer) -> Iterator[int]:
    """The error codes of share fetches of one session: the first names a partition, later ones do not."""
    group = {"group_id": "g", "member_id": str(uuid4())}
    limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 1, "batch_size": 1}
    with Link(server.bootstrap) as link:
        topic_id = link.call("metadata", 12, METADATA).topics[0].topic_id
        beat = {"member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["orders"]}
        assert link.call("share_group_heartbeat", 1, group | beat).error_code == 0
        rows = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
        for epoch in range(3):
            answer = link.call("share_fetch", 1, group | limits | {
                "share_session_epoch": epoch, "topics": [] if epoch else rows, "forgotten_topics_data": [],
            })  # fmt: skip
            yield int(answer.error_code)


def test_share_fetches_are_matched_by_the_sessions_topics() -> None:
    with kafka_server(topics={"orders": 1, "other": 1}, unmatched="ignore") as server:
        other = server.fault("ShareFetch", delay_ms=1, topic="other")
        fault = server.fault("ShareFetch", delay_ms=1, topic="orders", partition=0)
        assert list(shared(server)) == [0, 0, 0]
        assert (fault.fired, other.matched) == (3, 0)
        with server.record() as seen:
            assert list(shared(server)) == [0, 0, 0]
        seen.assert_count("ShareFetch", 3, topic="orders", partition=0)


@pytest.mark.parametrize(("pattern", "is_hit"), [("app[1]", True), ("app[?]", True), ("[ab]*", False), ("app1", False)])
def test_brackets_stand_for_themselves(cluster: KafkaCluster, pattern: str, is_hit: bool) -> None:
    with cluster.fault("Produce", error="POLICY_VIOLATION", client_id=pattern) as fault:
        with Link(cluster.address(cluster.leader), "app[1]") as link:
            assert (code_of(link.call("produce", 9, produced())) != 0) == is_hit
        assert fault.matched == is_hit


def test_unknown_node_is_an_error(cluster: KafkaCluster) -> None:
    with pytest.raises(IllegalArgument, match="there is no node 4"):
        cluster.fault("Produce", close=True, nodes=[4])
    with pytest.raises(IllegalArgument, match="there is no node 4"):
        cluster.older_versions({"Produce": 8}, nodes=[4])


def test_names_from_an_iterator_are_all_matched_and_shown(cluster: KafkaCluster) -> None:
    with cluster.fault((name for name in ("Produce", "Fetch")), close=True) as fault:
        assert "Produce+Fetch" in repr(fault)
        with Link(cluster.address(cluster.leader)) as link:
            assert link.call("produce", 9, produced()) is None


def test_disks_that_are_full_stay_so_in_a_restart_each_by_itself(cluster: KafkaCluster) -> None:
    leader = cluster.leader
    others = [node for node in cluster.nodes if node != leader]
    cluster.full_disk(nodes=cluster.nodes)
    cluster.full_disk(False, nodes=others)
    cluster.refuse_connections(nodes=[others[0]])
    cluster.refuse_connections(nodes=[others[1]])
    commands = {node: [name for name, _ in cluster._commands_for(node)] for node in cluster.nodes}
    assert commands == {leader: ["full_disk"], others[0]: ["refuse"], others[1]: ["refuse"]}
    cluster.reset()
    assert not any(map(cluster._commands_for, cluster.nodes))


def test_node_that_another_cut_separates_is_not_waited_for(cluster: KafkaCluster) -> None:
    leader, cut, other = sorted(cluster.nodes, key=lambda node: (node != cluster.leader, node))
    with cluster.cut_off(cut):
        with cluster.cut_off(cut, silent=True):
            pass
        assert cluster._silent() == [cut]
        assert cluster.move_leader(other) == other
    assert not cluster._silent()
