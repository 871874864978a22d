"""Snapshots: the data of all nodes as it was, behind connections that stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalog.errors import IllegalState, KafkalogError
from kafkalog.testing import KafkaCluster, KafkaServer, kafka_cluster, kafka_server
from kafkalog.testing.inside.snapshots import make_equal
from tests.testing.calls import Link
from tests.testing.test_faults import METADATA, code_of, produced


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(topics={"orders": 2}) as found:
        yield found


def commit(server: KafkaServer | KafkaCluster, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def test_records_topics_and_groups_are_as_they_were(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced(count=3))) == 0
        commit(server, 1)
        before, id_before = server.snapshot(), link.call("metadata", 12, METADATA).topics[0].topic_id
        for _ in range(2):
            assert code_of(link.call("produce", 9, produced(count=5))) == 0
            commit(server, 4)
            server.create_topics({"another": 1})
            server.delete_topics(["orders"])
            assert server.lag("g") is None
            server.restore(before)
            assert (server.record_count("orders"), server.record_count("another"), server.lag("g")) == (3, 0, 2)
            assert len(server.records("orders")) == 3
            assert not list(server.directory.glob("another-*"))
            assert link.call("metadata", 12, METADATA).topics[0].topic_id == id_before  # the connection is still open
        assert code_of(link.call("produce", 9, produced())) == 0
        assert server.record_count("orders") == 4


def test_request_in_progress_waits_for_the_copy(server: KafkaServer) -> None:
    control = server._control
    assert control is not None
    with Link(server.bootstrap) as link:
        control.call("close_logs")
        link.send("metadata", 8, METADATA)
        link.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            link.sock.recv(1)
        with pytest.raises(KafkalogError, match="closed already"):
            control.call("close_logs")
        control.call("open_logs")
        link.sock.settimeout(20)
        assert link.receive()


def test_faults_and_restarts_go_on_after_a_restore(server: KafkaServer) -> None:
    before = server.snapshot()
    with server.fault("Produce", error=7) as fault, Link(server.bootstrap) as link:
        server.restore(before)
        assert code_of(link.call("produce", 9, produced())) == 7
        assert fault.matched == 1
    count = server.record_count("orders")
    server.kill()
    server.start()
    assert server.record_count("orders") == count


def test_cluster_is_as_it_was_and_has_its_leader() -> None:
    with kafka_cluster(nodes=3, topics={"orders": 1}) as cluster:
        first = cluster.leader
        with Link(cluster.address(first)) as link:
            assert code_of(link.call("produce", 9, produced(count=3))) == 0
            before = cluster.snapshot()
            assert cluster.leader == first
            assert code_of(link.call("produce", 9, produced(count=2))) == 0
            cluster.move_leader()
            cluster.restore(before)
            assert (cluster.leader, cluster.record_count("orders")) == (first, 3)
            assert code_of(link.call("produce", 9, produced())) == 0
        cluster.move_leader()
        cluster.wait_for(topic="orders", records=4)  # no node has lost a record
        cluster.kill(cluster.leader)
        cluster.heal()
        cluster.restore(before)
        assert (cluster.leader, cluster.record_count("orders")) == (first, 3)
        cluster.kill(first)
        with pytest.raises(IllegalState, match="a node does not run"):
            cluster.restore(before)


def test_directory_becomes_a_copy_without_what_is_equal(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name, text in (("same", "1"), ("changed", "2"), ("new/inner", "3"), ("kept", "4")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    make_equal(str(source), str(target), frozenset({"kept"}))
    inode = (target / "same").stat().st_ino
    (target / "changed").write_text("0000")
    (target / "kept").write_text("mine")
    (target / "gone").mkdir()
    (target / "gone" / "inner").write_text("x")
    make_equal(str(source), str(target), frozenset({"kept"}))
    texts = {str(one.relative_to(target)): one.read_text() for one in target.rglob("*") if one.is_file()}
    assert texts == {"same": "1", "changed": "2", "new/inner": "3", "kept": "mine"}
    assert (target / "same").stat().st_ino == inode


def test_server_that_cannot_close_its_logs_goes_on() -> None:
    settings = {"kafkalog.http.listener": "127.0.0.1:0"}
    with kafka_server(topics={"orders": 2}, settings=settings) as server, Link(server.bootstrap) as link:
        with pytest.raises(KafkalogError, match=r"kafkalog\.http\.listener has no snapshots.*leave the setting out"):
            server.snapshot()
        assert code_of(link.call("produce", 9, produced())) == 0
