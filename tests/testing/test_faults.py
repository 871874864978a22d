"""Faults on request: which calls they change, how, how often, and what is said of one that never matched."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kafkalog._core.messages.outline import PassedProduces
from kafkalog.errors import IllegalArgument
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.versions import APIS
from kafkalog.testing import FaultNeverMatched, FaultNeverMatchedWarning, KafkaServer, kafka_server
from kafkalog.testing.inside.requests import FLEXIBLE_PRODUCE, PRODUCE_BY_ID
from kafkalog.testing.inside.rules import Rule, fires
from tests.raw_batches import batches
from tests.server.nodes import request_bytes
from tests.testing.calls import Link

METADATA = {
    "topics": [{"topic_id": None, "name": "orders"}], "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False, "include_cluster_authorized_operations": False,
}  # fmt: skip
MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture(scope="module")
def running() -> Iterator[KafkaServer]:
    with kafka_server(topics={"orders": 2, "other": 1}, unmatched="ignore") as found:
        yield found


@pytest.fixture
def server(running: KafkaServer) -> Iterator[KafkaServer]:
    """The server of this file, without faults before and after the test."""
    yield running
    running.reset()


def produced(topic: str = "orders", partition: int = 0, count: int = 1) -> dict[str, Any]:
    """A Produce of version 9, which names topics. Retention, which begins after 30 s, keeps its records."""
    records = batches(0, count, count, timestamp=time.time_ns() // 1_000_000)[0]
    topics = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 60_000, "topic_data": topics}


def fetched(topic: str = "orders", *partitions: int, session_id: int = 0, epoch: int = -1) -> dict[str, Any]:
    """A Fetch of version 11, full or of a session."""
    rows = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in partitions]
    topics = [{"topic": topic, "partitions": rows}] if rows else []
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": session_id, "session_epoch": epoch, "topics": topics, "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip


def code_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def end(server: KafkaServer, topic: str = "orders", partition: int = 0) -> int:
    return server._ends(topic)[partition][1]


def test_error_in_place_of_the_call(server: KafkaServer) -> None:
    before = end(server)
    with Link(server.bootstrap) as link, server.fault("Produce", error="NOT_LEADER_OR_FOLLOWER") as fault:
        assert [code_of(link.call("produce", 9, produced())) for _ in range(3)] == [MOVED] * 3
        assert (fault.matched, fault.fired, end(server)) == (3, 3, before)
    with Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced())) == 0
    assert end(server) == before + 1
    assert (fault.matched, fault.fired) == (3, 3)


def test_error_after_the_call_took_effect(server: KafkaServer) -> None:
    before = end(server)
    server.fault("Produce", error="REQUEST_TIMED_OUT", applied=True, times=1)
    with Link(server.bootstrap) as link:
        assert [code_of(link.call("produce", 9, produced())) for _ in range(2)] == [7, 0]
    assert end(server) == before + 2


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({"nth": 3}, [0, 0, MOVED, 0, 0]),
        ({"times": 2}, [MOVED, MOVED, 0, 0, 0]),
        ({"nth": 2, "times": 2}, [0, MOVED, MOVED, 0, 0]),
    ],
)
def test_calls_are_counted(server: KafkaServer, given: dict[str, int], codes: list[int]) -> None:
    fault = server.fault("Produce", error=MOVED, **given)  # type: ignore[arg-type]
    with Link(server.bootstrap) as link:
        assert [code_of(link.call("produce", 9, produced())) for _ in range(5)] == codes
    assert (fault.matched, fault.fired) == (5, sum(map(bool, codes)))


def test_share_of_calls_is_the_same_for_the_same_seed() -> None:
    def chosen(seed: str) -> list[bool]:
        return [fires(Rule(1, None, share=0.3, seed=seed), number, 0) for number in range(1, 201)]

    assert chosen("a") == chosen("a") != chosen("b")
    assert 30 < sum(chosen("a")) < 90


def test_share_is_that_of_the_server(server: KafkaServer) -> None:
    for _ in range(2):  # the same calls in each test, whatever ran before
        server.reset()
        server.fault("Produce", error=MOVED, share=0.5)
        with Link(server.bootstrap) as link:
            codes = [code_of(link.call("produce", 9, produced())) for _ in range(20)]
        assert [code == MOVED for code in codes] == [
            fires(Rule(1, None, share=0.5, seed="0/1"), number, 0) for number in range(1, 21)
        ]


@pytest.mark.parametrize(
    ("filters", "is_hit"),
    [
        ({"client_id": "test"}, True),
        ({"client_id": "te*"}, True),
        ({"client_id": "other"}, False),
        ({"client_id": "testing"}, False),
        ({"topic": "orders"}, True),
        ({"topic": "ord*"}, True),
        ({"topic": "other"}, False),
        ({"topic": "order"}, False),
        ({"topic": "orders", "partition": 0}, True),
        ({"topic": "orders", "partition": 1}, False),
        ({"partition": 0}, True),
        ({"group": "orders"}, False),
        ({"nodes": [1]}, True),
    ],
)
def test_filters_of_a_produce(server: KafkaServer, filters: dict[str, Any], is_hit: bool) -> None:
    fault = server.fault("Produce", error=MOVED, **filters)
    with Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced())) == (MOVED if is_hit else 0)
    assert fault.matched == is_hit


def test_request_like_one_that_passed_is_looked_at_where_it_differs(server: KafkaServer) -> None:
    fault = server.fault("Produce", error=MOVED, topic="orders", partition=1)
    with Link(server.bootstrap) as link:
        sent = [("orders", 0), ("orders", 0), ("orders", 1), ("other", 0), ("orders", 1), ("orders", 0)]
        codes = [code_of(link.call("produce", 9, produced(*one))) for one in sent]
        assert codes == [0, 0, MOVED, 0, MOVED, 0]
        with server.fault("Produce", error=7, topic="other"):
            assert code_of(link.call("produce", 9, produced("other"))) == 7
    assert fault.matched == 2


def test_fault_for_a_partition_that_no_topic_can_have_matches_nothing(server: KafkaServer) -> None:
    with server.fault("Produce", error=MOVED, partition=1 << 31) as fault, Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced())) == 0
        assert fault.matched == 0


def produce_outline_of(frame: bytearray, wanted: tuple[int, ...]) -> bytes | None:
    return PassedProduces(FLEXIBLE_PRODUCE, PRODUCE_BY_ID, wanted).outline(frame)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "", "t" * 126, "t" * 200])
def test_outline_of_a_produce_has_what_rules_look_at(version: int, transactional_id: str | None) -> None:
    def outline(*topics: tuple[str, list[int]], name: str | None = transactional_id, client_id: str = "test") -> bytes:
        rows = [
            {"name": topic, "topic_id": UUID(int=len(topic)),
             "partition_data": [{"index": one, "records": b"r" * 200} for one in partitions]}
            for topic, partitions in topics
        ]  # fmt: skip
        tree = {"transactional_id": name, "acks": 1, "timeout": 7, "topic_data": rows}
        frame = request_bytes("produce", version, tree, client_id=client_id)
        for cut in range(0, len(frame), 7):
            produce_outline_of(frame[:cut], (1, 3))
        for at in range(0, len(frame), 1 + len(frame) // 2000):
            produce_outline_of(frame[:at] + b"\xff" + frame[at + 1 :], (1, 3))
        found = produce_outline_of(frame, (1, 3))
        assert found is not None
        return found

    usual = outline(("orders", [0, 1]))
    assert usual == outline(("orders", [1, 2, 4])) == outline(("orders", list(range(4, 300)) + [1]))
    others = [
        outline(("orders", [1, 3])), outline(("orders", [0])), outline(("order", [0, 1])),
        outline(("orders", [0, 1]), ("other", [])), outline(("orders", [0, 1]), name="another"),
        outline(("orders", [0, 1]), client_id="tests"), outline(),
    ]  # fmt: skip
    assert len({usual, *others}) == 1 + len(others)


def test_outline_that_is_long_or_has_many_partitions_is_none() -> None:
    def frame(topic: str) -> bytearray:
        return request_bytes("produce", 9, produced(topic))

    assert produce_outline_of(frame("t" * 900), tuple(range(16)))
    assert produce_outline_of(frame("t" * 1020), ()) is None
    assert produce_outline_of(frame("t"), tuple(range(17))) is None


def test_outline_tells_sixteen_partitions_apart() -> None:
    wanted = (*range(15), 2**31 - 1)
    frames = (request_bytes("produce", 9, produced(partition=number)) for number in (*wanted, 15))
    outlines = {produce_outline_of(frame, wanted) for frame in frames}
    assert len(outlines) == 17 and None not in outlines


def test_many_outlines_are_forgotten() -> None:
    passed = PassedProduces(FLEXIBLE_PRODUCE, PRODUCE_BY_ID, ())
    for number in range(1025):
        frame = request_bytes("produce", 9, produced(f"t{number}"))
        assert frame not in passed
        passed.add(passed.outline(frame) or b"")
        assert frame in passed
    assert request_bytes("produce", 9, produced("t1")) not in passed


@pytest.mark.parametrize("filters", [{"topic": "or*", "partition": 1}, {"partition": 1}, {"client_id": "te*"}])
def test_produce_for_several_partitions_is_matched_by_any(server: KafkaServer, filters: dict[str, Any]) -> None:
    def sent(*partitions: int) -> dict[str, Any]:
        tree = produced()
        rows = [produced(partition=one)["topic_data"][0]["partition_data"][0] for one in partitions]
        tree["topic_data"][0]["partition_data"] = rows
        return tree

    fault = server.fault("Produce", error=MOVED, **filters)
    is_any = "partition" not in filters
    with Link(server.bootstrap, "test") as link:
        for partitions, is_hit in (([0], is_any), ([0], is_any), ([0, 1], True), ([1], True), ([0], is_any)):
            assert code_of(link.call("produce", 9, sent(*partitions))) == 0 or is_hit
    assert fault.matched == (5 if is_any else 2)


def test_topic_given_by_its_id_is_found(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        described = link.call("metadata", 12, METADATA).topics[0]
        fault = server.fault("Produce", error=MOVED, topic="orders")
        tree = produced()
        tree["topic_data"][0]["topic_id"] = described.topic_id
        assert code_of(link.call("produce", 13, tree)) == MOVED
    assert fault.fired == 1


@pytest.mark.parametrize(
    ("name", "version", "tree"),
    [
        ("offset_commit", 8, {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
                              "group_instance_id": None, "topics": []}),
        ("heartbeat", 3, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}),
        ("find_coordinator", 2, {"key": "g", "key_type": 0}),
        ("describe_groups", 4, {"groups": ["f", "g"], "include_authorized_operations": False}),
        ("offset_fetch", 8, {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}),
    ],
)  # fmt: skip
def test_filters_of_groups(server: KafkaServer, name: str, version: int, tree: dict[str, Any]) -> None:
    wrong = server.fault("*", error="GROUP_AUTHORIZATION_FAILED", group="h")
    fault = server.fault("*", error="GROUP_AUTHORIZATION_FAILED", group="g")
    with Link(server.bootstrap) as link:
        assert f"error_code={int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}" in repr(link.call(name, version, tree)) or (
            name == "offset_commit"
        )
    assert (fault.fired, wrong.matched) == (1, 0)


def test_fetch_has_the_error_at_the_partition_and_records_elsewhere_later(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced(partition=1))) == 0
        server.fault("Fetch", error="OFFSET_OUT_OF_RANGE", topic="orders", partition=1, times=1)
        answer = link.call("fetch", 11, fetched("orders", 0, 1))
        rows = {row.partition_index: row for row in answer.responses[0].partitions}
        assert (answer.error_code, rows[0].error_code, rows[1].error_code) == (0, 0, 1)
        assert rows[0].high_watermark == end(server, partition=0) and not rows[0].records
        again = link.call("fetch", 11, fetched("orders", 0, 1)).responses[0].partitions
        assert all(row.error_code == 0 and row.records for row in again if row.partition_index == 1)


def test_fetch_of_a_session_is_matched_by_the_sessions_topics(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        session_id = link.call("fetch", 11, fetched("orders", 0, epoch=0)).session_id
        assert session_id
        server.fault("Fetch", error=MOVED, topic="other")
        fault = server.fault("Fetch", error=MOVED, topic="orders")
        answer = link.call("fetch", 11, fetched(session_id=session_id, epoch=1))
    assert [row.error_code for row in answer.responses[0].partitions] == [MOVED]
    assert answer.session_id == 0  # the client begins another one, with all partitions
    assert fault.fired == 1


def test_response_cut_in_half(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        link.send("metadata", 8, METADATA)
        whole = link.receive()
        server.fault("Metadata", cut=True)
        link.send("metadata", 8, METADATA)
        assert link.receive() == whole[: len(whole) // 2]
        assert link.sock.recv(1) == b""


def test_connection_closed_before_or_after_the_call(server: KafkaServer) -> None:
    before = end(server)
    with Link(server.bootstrap) as link, server.fault("Produce", close=True):
        assert link.call("produce", 9, produced()) is None
    assert end(server) == before
    with Link(server.bootstrap) as link, server.fault("Produce", close=True, applied=True):
        assert link.call("produce", 9, produced()) is None
    assert end(server) == before + 1


def test_call_that_is_never_answered_ends_with_the_fault(server: KafkaServer) -> None:
    fault = server.fault("Metadata", silent=True)
    with Link(server.bootstrap) as link:
        link.send("metadata", 8, METADATA)
        server.wait_for(until=lambda: fault.matched == 1)
        link.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            link.sock.recv(1)
        link.sock.settimeout(60)
        fault.remove()
        assert link.sock.recv(1) == b""


def test_delayed_call_waits_for_the_servers_clock(server: KafkaServer) -> None:
    fault = server.fault("Metadata", delay_ms=3_600_000, times=1)
    with Link(server.bootstrap) as link:
        link.send("metadata", 8, METADATA)
        server.wait_for(until=lambda: fault.matched == 1)
        server.advance(seconds=3600)
        assert link.receive()


@pytest.mark.parametrize(("name", "version", "tree"), [("produce", 9, produced()), ("fetch", 11, fetched("orders", 0))])
def test_throttle_time_is_reported(server: KafkaServer, name: str, version: int, tree: dict[str, Any]) -> None:
    server.fault(("Produce", "Fetch"), throttle_ms=7, times=1)
    with Link(server.bootstrap) as link:
        assert [link.call(name, version, tree).throttle_time for _ in range(2)] == [7, 0]


def test_older_versions_are_advertised(server: KafkaServer) -> None:
    def offered(version: int) -> dict[int, int]:
        with Link(server.bootstrap) as link:
            tree = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
            return {row.api_key: row.max_version for row in link.call("api_versions", version, tree).api_keys}

    whole = offered(3)
    with server.older_versions({"Produce": 8, "DescribeCluster": -1}) as fault:
        for version in (0, 3):
            assert offered(version) == {**{key: one for key, one in whole.items() if key != 60}, 0: 8}
        assert fault.fired == 2
    assert offered(3) == whole


def test_refused_connections(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        server.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            Link(server.bootstrap)
        assert link.call("metadata", 8, METADATA).topics  # open ones stay
        server.drop_connections()
        assert link.sock.recv(1) == b""
        server.refuse_connections(False)
    with Link(server.bootstrap) as link:
        assert link.call("metadata", 8, METADATA).topics


def test_full_disk(server: KafkaServer) -> None:
    before = end(server)
    with Link(server.bootstrap) as link:
        server.full_disk()
        assert code_of(link.call("produce", 9, produced())) == ErrorCode.KAFKA_STORAGE_ERROR
        server.full_disk(False)
        assert code_of(link.call("produce", 9, produced())) == 0
    assert end(server) == before + 1


def test_faults_outlast_a_restart() -> None:
    with kafka_server(topics="orders") as server:
        fault = server.fault("Produce", error=MOVED, times=2)
        with Link(server.bootstrap) as link:
            assert code_of(link.call("produce", 9, produced())) == MOVED
        server.kill()
        server.refuse_connections()
        server.start()
        with pytest.raises(ConnectionRefusedError):
            Link(server.bootstrap)
        server.refuse_connections(False)
        with Link(server.bootstrap) as link:
            assert [code_of(link.call("produce", 9, produced())) for _ in range(2)] == [MOVED, 0]
        assert fault.fired == 2
        fault.remove()


def test_fault_that_never_matched_is_reported(server: KafkaServer) -> None:
    rules = server._rules
    rules._unmatched = "warn"
    try:
        with pytest.warns(FaultNeverMatchedWarning, match="no call matched: <Fault Produce: matched 0, fired 0"):
            server.fault("Produce", error=MOVED, topic="unknown").remove()
        rules._unmatched = "error"
        server.fault("Produce", error=MOVED)
        with pytest.raises(FaultNeverMatched, match="check the names"):
            server.reset()
        with pytest.raises(ZeroDivisionError), server.fault("Produce", error=MOVED):
            raise ZeroDivisionError  # the test's own failure is not hidden
        with Link(server.bootstrap) as link, server.fault("Produce", error=MOVED), warnings.catch_warnings():
            link.call("produce", 9, produced())
    finally:
        rules._unmatched = "ignore"


@pytest.mark.parametrize(
    ("api", "given", "text"),
    [
        ("Produced", {"error": MOVED}, "no API 'Produced'.*did you mean Produce"),
        ("Produce", {"error": "NOT_LEADER"}, "no error 'NOT_LEADER'"),
        ("Produce", {"error": 0}, "error=0 is no error"),
        ("Produce", {"error": MOVED, "cut": True}, "not both"),
        ("Produce", {"cut": True, "silent": True}, "exclude each other"),
        ("Produce", {}, "does nothing"),
        ("Produce", {"error": MOVED, "share": 0}, "share=0"),
        ("Produce", {"error": MOVED, "nth": 0}, "counted from 1"),
    ],
)
def test_wrong_fault_is_an_error(server: KafkaServer, api: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgument, match=text):
        server.fault(api, **given)


def test_clock_moves_on_and_not_back(server: KafkaServer) -> None:
    joined = {
        "group_id": "timed", "session_timeout": 1_000_000, "rebalance_timeout": 10_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    alive = {"group_id": "timed", "generation_id": 1, "group_instance_id": None}
    with Link(server.bootstrap) as link:
        joined["member_id"] = link.call("join_group", 7, joined).member_id
        assert link.call("join_group", 7, joined).error_code == 0
        alive["member_id"] = joined["member_id"]
        assert link.call("heartbeat", 3, alive).error_code == 0
        server.advance(seconds=1001)
        assert link.call("heartbeat", 3, alive).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(IllegalArgument, match="cannot go back by 1 ms"):
        server.advance(ms=-1)


def test_retention_follows_the_clock() -> None:
    retention = {"log.retention.ms": 3_600_000}
    with kafka_server(topics="orders", settings=retention) as server, Link(server.bootstrap) as link:
        now_ms = time.time_ns() // 1_000_000
        for _ in range(3):
            tree = produced()
            tree["topic_data"][0]["partition_data"][0]["records"] = batches(0, 20, 20, size=40, timestamp=now_ms)[0]
            assert code_of(link.call("produce", 9, tree)) == 0
        assert server.record_count("orders") == 60
        server.advance(seconds=7200)
        assert server.record_count("orders") == 0


def test_matching_faults_do_not_disturb_other_clients(server: KafkaServer) -> None:
    """A client whose requests are held does not hold those of others."""
    server.fault("Metadata", silent=True, client_id="held")
    with Link(server.bootstrap, "held") as held, Link(server.bootstrap) as link:
        held.send("metadata", 8, METADATA)
        assert link.call("metadata", 8, METADATA).topics


def test_network_calls_the_server_itself_without_rules() -> None:
    from kafkalog.testing.inside.rules import NodeRules

    class Network:
        dispatch: Any = object()

    class Server:
        network = Network()

    own = Server.network.dispatch
    faults = NodeRules(Server, None, None)  # type: ignore[arg-type]
    faults.recorders[1] = None  # type: ignore[assignment]
    faults.update()
    assert Server.network.dispatch != own
    faults.recorders.clear()
    faults.update()
    assert Server.network.dispatch is own


def test_every_api_has_a_name_for_faults() -> None:
    from kafkalog.testing.names import kafka_name, keys_of

    for key, api in APIS.items():
        assert keys_of(kafka_name(api.name)) == [key]
