"""In-sync replicas of an idle partition, and the set that a follower reports."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Never

import pytest

from kafkalog.errors import LogClosed
from kafkalog.server.client.errors import PeerTimedOut
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.following_session import FollowerSession
from kafkalog.server.replica.leader_source import LeaderSource
from kafkalog.server.replica.roles import FollowerState, Role, majority_of, without_late
from kafkalog.types import LogOffsetMetadata
from kafkalog.util.fileio import OS
from tests.server.client.peers import liar, open_connection
from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for
from tests.server.quorum.sets import set_of
from tests.server.replica.copies import until
from tests.server.replica.partitions import NODE, T0, T1, Replicas, error_codes, fetch_as_follower, make_batch, run
from tests.server.replicated.servers import servers_of
from tests.server.replicated.test_following_leader import until_same
from tests.server.replicated.test_survivors import write_to_all


def test_a_follower_that_asks_for_nothing_leaves_though_it_has_all(tmp_path: Path) -> None:
    """A dead one has all where nothing is written, and the next write with acks=all would wait for it."""

    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, 3, isr=(2, 3))
        await replicas.time.passes(30_000)
        await fetch_as_follower(replicas, T0, 2, 0)
        assert not partition.drop_late()
        await replicas.time.passes(1)
        assert partition.drop_late() and partition.role.isr == (1, 2)
        await fetch_as_follower(replicas, T0, 3, 0)
        assert partition.role.isr == (1, 2, 3)

    run(tmp_path, body)


@pytest.mark.parametrize(("now_ms", "is_late"), [(130, False), (131, True)])
def test_a_follower_is_late_after_the_lag_and_not_before(now_ms: int, is_late: bool) -> None:
    behind = FollowerState(log_end=LogOffsetMetadata(4), last_caught_up_ms=100, last_fetch_ms=100)
    assert behind.is_caught_up(5, now_ms, 30) is not is_late
    assert behind.is_active(now_ms, 30) is not is_late
    assert behind.is_caught_up(4, 10**9, 30), "it has all"
    role = Role(1, 0, 7, (1, 2), (1, 2))
    left = Role(1, 0, 8, (1, 2), (1,))
    assert without_late(role, {2: behind}, 5, now_ms, 30) == (left if is_late else role)
    assert without_late(role, {2: behind}, 4, now_ms, 30) == (left if is_late else role), "it may be dead"


def test_a_majority_is_more_than_half() -> None:
    assert [majority_of(replicas) for replicas in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]


def test_a_write_that_waits_for_a_late_follower_is_answered_when_that_leaves(tmp_path: Path) -> None:
    async def body(replicas: Replicas) -> None:
        partition = replicas.with_followers(T0, 2, isr=(2,))
        replicas._set_role = lambda: partition.role  # as in a replica set: who is late is looked for
        await replicas.start()
        written = asyncio.ensure_future(replicas.produce(T0, acks=-1, timeout_ms=10**6))
        for _ in range(2):
            await replicas.time.passes(15_000)
        assert not written.done()
        await replicas.time.passes(15_000)
        assert partition.role.isr == (1,)
        assert written.done() and error_codes(await written) == [0]

    run(tmp_path, body)


def test_a_partition_whose_log_fails_keeps_no_late_follower_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(replicas: Replicas) -> None:
        partitions = [replicas.with_followers(key, 2, isr=(2,)) for key in (T0, T1)]
        replicas._set_role = lambda: partitions[0].role
        broken = partitions[0].log

        def readable_end(_: str) -> Never:
            raise LogClosed("the log was closed meanwhile")

        monkeypatch.setattr(broken, "readable_end", readable_end)
        await replicas.start()
        for _ in range(3):
            await replicas.time.passes(15_000)
        assert [partition.role.isr for partition in partitions] == [(1,), (1,)]
        assert "cannot move the high watermark of t-0: the log was closed meanwhile" in caplog.messages

    run(tmp_path, body)


def test_a_partition_whose_disk_was_full_when_its_node_began_to_lead_is_led_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def body(replicas: Replicas) -> None:
        roles = [Role(2, 1, 0, (NODE, 2), (2,)), Role(NODE, 2, 0, (NODE, 2), (NODE, 2))]
        monkeypatch.setattr(replicas, "_set_role", lambda: roles[0])
        partition = replicas.find(T0)
        await replicas.start()
        del roles[0]
        with monkeypatch.context() as full_disk:
            full_disk.setattr(OS, "rename", refuse)
            replicas.take_roles()
            assert error_codes(await replicas.produce(T0)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await replicas.time.passes(15_000)
        assert error_codes(await replicas.produce(T0)) == [0]
        assert partition.log.leader_epochs == ((2, 0),)

    run(tmp_path, body)


def test_what_a_follower_copies_is_not_safe_until_its_leader_says_so(tmp_path: Path) -> None:
    """PART-12: also on a node that led alone before, whose high watermark was its log's end."""

    async def body(replicas: Replicas) -> None:
        await replicas.produce(T0, data=make_batch(2))
        partition = replicas.find(T0)
        assert partition.high_watermark == 2
        role = Role(2, 1, partition.role.partition_epoch + 1, (1, 2), (1, 2))
        assert partition.become_follower(role)
        partition.append_as_follower(make_batch(3, base_offset=2, leader_epoch=1), 1)
        assert (partition.high_watermark, partition.log.log_end_offset) == (2, 5)
        assert not partition.become_follower(role._replace(partition_epoch=role.partition_epoch + 1)), "the same leader"
        assert partition.become_follower(role._replace(leader_epoch=2, partition_epoch=role.partition_epoch + 2))
        assert partition.become_follower(Role(3, 2, role.partition_epoch + 3, (1, 2, 3), (1, 2)))

    run(tmp_path, body)


@in_loop
async def test_a_follower_shows_who_is_in_sync_as_its_leader_told(tmp_path: Path) -> None:
    """Clients of any node see which partitions have too few copies."""
    ask = {"topics": [{"topic_id": None, "name": "t"}], "allow_auto_topic_creation": False,
           "include_topic_authorized_operations": False}  # fmt: skip
    async with servers_of(tmp_path, 1, 2, 3, settings={"replica.lag.time.max.ms": 1500}) as servers:
        await servers[1].node.quorum.promote()
        await servers[1].node.topics.create("t", 1)
        second = servers[2].node
        await until(lambda: second.topics.get("t") is not None)
        await until(lambda: second.replicas.find(T0).role.isr == (1, 2, 3))
        await servers.stop(3)
        await until(lambda: second.replicas.find(T0).role.isr == (1, 2))
        [row] = (await call(second, "metadata", 13, ask)).topics[0].partitions
        assert (row.isr_nodes, row.replica_nodes, row.leader_id) == ((1, 2), (1, 2, 3), 1)


@in_loop
async def test_the_wait_at_the_leader_counts_in_the_time_that_it_has(tmp_path: Path) -> None:
    """`replica.socket.timeout.ms` is for the whole request, as with KafkaConfig, which wants it not to be shorter."""
    limits = FetchLimits(max_wait_ms=3_600_000, timeout_ms=100)
    async with liar(lambda _: b"") as port, open_connection(port) as leader:
        source = LeaderSource(leader, 2, limits)
        with pytest.raises(PeerTimedOut):
            async with asyncio.timeout(60):
                await source.fetch(FollowerSession().next({}), {})


@in_loop
async def test_a_follower_that_stops_leaves_the_in_sync_replicas_at_once(tmp_path: Path) -> None:
    """Until it is late, acks=all would wait for it; in the reference, the controller takes it out."""
    async with servers_of(tmp_path, 1, 2, 3, settings={"replica.lag.time.max.ms": 3_600_000}) as servers:
        leader = servers[1].node
        await leader.quorum.promote()
        await leader.topics.create("t", 2)
        partitions = [leader.replicas.find(key) for key in (T0, T1)]
        await until(lambda: all(one.role.isr == (1, 2, 3) for one in partitions))
        await write_to_all(servers[1], T0, b"of all")
        await servers.stop(3)
        assert [one.role.isr for one in partitions] == [(1, 2), (1, 2)]
        await write_to_all(servers[1], T0, b"of two")
        await servers.start(3)
        await until(lambda: all(one.role.isr == (1, 2, 3) for one in partitions))
        await write_to_all(servers[1], T0, b"of all again")
        await until_same(servers, 1, T0, T1)


@in_loop
async def test_only_a_node_takes_itself_out_of_the_in_sync_replicas(tmp_path: Path) -> None:
    settings = {"authorizer_class_name": "x", "super_users": "User:boss;User:ANONYMOUS"}
    async with set_of(tmp_path, **settings) as nodes:
        await nodes.quorum(1).promote()
        await nodes[1].topics.create("t", 1)
        leaves = {"replica_state": {"replica_id": 3, "replica_epoch": -1}, "max_wait": 0, "min_bytes": 1,
                  "max_bytes": 1000, "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
                  "topics": (), "forgotten_topics_data": ()}  # fmt: skip
        for principal, isr in (("User:anyone", (1, 2, 3)), ("User:boss", (1, 2))):
            await call(nodes[1], "fetch", 16, leaves, connection=connection_for(principal))
            assert nodes[1].replicas.find(T0).role.isr == isr
