"""A member of a share group by itself: what it asks the group and two nodes for, and what it makes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

from kafkalog.errors import InvalidRecordState, KafkalogError, LogClosed
from kafkalog.queue.worker import ACCEPT, GAP, REJECT, RELEASE, Acquired, Lease
from kafkalog.server.client.errors import PeerError, PeerUnreachable
from kafkalog.server.error_codes import ErrorCode
from kafkalog.sharing.links import SHARE_ACKNOWLEDGE, SHARE_FETCH, SHARE_GROUP_HEARTBEAT, SharedTopic
from kafkalog.sharing.member import Member
from tests.raw_batches import batch
from tests.server.looping import pass_time

TOPIC, OTHER = UUID(int=7), UUID(int=8)


def row(number: int, records: bytes = b"", *acquired: tuple[int, int], error: int = 0) -> Any:
    """What a fetch says about a partition: records, and the ranges of offsets that are acquired."""
    ranges = [SimpleNamespace(first_offset=first, last_offset=last, delivery_count=1) for first, last in acquired]
    return SimpleNamespace(
        partition_index=number, error_code=error, error_message=None, records=records, acquired_records=ranges
    )


class Node:
    """A node that answers fetches with the given rows, each once, and notes what is acknowledged."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster, self.node_id, self.peer = cluster, node_id, f"node {node_id}"
        self.rows: list[list[Any] | KafkalogError] = []
        self.gate: asyncio.Event | None = None  # fetches wait for it
        self.lost: set[int] = set()  # offsets that are no longer the member's

    def version_of(self, api_key: int) -> int:
        return 2

    async def request(self, api_key: int, tree: Mapping[str, Any], timeout_ms: int | None = None) -> Any:
        if api_key == SHARE_FETCH:
            self.cluster.asked.append(("fetch", self.node_id, tree["max_records"]))
            self.cluster.waits_ms.append(tree["max_wait"])
            if self.gate is not None:
                await self.gate.wait()
            rows = self.rows.pop(0) if self.rows else []
            if isinstance(rows, KafkalogError):
                raise rows
            return SimpleNamespace(error_code=0, error_message=None, responses=[SimpleNamespace(partitions=rows)])
        assert api_key == SHARE_ACKNOWLEDGE
        if tree["share_session_epoch"] < 0:
            self.cluster.asked.append(("close", self.node_id, None))
            if self.rows and isinstance(self.rows[0], KafkalogError):
                raise self.rows[0]
            return SimpleNamespace(error_code=0, error_message=None, responses=[])
        refused = []
        for one in (one for topic in tree["topics"] for one in topic["partitions"]):
            ranges = [(part["first_offset"], part["last_offset"]) for part in one["acknowledgement_batches"]]
            kinds = {kind for part in one["acknowledgement_batches"] for kind in part["acknowledge_types"]}
            is_refused = any(first <= offset <= last for offset in self.lost for first, last in ranges)
            self.cluster.acknowledged.append((self.node_id, kinds.pop(), one["partition_index"], ranges))
            code = int(ErrorCode.INVALID_RECORD_STATE) if is_refused else 0
            refused.append(SimpleNamespace(partition_index=one["partition_index"], error_code=code, error_message=None))
        return SimpleNamespace(error_code=0, error_message=None, responses=[SimpleNamespace(partitions=refused)])


class Cluster:
    """A topic with partitions 0 and 2 on node 1, and partition 1 on node 2, and the coordinator of its group."""

    def __init__(self) -> None:
        self.nodes = {number: Node(self, number) for number in (1, 2)}
        self.asked: list[tuple[str, int, Any]] = []
        self.acknowledged: list[tuple[int, int, int, list[tuple[int, int]]]] = []
        self.waits_ms: list[int] = []  # of fetches
        self.leaders: tuple[int, ...] = (1, 2, 1)
        self.beats: list[tuple[int, Any]] = []
        self.answers: list[dict[str, Any]] = []  # of heartbeats; else each is accepted

    async def topic(self, name: str) -> SharedTopic:
        self.asked.append(("topic", 0, name))
        return SharedTopic(name, TOPIC, self.leaders)

    async def ask_coordinator(self, group: str, call: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call(self)

    async def request(self, api_key: int, tree: Mapping[str, Any]) -> Any:
        assert api_key == SHARE_GROUP_HEARTBEAT and (tree["group_id"], tree["rack_id"]) == ("workers", None)
        self.beats.append((tree["member_epoch"], tree["subscribed_topic_names"]))
        answer = {"error_code": 0, "error_message": None, "member_epoch": 4, "heartbeat_interval": 5000,
                  "assignment": None}  # fmt: skip
        return SimpleNamespace(**answer | (self.answers.pop(0) if self.answers else {}))

    async def to_node(self, node_id: int) -> Node:
        return self.nodes[node_id]


def assigned(*numbers: int, topic: UUID = TOPIC) -> dict[str, Any]:
    row = SimpleNamespace(topic_id=topic, partitions=numbers)
    return {"assignment": SimpleNamespace(topic_partitions=[row])}


def with_member(body: Callable[[Member, Cluster], Awaitable[None]], *, takes_all: bool = True, **how: Any) -> None:
    """Call `body` with a member that has found its topic."""
    if takes_all:
        how |= {"takes_all": True}

    async def run() -> None:
        cluster = Cluster()
        member = Member(cluster, "workers", "tasks", **{"slice_s": 0.0} | how)  # type: ignore[arg-type]
        await member.find()
        cluster.asked.clear()
        await body(member, cluster)

    asyncio.run(run())


def places(found: list[Acquired]) -> list[tuple[int, int]]:
    return [(one.place.partition, one.record.offset) for one in found]


def test_what_a_broker_acquired_beyond_the_limit_comes_later() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        cluster.nodes[1].rows = [[row(0, batch(0, [b"a", b"b", b"c", b"d"]), (0, 3)), row(2, batch(5, [b"e"]), (5, 5))]]
        cluster.nodes[2].rows = [[]]
        found = []
        for most in (2, 1, 5):
            found.append(places(await member.acquire(most, 0)))
        assert found == [[(0, 0), (0, 1)], [(0, 2)], [(0, 3), (2, 5)]]
        assert sum(kind == "fetch" for kind, _, _ in cluster.asked) <= 2

    with_member(body)


def test_records_that_wait_here_are_lost_with_their_session() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        for number in (1, 2):
            cluster.nodes[number].rows = [[row(number - 1, batch(0, [b"a", b"b"]), (0, 1))]]
        assert len(await member.acquire(1, 0)) == 1
        for session in member._sessions.values():
            session.end()
        again = await member.acquire(5, 0)
        assert [one.record.offset for one in again] == [0, 1], "those of the other node"

    with_member(body)


def test_nodes_are_asked_in_turn_and_as_far_as_it_takes() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        orders = []
        for _ in range(3):
            cluster.asked.clear()
            assert await member.acquire(7, 0) == []
            orders.append([node for _, node, most in cluster.asked if most == 7])
        assert orders[0] == orders[2] == orders[1][::-1] and sorted(orders[0]) == [1, 2]

    with_member(body)


def test_only_a_member_of_one_partition_or_with_an_assignment_is_choosy() -> None:
    async def one(member: Member, cluster: Cluster) -> None:
        assert await member.acquire(1, 0) == []
        assert [node for _, node, _ in cluster.asked] == [2]

    async def some(member: Member, cluster: Cluster) -> None:
        cluster.answers = [assigned(0, 2) | {"member_epoch": 9}]
        await member.beat()
        assert await member.acquire(1, 0) == []
        assert [node for _, node, _ in cluster.asked] == [1]

    with_member(one, partition=1)
    with_member(some, takes_all=False)


def test_offsets_without_a_record_are_finished_and_the_fetch_is_repeated() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        broken = bytearray(batch(8, [b"x", b"y"]))
        broken[-1] ^= 1
        cluster.nodes[2].rows = [
            [row(1, b"", (3, 5))], [row(1, bytes(broken), (8, 9))], [row(1, batch(10, [b"a"]), (10, 11))],
        ]  # fmt: skip
        found: list[Acquired] = []
        while not found:
            found = await member.acquire(5, 0)
        assert places(found) == [(1, 10)]
        assert cluster.acknowledged == [(2, GAP, 1, [(3, 5)]), (2, REJECT, 1, [(8, 9)]), (2, GAP, 1, [(11, 11)])]
        assert [node for _, node, _ in cluster.asked].count(2) == 3

    with_member(body)


def test_each_lost_record_is_found_among_those_that_are_acknowledged() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        values = [b"%d" % n for n in range(9)]
        cluster.nodes[1].rows = [[row(0, batch(0, values), (0, 8)), row(2, batch(0, values), (0, 8))]]
        cluster.nodes[2].rows = [[row(1, batch(0, values), (0, 8))]]
        leases: list[Lease] = []
        while len(leases) < 27:
            leases += [one.lease for one in await member.acquire(100, 0)]
        cluster.nodes[1].lost = {5}
        failures = await member.acknowledge(ACCEPT, [*leases, leases[0]])
        assert {(one.partition, one.offset) for one in failures} == {(0, 5), (2, 5)}
        assert all(isinstance(one, InvalidRecordState) for one in failures.values())
        accepted = [
            (number, offset) for _, kind, number, ranges in cluster.acknowledged for first, last in ranges
            for offset in range(first, last + 1) if kind == ACCEPT and not first <= 5 <= last
        ]  # fmt: skip
        assert sorted(set(accepted)) == [(n, offset) for n in (0, 2) for offset in range(9) if offset != 5]
        assert (2, ACCEPT, 1, [(0, 8)]) in cluster.acknowledged
        assert len(cluster.acknowledged) < 20, "halves, not records"

    with_member(body)


def test_records_of_another_generation_are_lost() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        cluster.nodes[2].rows = [[row(1, batch(0, [b"a", b"b"]), (0, 1))]]
        cluster.nodes[1].rows = []
        found: list[Acquired] = []
        while not found:
            found = await member.acquire(5, 0)
        old = found[0].lease._replace(generation=found[0].lease.generation + 1)
        other = found[0].lease._replace(node_id=9)
        failures = await member.acknowledge(RELEASE, [old, other])
        assert failures.keys() == {old, other} and cluster.acknowledged == []
        assert all("session has ended" in str(one) for one in failures.values())
        assert (await member.acknowledge(RELEASE, [found[0].lease, old])).keys() == {old}
        assert cluster.acknowledged == [(2, RELEASE, 1, [(0, 0)])]

    with_member(body)


def test_heartbeats() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        cluster.answers = [{"member_epoch": 3, "heartbeat_interval": 50}, assigned(1, topic=OTHER)]
        await member.beat()
        assert member._interval_s == 0.1, "not too often"
        await member.beat()
        assert cluster.beats == [(0, ["tasks"]), (3, None)] and not member._has_assignment.is_set()
        assert member._interval_s == 5
        cluster.answers = [assigned(0, 1)]
        await member.beat()
        assert member._assigned == {0, 1} and member._has_assignment.is_set() and cluster.asked == []
        cluster.leaders = (0, -1, 1)
        await member.find()
        for number, is_asked in ((0, False), (1, True), (2, False), (3, True)):
            cluster.asked, cluster.answers = [], [assigned(number)]
            await member.beat()
            assert cluster.asked == [("topic", 0, "tasks")] * is_asked, "it has grown, or has no leader"

    with_member(body)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_begins_again_with_other_sessions(code: ErrorCode) -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        cluster.nodes[1].rows = cluster.nodes[2].rows = [[row(0, batch(0, [b"a"]), (0, 0))]]
        [one] = await member.acquire(1, 0)
        await member.beat()
        cluster.answers = [{"error_code": int(code)}]
        await member.beat()
        assert [epoch for epoch, _ in cluster.beats] == [0, 4, 0]
        assert one.lease in await member.acknowledge(ACCEPT, [one.lease])
        cluster.answers = [{"error_code": int(code)}] * 2
        with pytest.raises(KafkalogError) as caught:
            await member.beat()
        assert caught.value.code == code

    with_member(body)


def test_who_leaves_ends_its_sessions_though_a_node_is_gone() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        await member.join()
        await member.acquire(1, 0)
        cluster.nodes[1].rows = [PeerUnreachable("gone")]
        cluster.asked.clear()
        await member.leave()
        assert sorted(cluster.asked) == [("close", 1, None), ("close", 2, None)]
        assert cluster.beats[-1] == (-1, None)
        with pytest.raises(LogClosed, match="queue workers is closed"):
            await member.acquire(1, None)

    with_member(body)


def test_a_session_that_was_not_begun_is_not_ended() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        await member.acquire(1, 0)
        for session in member._sessions.values():
            session.end()
        cluster.asked.clear()
        await member.leave()
        assert cluster.asked == []

    with_member(body)


def test_an_error_of_a_node_is_raised_at_the_end_of_the_time() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            node.rows = [PeerError("broken")]
        with pytest.raises(PeerError, match="broken"):
            await member.acquire(1, 0)
        assert ("topic", 0, "tasks") not in cluster.asked
        cluster.nodes[1].rows = cluster.nodes[2].rows = [PeerError("broken"), [row(1, batch(0, [b"a"]), (0, 0))]]
        assert places(await member.acquire(1, 60)) == [(1, 0)]
        assert ("topic", 0, "tasks") in cluster.asked
        cluster.leaders = (-1, -1, -1)
        await member.find()
        with pytest.raises(PeerUnreachable, match="no partition of topic tasks has a leader now"):
            await member.acquire(1, 0)

    with_member(body)


def test_a_fetch_waits_for_its_share_of_the_time() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        for timeout_s, waits in ((0, 0), (60, 100), (None, 100)):
            cluster.waits_ms.clear()
            cluster.nodes[1].rows, cluster.nodes[2].rows = [[]], [[], [row(1, batch(0, [b"a"]), (0, 0))]]
            assert len(await member.acquire(1, timeout_s)) == (timeout_s != 0)
            assert set(cluster.waits_ms) == {waits}, "two nodes share 0.2 s"

    with_member(body, slice_s=0.2)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_heartbeat_that_fails_is_sent_again_unless_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        await member.join()
        failures = (ErrorCode.NOT_COORDINATOR, "elsewhere"), (ErrorCode.GROUP_AUTHORIZATION_FAILED, "not you")
        for sent, (code, message) in enumerate(failures, 2):
            assert await member.acquire(1, 0) == []
            cluster.answers = [{"error_code": int(code), "error_message": message}]
            pass_time(10)
            await turns()
            assert len(cluster.beats) == sent
            [logged] = caplog.messages
            assert logged.startswith("queue workers of topic tasks: no heartbeat: queue workers: ")
            assert message in logged
            caplog.clear()
        with pytest.raises(KafkalogError, match="not you"):
            await member.acquire(1, 0)
        pass_time(10)
        await turns()
        assert len(cluster.beats) == 3

    with_member(body)


def test_who_leaves_waits_for_a_fetch_without_a_caller() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        gate = asyncio.Event()
        for node in cluster.nodes.values():
            node.gate = gate
        acquiring = asyncio.create_task(member.acquire(1, None))
        await turns()
        acquiring.cancel()
        await asyncio.wait([acquiring])
        leaving = asyncio.create_task(member.leave())
        await turns()
        assert not leaving.done() and [kind for kind, _, _ in cluster.asked] == ["fetch"]
        gate.set()
        await leaving
        assert member._tasks == set()
        assert [kind for kind, _, _ in cluster.asked] == ["fetch", "close"], "the other node is not asked any more"

    with_member(body)


def test_what_comes_for_a_caller_who_has_gone_is_released() -> None:
    async def body(member: Member, cluster: Cluster) -> None:
        gate = cluster.nodes[2].gate = asyncio.Event()
        cluster.nodes[2].rows = [[row(1, batch(0, [b"a", b"b"]), (0, 1))]]
        acquiring = asyncio.create_task(member.acquire(1, None))
        await turns()
        acquiring.cancel()
        await asyncio.wait([acquiring])
        gate.set()
        await turns()
        assert acquiring.cancelled() and member._tasks == set()
        assert cluster.acknowledged == [(2, RELEASE, 1, [(0, 1)])]
        assert await member.acquire(5, 0) == []

    with_member(body)


def test_who_takes_all_waits_for_no_assignment_and_others_do() -> None:
    async def all_of_them(member: Member, cluster: Cluster) -> None:
        cluster.nodes[2].rows = [[row(1, batch(0, [b"a"]), (0, 0))]]
        acquiring = asyncio.create_task(member.acquire(1, None))
        await turns()
        assert acquiring.done() and places(acquiring.result()) == [(1, 0)]
        await member.give_back(acquiring.result())
        assert cluster.acknowledged == [(2, RELEASE, 1, [(0, 0)])]

    async def others(member: Member, cluster: Cluster) -> None:
        cluster.answers = [assigned(1), assigned()]
        for _ in range(2):
            await member.beat()
        cluster.nodes[2].rows = [[row(1, batch(0, [b"a"]), (0, 0))]]
        acquiring = asyncio.create_task(member.acquire(1, None))
        await turns()
        assert not acquiring.done() and cluster.asked == []
        looked = member._first
        await turns()
        assert member._first == looked, "it waits, and does not look again and again"
        cluster.answers = [assigned(1)]
        await member.beat()
        await turns()
        assert acquiring.done() and places(acquiring.result()) == [(1, 0)]

    with_member(all_of_them, slice_s=1000.0)
    with_member(others, takes_all=False, slice_s=1000.0)
