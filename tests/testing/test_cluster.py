"""A cluster of nodes that a test starts, stops, kills, pauses and cuts off."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalog.errors import ConfigError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing import KafkaCluster, ServerDidNotStart, async_kafka_cluster, kafka_cluster
from tests.server.test_testing import is_alive, run_python


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """One for all tests of this file, each of which leaves it with three nodes that run."""
    with kafka_cluster(nodes=3, topics={"orders": 3}) as found:
        yield found


@pytest.fixture(autouse=True)
def _whole_afterwards(cluster: KafkaCluster) -> Iterator[None]:
    yield
    assert cluster.running == cluster.nodes == (1, 2, 3)


def produce(cluster: KafkaCluster, *values: str, topic: str = "orders", by: str = "", wait_s: float = 30) -> int:
    """Produces with acks=all to partition 0; how many records are not acknowledged in time."""
    bootstrap = by or cluster.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": wait_s * 1000})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and errors.append(error))
    producer.flush(wait_s + 10)
    return len(errors)


def values(cluster: KafkaCluster, topic: str = "orders") -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(topic, 0)]


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_node_leads_and_all_serve(cluster: KafkaCluster) -> None:
    assert cluster.leader in cluster.nodes
    assert produce(cluster, "first") == 0
    assert "first" in values(cluster)
    for node in cluster.nodes:
        host, _, port = cluster.address(node).rpartition(":")
        socket.create_connection((host, int(port)), 10).close()


def test_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: KafkaCluster) -> None:
    before = cluster.leader
    assert produce(cluster, "kept") == 0
    pid = cluster.pid(before)
    cluster.kill(before)
    assert not is_alive(pid)
    assert cluster.leader != before and before not in cluster.running
    assert produce(cluster, "by another") == 0
    assert values(cluster)[-2:] == ["kept", "by another"]
    cluster.start(before)


def test_without_election_nobody_leads_until_asked(cluster: KafkaCluster) -> None:
    before = cluster.leader
    cluster.stop(before, elect=False)
    with pytest.raises(IllegalState, match="no node leads"):
        _ = cluster.leader
    chosen = next(one for one in cluster.running)
    with pytest.raises(IllegalState, match="no node leads"):
        cluster.move_leader(chosen)
    cluster.start()
    wait_until(lambda: leads(cluster))


def leads(cluster: KafkaCluster) -> bool:
    try:
        return cluster.leader > 0
    except IllegalState:
        return False


def test_paused_node_answers_nothing_until_resumed(cluster: KafkaCluster) -> None:
    before = cluster.leader
    cluster.pause(before)
    assert Path(f"/proc/{cluster.pid(before)}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert cluster.leader != before
    with pytest.raises(IllegalState, match="is paused"):
        cluster.stop(before)
    cluster.resume(before)
    wait_until(lambda: not cluster._states()[before]["leads"])


def test_leader_moves_to_the_next_node_or_a_chosen_one(cluster: KafkaCluster) -> None:
    before = cluster.leader
    moved = cluster.move_leader()
    assert cluster.leader == moved != before
    assert cluster.move_leader(to=before) == cluster.leader == before


def test_leader_cut_off_from_its_peers_acknowledges_nothing(cluster: KafkaCluster) -> None:
    before = cluster.leader
    with cluster.cut_off(before, clients=False):
        assert cluster.leader != before
        assert produce(cluster, "beyond the cut", by=cluster.address(cluster.leader)) == 0
        assert produce(cluster, "never", by=cluster.address(before), wait_s=1) == 1
    wait_until(lambda: not cluster._states()[before]["leads"])
    assert "beyond the cut" in values(cluster) and "never" not in values(cluster)


def test_node_cut_off_from_clients_closes_their_connections(cluster: KafkaCluster) -> None:
    port = int(cluster.address(2).rpartition(":")[2])
    request = b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x07\xff\xff"
    with cluster.cut_off(2, peers=False), socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(request)
        assert link.recv(8) == b""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(request)
        assert link.recv(8)[4:8] == b"\0\0\0\x07"


def test_restarted_node_has_its_port_and_data(cluster: KafkaCluster) -> None:
    port, pid = cluster.address(3), cluster.pid(3)
    cluster.restart(3)
    assert cluster.address(3) == port and cluster.pid(3) != pid
    assert (cluster.directory(3) / "orders-0").is_dir()


def test_running_node_does_not_start_again(cluster: KafkaCluster) -> None:
    with pytest.raises(IllegalState, match="node 1 is already running"):
        cluster.start(1)
    cluster.start()  # all that do not run: none


def test_unknown_node_is_an_error(cluster: KafkaCluster) -> None:
    with pytest.raises(IllegalArgument, match="there is no node 4.*nodes are 1 to 3"):
        cluster.kill(4)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"settings": {"num.partitions": 0}}, ServerDidNotStart, r"node 1 did not start: ConfigError: num\.partitions"),
        ({"settings": {"node.id": 7}}, ConfigError, "node.id cannot be set here"),
        ({"nodes": 0}, IllegalArgument, "nodes=0"),
        ({"nodes": 1, "topics": ["a b"]}, KafkalogError, "Topic name is invalid"),
    ],
)
def test_cluster_that_cannot_start_says_why_and_leaves_no_process(
    given: dict[str, object], error: type[Exception], text: str
) -> None:
    before = children()
    with pytest.raises(error, match=text) as raised, kafka_cluster(**given):  # type: ignore[arg-type]
        raise AssertionError("it started")
    assert "\n" not in str(raised.value)
    assert children() == before


def children() -> set[int]:
    """Processes of this one, which are there until they are waited for."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_nothing_is_left_when_the_test_is_killed() -> None:
    code = "import os, kafkalog.testing as t\n"
    code += "with t.kafka_cluster(nodes=2) as c:\n"
    code += "  c.pause(c.leader, elect=False)\n"
    code += "  print(c._host.pid, c.pid(1), c.pid(2), c.directory(1), flush=True); os.kill(os.getpid(), 9)"
    ended = run_python(code)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    *pids, directory = ended.stdout.split()
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids) and not Path(directory).parent.exists())


def test_host_killed_takes_its_nodes_along() -> None:
    with kafka_cluster(nodes=1) as found:
        assert found._host is not None
        pid = found.pid(1)
        os.kill(found._host.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))


def test_directory_is_kept_where_one_is_given(tmp_path: Path) -> None:
    with kafka_cluster(nodes=1, topics="kept", directory=tmp_path) as found:
        assert produce(found, "a record", topic="kept") == 0
    with kafka_cluster(nodes=1, topics="kept", directory=tmp_path) as found:
        assert values(found, "kept") == ["a record"]


def test_it_is_used_from_asyncio() -> None:
    import asyncio

    async def use() -> tuple[int, int]:
        async with async_kafka_cluster(nodes=1, topics="orders") as found:
            fault = await found.fault("Metadata", error="LEADER_NOT_AVAILABLE", times=1)
            await asyncio.to_thread(produce, found.cluster, "a record")
            await found.call("wait_for", topic="orders", records=1)
            await found.end(fault)
            return fault.fired, await found.leader()

    assert asyncio.run(use()) == (1, 1)


def test_importing_the_package_imports_no_server() -> None:
    code = "import sys, kafkalog.testing; sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
