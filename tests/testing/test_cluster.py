"""A cluster of nodes that a test starts, stops, kills, pauses and cuts off."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalog.errors import ConfigError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.server.quorum.messages import BEGIN_QUORUM_EPOCH
from kafkalog.testing import KafkaCluster, ServerDidNotStart, async_kafka_cluster, kafka_cluster
from tests.server.test_testing import is_alive
from tests.testing.calls import Link
from tests.testing.test_faults import METADATA, code_of, produced
from tests.trees import PACKAGE


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """One for all tests of this file, each of which leaves it with three nodes that run."""
    with kafka_cluster(nodes=3, topics={"orders": 3}, unmatched="ignore") as found:
        yield found


@pytest.fixture(autouse=True)
def _whole_afterwards(cluster: KafkaCluster) -> Iterator[None]:
    yield
    assert cluster.running == cluster.nodes == (1, 2, 3)


def produce(
    cluster: KafkaCluster, *values: str, topic: str = "orders", by: str = "", wait_s: float = 120, client: str = "any"
) -> int:
    """Produces with acks=all to partition 0; how many records are not acknowledged in time."""
    settings = {"acks": "all", "message.timeout.ms": wait_s * 1000, "client.id": client}
    producer = Producer({"bootstrap.servers": by or cluster.bootstrap, **settings})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and errors.append(error))
    producer.flush(wait_s + 10)
    return len(errors)


def values(cluster: KafkaCluster, topic: str = "orders") -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(topic, 0)]


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_node_leads_and_all_serve(cluster: KafkaCluster) -> None:
    assert cluster.leader in cluster.nodes
    assert produce(cluster, "first") == 0
    assert "first" in values(cluster)
    for node in cluster.nodes:
        host, _, port = cluster.address(node).rpartition(":")
        socket.create_connection((host, int(port)), 60).close()


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
    assert process_state(cluster.pid(before)) == "T"
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


def test_all_nodes_know_the_leader_as_soon_as_the_call_returns(cluster: KafkaCluster) -> None:
    """A client, or a schema registry, may ask any of them next."""
    late = {"keys": [BEGIN_QUORUM_EPOCH], "delay_ms": 300, "peers": True}
    with cluster._rules.add("late", cluster.nodes, late, is_reported=False):
        for _ in range(3):
            moved = cluster.move_leader()
            assert [state["leader"] for state in cluster._states().values()] == [moved] * 3


def test_leader_cut_off_from_its_peers_acknowledges_nothing_that_is_lost(cluster: KafkaCluster) -> None:
    before = cluster.leader
    # the cut-off leader still says that it leads, as a broker that no controller reaches does: a client that asks it
    # for metadata stays with it until its requests time out. So the first client has no connection to that node
    apart = cluster.fault("*", close=True, client_id="beyond", nodes=[before])
    with cluster.cut_off(before, clients=False), apart:
        assert cluster.leader != before
        assert produce(cluster, "beyond the cut", by=cluster.address(cluster.leader), client="beyond") == 0
        # a client that begins there may learn of the new leader from the other nodes
        waiting = produce(cluster, "behind the cut", by=cluster.address(before), wait_s=1)
    wait_until(lambda: not cluster._states()[before]["leads"])
    assert "beyond the cut" in values(cluster)
    assert waiting or "behind the cut" in values(cluster)


def test_leader_cut_off_from_its_peers_refuses_what_it_cannot_replicate(cluster: KafkaCluster) -> None:
    before = cluster.leader
    with Link(cluster.address(before)) as link, cluster.cut_off(before, clients=False, elect=False):
        assert code_of(link.call("produce", 9, produced() | {"acks": 1})) == 0
        assert code_of(link.call("produce", 9, produced() | {"timeout": 100})) in (7, 19)  # 19 if all that takes long
        cluster.advance(seconds=3)  # more than replica.lag.time.max.ms
        wait_until(lambda: code_of(link.call("produce", 9, produced() | {"timeout": 100})) == 19)
        assert code_of(link.call("produce", 9, produced() | {"acks": 1})) == 0
        assert link.call("metadata", 12, METADATA).topics[0].partitions[0].leader_id == before  # it does not step down
    wait_until(lambda: produce(cluster, "healed") == 0)


def partitions_of(link: Link, topic: str) -> int:
    asked = METADATA | {"topics": [{"topic_id": None, "name": topic}]}
    return len(link.call("metadata", 12, asked).topics[0].partitions)


def test_topic_that_was_created_is_there_whoever_leads_later(cluster: KafkaCluster) -> None:
    """The call waits for other nodes: it fails where the leader ends before one has the topic."""
    cluster.create_topics({"kept": 2})
    leader = cluster.leader
    with Link(cluster.address(leader)) as link, ThreadPoolExecutor(1) as pool:
        with cluster.cut_off(leader, clients=False, elect=False):
            made = pool.submit(cluster.create_topics, {"lost": 2})
            wait_until(lambda: partitions_of(link, "lost") == 2)
            cluster.kill(leader, elect=False)
            assert isinstance(made.exception(60), KafkalogError)
    cluster.heal()
    with Link(cluster.address(cluster.leader)) as link:
        assert partitions_of(link, "kept") == 2


def test_node_cut_off_from_clients_closes_their_connections(cluster: KafkaCluster) -> None:
    port = int(cluster.address(2).rpartition(":")[2])
    request = b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x07\xff\xff"
    with cluster.cut_off(2, peers=False), socket.create_connection(("127.0.0.1", port), 60) as link:
        link.sendall(request)
        assert link.recv(8) == b""
    with socket.create_connection(("127.0.0.1", port), 60) as link:
        link.sendall(request)
        assert link.recv(8)[4:8] == b"\0\0\0\x07"


def test_restarted_node_has_its_port_and_data(cluster: KafkaCluster) -> None:
    port, pid = cluster.address(3), cluster.pid(3)
    assert produce(cluster, "kept") == 0
    wait_until((cluster.directory(3) / "orders-0").is_dir)
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


def answers(cluster: KafkaCluster, node: int) -> int | None:
    """The error code of a Metadata response of a node; None where the connection is closed."""
    with Link(cluster.address(node)) as link:
        found = link.call("metadata", 8, {**METADATA, "topics": [{"name": "orders"}]})
    return None if found is None else found.topics[0].error_code


def test_paused_node_takes_up_afterwards_what_changed_meanwhile(cluster: KafkaCluster) -> None:
    before = cluster.fault("Metadata", close=True)
    cluster.refuse_connections(nodes=[1])
    cluster.pause(2)
    with cluster.record() as seen:
        before.remove()
        with cluster.fault("Metadata", error=5, nodes=[2]):
            cluster.resume(2)
            assert (answers(cluster, 2), answers(cluster, 3)) == (5, 0)
        assert [one.node for one in seen.of("Metadata")] == [2, 3]
        cluster.pause(1)
        cluster.reset()
        cluster.heal()
        assert answers(cluster, 1) == 0


def test_node_is_not_paused_while_it_counts(cluster: KafkaCluster) -> None:
    code = f"import time; from kafkalog.testing.inside.counts import RuleCounts as C; c = C({cluster._rules.path!r})\n"
    code += "with c.change(): print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        pausing = threading.Thread(target=cluster.pause, args=(2,))
        pausing.start()
        pausing.join(0.05)
        assert not cluster._nodes[2].is_paused
        holder.communicate(b"\n")
    pausing.join()
    assert process_state(cluster.pid(2)) == "T"
    cluster.resume(2)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_reset_ends_a_cut(cluster: KafkaCluster) -> None:
    cut = cluster.cut_off(2)
    with cluster.cut_off(2, peers=False):
        pass
    assert cluster._silent() == [2]
    cluster.reset()
    assert cluster._silent() == [] and answers(cluster, 2) == 0
    cut.heal()


def test_node_that_ended_by_itself_is_started_again(cluster: KafkaCluster) -> None:
    fault = cluster.fault("Metadata", error=5)
    gone = cluster.nodes[cluster.leader % 3]
    os.kill(cluster.pid(gone), signal.SIGKILL)
    with pytest.raises(IllegalState, match="the server"):
        cluster.reset()
    assert not fault.is_active
    cluster.heal()
    assert [answers(cluster, node) for node in cluster.nodes] == [0, 0, 0]


class BrokenOff(Exception):
    """As a time limit of pytest-timeout raises it."""


def test_call_that_is_broken_off_does_not_change_the_next_ones(cluster: KafkaCluster) -> None:
    def break_off(*_: object) -> None:
        raise BrokenOff

    leader = cluster.leader
    control, host = cluster._nodes[leader].control, cluster._host
    assert control is not None and host is not None
    earlier = signal.signal(signal.SIGALRM, break_off)
    try:
        cluster.pause(leader, elect=False)
        for call in (lambda: control.call("state"), lambda: host.wait(cluster.pid(leader), 0.1)):
            with pytest.raises(BrokenOff):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                call()
    finally:
        signal.signal(signal.SIGALRM, earlier)
        cluster.resume(leader)
    assert control.call("ends", topic="nothing") == {}
    cluster.restart(leader)


def test_nodes_are_restarted_by_several_threads(cluster: KafkaCluster) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda node: cluster.restart(node, elect=False), (1, 2)))
    assert len({cluster.pid(node) for node in cluster.nodes}) == 3
    cluster.heal()


@pytest.mark.usefixtures("unforked")
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
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_test_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    """By SIGKILL, with a paused node; or by SIGTERM to the process group, as from `timeout`. SIGHUP ends no server."""
    code = """if 1:
        import os, signal, kafkalog.testing as t
        os.setpgid(0, 0)
        signal.signal(signal.SIGHUP, lambda *_: None)
        with t.kafka_cluster(nodes=2) as c, t.kafka_server() as s, t.kafka_server(directory="kept") as k:
            os.killpg(0, signal.SIGHUP)
            for one in (c, s, k):
                one.record()
            k.snapshot()
            print(c._host.pid, c.pid(1), c.pid(2), s.pid, k.pid, flush=True)
            c.pause(c.leader, elect=False)
            NUMBER == signal.SIGTERM and os.killpg(0, NUMBER) or os.kill(os.getpid(), NUMBER)
    """
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code.replace("NUMBER", str(int(number)))]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert ended.returncode == -number, ended.stderr
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 5
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    wait_until(lambda: [one.name for one in tmp_path.iterdir()] == ["kept"])


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
        os.write(found._nodes[1].log_file.fileno(), b"said")
    assert found.log(1).endswith("said")


def test_it_is_used_from_asyncio() -> None:
    import asyncio

    async def use() -> tuple[int, int]:
        async with async_kafka_cluster(nodes=1, topics="orders", settings={"num.partitons": 1}) as found:
            fault = await found.fault("Metadata", error="LEADER_NOT_AVAILABLE", times=1)
            await asyncio.to_thread(produce, found.cluster, "a record")
            await found.call("wait_for", topic="orders", records=1)
            await found.end(fault)
            return fault.fired, await found.leader()

    with pytest.warns(UserWarning, match="num.partitons .*did you mean num.partitions"):
        assert asyncio.run(use()) == (1, 1)


@pytest.mark.usefixtures("unforked")
def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    import asyncio

    before = children()

    async def use() -> None:
        async with async_kafka_cluster(nodes=1):
            raise AssertionError("it started")

    async def cancel() -> None:
        starting = asyncio.ensure_future(use())
        while children() == before:
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert children() == before

    asyncio.run(cancel())


def test_importing_the_package_imports_no_server() -> None:
    code = "import sys, kafkalog.testing; sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
