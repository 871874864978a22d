"""Nodes of a replica set: who leads, who votes, and what each of them answers its clients."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest

from kafkalog.errors import ConfigError, CorruptCheckpoint, StorageError
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.quorum import quorum
from kafkalog.server.quorum.decisions import next_term
from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.quorum.file import NO_NODE, QuorumFile, QuorumState
from kafkalog.server.replica.results import AppendParams, AppendResult
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.server.looping import in_loop
from tests.server.nodes import Closed, call, connection_for, node_for
from tests.server.quorum.sets import T0, Set, fetch, set_of, wait_until
from tests.server.replica.partitions import make_batch, make_producer_batch

TOPIC_ID = UUID(int=7)


async def append(node: Node, acks: int = 1, *, timeout_ms: int = 60_000) -> AppendResult:
    results = await node.replicas.append({T0: bytearray(make_batch())}, AppendParams(acks, timeout_ms))
    found: AppendResult = results[T0]
    return found


async def append_in_transaction(node: Node) -> AppendResult:
    """As from a client whose transaction begins with this batch."""
    data = bytearray(make_producer_batch(7, 0, transactional=True))
    found = await node.replicas.append({T0: data}, AppendParams(-1, 10_000, transactional_id="x", produce_version=9))
    return found[T0]


async def with_topic(nodes: Set, *numbers: int) -> None:
    for number in numbers:
        await nodes[number].topics.create("t", 1, topic_id=TOPIC_ID)


@in_loop
async def test_nobody_leads_before_somebody_is_promoted(tmp_path: Path) -> None:
    """PART-4."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1)
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [nodes.quorum(one).leader for one in (1, 2, 3)] == [NO_NODE] * 3
        await nodes.promote(2)
        await wait_until(lambda: [nodes.quorum(one).leader for one in (1, 2, 3)] == [2, 2, 2])
        assert len({nodes.quorum(one).state.term for one in (1, 2, 3)}) == 1
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_loop
async def test_a_vote_that_could_not_be_written_is_written_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same request comes again after an error."""
    async with set_of(tmp_path) as nodes:
        voter, candidate = nodes.quorum(2), nodes.quorum(1)
        ballot = candidate.ballot(next_term(candidate.state.term, 1, candidate.own_set))
        with monkeypatch.context() as full_disk:
            full_disk.setattr(OS, "rename", lambda *_: refuse())
            with pytest.raises(StorageError):
                await voter.vote(ballot)
        assert (await voter.vote(ballot)).is_granted
        assert QuorumFile(tmp_path / "2").read() == QuorumState(ballot.term, NO_NODE, 1)


def refuse() -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@in_loop
async def test_the_epoch_of_what_a_leader_writes_is_the_term(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        assert (await append(nodes[1])).error_code == 0
        term = nodes.quorum(1).state.term
        assert nodes[1].replicas.find(T0).log.leader_epochs[-1] == (term, 0)
        assert nodes[1].replicas.find(T0).leader_epoch == term


@in_loop
async def test_a_node_that_is_behind_is_not_promoted_and_nothing_has_changed(tmp_path: Path) -> None:
    async with set_of(tmp_path, kafkalog_handover_timeout_ms=100) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await append(nodes[1])
        await nodes.stop(3)
        term = nodes.quorum(1).state.term
        await wait_until(lambda: nodes.quorum(2).leader == 1)
        with pytest.raises(ElectionFailed, match="node 1 stays the leader: node 2 did not have all of its records"):
            await nodes.quorum(2).promote()
        assert nodes.quorum(1).leads and nodes.quorum(1).state.term == term
        assert (await append(nodes[1])).error_code == 0


@in_loop
async def test_a_leader_takes_no_writes_once_another_node_leads(tmp_path: Path) -> None:
    """FLOW-4: requests that wait for replicas fail with the error that this node does not lead."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        waiting = asyncio.ensure_future(append(nodes[1], -1))
        await wait_until(lambda: nodes[1].replicas.waiting.produce.delayed == 1)
        await nodes.quorum(2).promote(is_forced=True)  # it has not the record
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await append(nodes[2])).error_code == 0
        assert nodes[1].replicas.find(T0).log.high_watermark == 0


@in_loop
async def test_a_transaction_is_sent_to_the_leader_and_not_kept_at_a_node_without_coordinators(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await nodes.quorum(2).promote()
        assert (await append_in_transaction(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_loop
async def test_acks_all_waits_for_the_replicas_in_sync_and_for_no_others(tmp_path: Path) -> None:
    """PART-1, PART-2, PART-3."""
    settings = {"min_insync_replicas": 2, "replica_lag_time_max_ms": 3_600_000}
    async with set_of(tmp_path, **settings) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        waiting = asyncio.ensure_future(append(nodes[1], -1))
        partition = nodes[1].replicas.find(T0)
        await wait_until(lambda: partition.log.log_end_offset == 1)
        epoch, clock = partition.leader_epoch, partition._now_ms
        for offset in (0, 1):
            await fetch(nodes[1], 2, offset, current_leader_epoch=epoch)
        assert not waiting.done()  # node 3 is in sync as well, and has not come
        partition._now_ms = lambda: clock() + 3_700_000
        await fetch(nodes[1], 2, 1, current_leader_epoch=epoch)
        nodes[1].replicas._drop_late()
        assert (await waiting).error_code == 0
        assert partition.role.isr == (1, 2) and partition.high_watermark == 1
        partition._now_ms = lambda: clock() + 7_400_000
        nodes[1].replicas._drop_late()
        assert partition.role.isr == (1,)
        assert (await append(nodes[1], -1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await fetch(nodes[1], 3, 1, current_leader_epoch=epoch)
        assert partition.role.isr == (1, 3)


@in_loop
async def test_a_leader_that_starts_again_leads_on_in_a_new_term_with_a_majority(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        term = nodes.quorum(1).state.term
        await wait_until(lambda: nodes.quorum(2).leader == 1)
        nodes.cut |= {2, 3}
        await nodes.stop(1)
        await nodes.start(1)
        await asyncio.sleep(0.1)
        assert nodes.quorum(1).leader == NO_NODE
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        nodes.cut.clear()
        await wait_until(lambda: nodes.quorum(1).leads)
        assert nodes.quorum(1).state.term > term
        assert (await append(nodes[1])).error_code == 0


@in_loop
async def test_a_leader_that_comes_back_after_a_promotion_follows(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        await nodes.stop(1)
        await nodes.promote(2)
        await nodes.start(1)
        await wait_until(lambda: nodes.quorum(1).leader == 2)
        assert not nodes.quorum(1).leads


@in_loop
async def test_a_vote_is_on_disk_before_it_is_told(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(2)
        term = nodes.quorum(2).state.term
        kept = QuorumFile(tmp_path / "2").read()
        assert kept == QuorumState(term, 2, 2)
        await wait_until(lambda: QuorumFile(tmp_path / "1").read() == QuorumState(term, 2, 2))
        nodes.cut.add(2)
        await nodes.stop(1)
        (tmp_path / "1" / QUORUM_FILE).write_bytes(b"{}")
        with pytest.raises(CorruptCheckpoint, match="damaged"):
            await nodes.start(1)
        nodes.nodes.pop(1, None)


@in_loop
async def test_a_set_of_one_leads_at_once(tmp_path: Path) -> None:
    async with set_of(tmp_path, count=1) as nodes:
        await wait_until(lambda: nodes.quorum(1).leads)
        await with_topic(nodes, 1)
        assert (await append(nodes[1], -1)).error_code == 0


@in_loop
async def test_what_above_the_high_watermark_was_not_replicated_is_not_read_after_a_start(tmp_path: Path) -> None:
    """PART-12, FLOW-23."""
    async with set_of(tmp_path, min_insync_replicas=1) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        epoch = nodes.quorum(1).state.term
        for _ in range(4):
            await append(nodes[1])
        for node in (2, 3):
            for offset in (0, 3):
                await fetch(nodes[1], node, offset, current_leader_epoch=epoch)
        assert nodes[1].replicas.find(T0).high_watermark == 3
        await nodes.stop(1)
        nodes.cut |= {2, 3}
        await nodes.start(1)
        log = nodes[1].replicas.find(T0).log
        assert (log.high_watermark, log.log_end_offset) == (3, 4)


@in_loop
async def test_clients_of_every_node_are_told_of_all_nodes_and_of_the_leader(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        [row] = (await call(nodes[3], "metadata", 13, METADATA)).topics[0].partitions
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        found = await call(nodes[3], "find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g"]})
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await nodes.promote(2)
        await wait_until(lambda: nodes.quorum(3).leader == 2)
        answer = await call(nodes[3], "metadata", 13, METADATA)
        assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [
            (1, "host1", 9091), (2, "host2", 9092), (3, "host3", 9093),
        ]  # fmt: skip
        [row] = answer.topics[0].partitions
        assert (answer.controller_id, row.leader_id, row.error_code) == (2, 2, 0)
        assert row.leader_epoch == nodes.quorum(2).state.term and tuple(row.replica_nodes) == (2, 1, 3)
        answer = await call(nodes[2], "metadata", 13, METADATA)
        assert tuple(answer.topics[0].partitions[0].isr_nodes) == (1, 2, 3)
        cluster = await call(nodes[3], "describe_cluster", 2, {**CLUSTER})
        assert ([one.broker_id for one in cluster.brokers], cluster.controller_id) == ([1, 2, 3], 2)
        found = await call(nodes[3], "find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g"]})
        assert (found.coordinators[0].node_id, found.coordinators[0].host) == (2, "host2")
        assert nodes[3].topics.get("__consumer_offsets") is None  # the leader makes it


CLUSTER = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False, "endpoint_type": 1}
METADATA: dict[str, Any] = {
    "topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip


@in_loop
async def test_groups_and_topics_are_the_leaders_business(tmp_path: Path) -> None:
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    make = {"topics": [{"name": "n", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}],
            "timeout": 1000, "validate_only": False}  # fmt: skip
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        assert (await call(nodes[2], "heartbeat", 4, beat)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await call(nodes[2], "create_topics", 7, make)).topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert (await call(nodes[1], "heartbeat", 4, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        made = await call(nodes[1], "create_topics", 7, {**make, "timeout": 100})
        assert made.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT  # no replica has a copy of it
        assert nodes[1].topics.get("n") is not None
        await nodes.promote(2, is_forced=True)
        assert (await call(nodes[1], "heartbeat", 4, beat)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await call(nodes[2], "heartbeat", 4, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_what_another_leader_sent_is_written_before_a_node_leads(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        written = asyncio.Event()

        class Fetcher:
            async def stop(self) -> None:
                await written.wait()
                nodes[1].replicas.find(T0).append_as_follower(bytearray(make_batch(leader_epoch=0)), 0)

        nodes[1].following.fetcher = Fetcher()
        promotion = asyncio.ensure_future(nodes.quorum(1).promote())
        await asyncio.sleep(0.05)
        assert not nodes.quorum(1).leads
        written.set()
        await promotion
        term = nodes.quorum(1).state.term
        assert nodes[1].replicas.find(T0).log.leader_epochs[-1] == (term, 1)  # behind what came


@in_loop
async def test_no_coordinator_begins_while_a_node_stops(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        groups = nodes[1].groups
        await nodes[1].leading.stop()
        await nodes.quorum(1).promote()
        await asyncio.sleep(0.05)
        assert nodes[1].groups is groups and nodes[1].leaders_calls


@in_loop
async def test_committed_offsets_are_there_for_who_leads_again(tmp_path: Path) -> None:
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
              "topics": [{"name": "t", "partitions": [
                  {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1,
                   "committed_metadata": ""}]}]}  # fmt: skip
    async with set_of(tmp_path, count=1) as nodes:
        await wait_until(lambda: not nodes[1].leaders_calls)
        await with_topic(nodes, 1)
        await nodes[1].topics.ensure_internal("__consumer_offsets")
        answer = await call(nodes[1], "offset_commit", 9, commit)
        assert answer.topics[0].partitions[0].error_code == 0
        await nodes.stop(1)
        await nodes.start(1)
        await wait_until(lambda: not nodes[1].leaders_calls and not nodes[1].groups.is_loading)
        assert dict(nodes[1].groups.overview_of(nodes[1].groups.groups["g"]).offsets) == {TopicPartition("t", 0): 7}


@in_loop
async def test_the_sets_calls_need_the_right_to_act_for_the_cluster(tmp_path: Path) -> None:
    async with set_of(tmp_path, authorizer_class_name="x", super_users="User:boss") as nodes:
        anyone, boss = connection_for("User:anyone"), connection_for("User:boss")
        for name, version in (("vote", 2), ("begin_quorum_epoch", 1), ("end_quorum_epoch", 1), ("describe_quorum", 2)):
            tree = {"topics": (), "leader_endpoints": ()}
            answer = await call(nodes[1], name, version, tree, connection=anyone)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer = await call(nodes[1], "elect_leaders", 2, ELECT, connection=anyone)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer = await call(nodes[1], "vote", 2, {"topics": ()}, connection=boss)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


ELECT: dict[str, Any] = {"election_type": 0, "topic_partitions": None, "timeout": 1000}


@in_loop
async def test_elections_are_asked_for_by_an_operators_tool(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        assert (await call(nodes[2], "elect_leaders", 2, ELECT)).error_code == 0
        assert nodes.quorum(2).leads
        topics = ("t", "__cluster_metadata")  # the latter stands for the whole
        named = {**ELECT, "topic_partitions": [{"topic": name, "partitions": [0]} for name in topics]}
        rows = (await call(nodes[2], "elect_leaders", 2, named)).replica_election_results
        assert {row.topic: row.partition_result[0].error_code for row in rows} == dict.fromkeys(
            topics, ErrorCode.ELECTION_NOT_NEEDED
        )
        nodes.cut |= {2, 3}
        answer = await call(nodes[1], "elect_leaders", 2, ELECT)
        assert answer.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        answer = await call(nodes[1], "elect_leaders", 2, {**ELECT, "election_type": 1})
        assert answer.error_code == 0 and nodes.quorum(1).leads
        assert nodes.quorum(1).state.term != nodes.quorum(2).state.term


@in_loop
async def test_who_leads_is_described(tmp_path: Path) -> None:
    ask = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    async with set_of(tmp_path) as nodes:
        await nodes.promote(3)
        before = (await call(nodes[3], "describe_quorum", 2, ask)).topics[0].partitions[0]
        assert (before.leader_id, before.leader_epoch) == (3, nodes.quorum(3).state.term)
        assert [one.replica_id for one in before.current_voters] == [1, 2, 3]
        await nodes[3].topics.create("t", 1)
        await nodes[3].topics.alter("t", {"retention.ms": "1000"})
        await nodes.quorum(3).metadata.save()
        after = (await call(nodes[3], "describe_quorum", 2, ask)).topics[0].partitions[0]
        assert after.high_watermark == before.high_watermark + 2
        other = {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]}
        [row] = (await call(nodes[3], "describe_quorum", 2, other)).topics[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_follower_that_was_told_nothing_finds_the_leader_and_its_changes(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        nodes.cut.add(3)
        await nodes.promote(1)
        await wait_until(lambda: nodes.quorum(2).leader == 1)
        assert nodes.quorum(3).leader == NO_NODE
        nodes.cut.clear()
        await wait_until(lambda: nodes.quorum(3).leader == 1)
        await wait_until(lambda: nodes.quorum(3).leaders_changes == nodes.quorum(1).metadata.changes)
        reported: list[int] = []
        nodes.quorum(3).on_leaders_change = lambda: reported.append(nodes.quorum(3).leaders_changes)
        await nodes[1].topics.create("t", 1)
        await wait_until(lambda: reported == [nodes.quorum(1).metadata.changes])


@in_loop
async def test_a_leader_that_was_cut_off_steps_down_when_it_is_back(tmp_path: Path) -> None:
    """It takes no writes once it reached anybody who knows of a later term."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        nodes.cut.add(1)
        await nodes.promote(2)
        assert (await append(nodes[1])).error_code == 0  # of its own term, with acks=1
        nodes.cut.clear()
        await wait_until(lambda: nodes.quorum(1).leader == 2)
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_loop
async def test_a_node_alone_has_no_quorum(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        assert node.quorum.leads and node.quorum.leader == node.node_id
        versions = await call(node, "api_versions", 3, {"client_software_name": "a", "client_software_version": "1"})
        assert not {52, 53} & {one.api_key for one in versions.api_keys}
        with pytest.raises(Closed):
            await call(node, "vote", 0, {"topics": ()})
        assert not (tmp_path / QUORUM_FILE).exists()


@in_loop
async def test_a_node_has_to_be_in_its_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this is node 7"):
        async with node_for(tmp_path, node_id=7, kafkalog_replicas="1@a:1,2@b:1"):
            pass


@in_loop
async def test_an_epoch_in_which_nothing_was_written_is_still_known_after_a_start(tmp_path: Path) -> None:
    """The last epoch says which of two logs is ahead, even where its leader wrote nothing."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await append(nodes[1])
        await nodes.promote(1 if nodes.quorum(2).leads else 2, is_forced=True)
        await nodes.stop(2)
        term = QuorumFile(tmp_path / "2").read().term  # type: ignore[union-attr]
        nodes.cut |= {1, 3}
        await nodes.start(2)
        assert nodes.quorum(2).positions()[T0] == (-1, 0)  # it has no record
        nodes.cut.clear()
        await wait_until(lambda: nodes.quorum(2).leads)
        await append(nodes[2])
        await nodes.stop(2)
        await nodes.start(2)
        await wait_until(lambda: nodes.quorum(2).leads)
        await nodes.stop(2)
        nodes.cut |= {1, 3}
        kept = QuorumFile(tmp_path / "2").read()
        assert kept is not None and kept.term > term
        await nodes.start(2)
        assert nodes.quorum(2).positions()[T0] == (kept.term, 1)
        assert nodes[2].store.get(T0).leader_epochs[-1] == (kept.term, 1)


@in_loop
async def test_a_term_that_nobody_won_ends_no_leadership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader steps down for it, and asks for votes again."""
    monkeypatch.setattr(quorum, "REGAIN_SECONDS", 0.05)
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        term = nodes.quorum(1).state.term
        await nodes.quorum(2).learn_leader(term + 1, NO_NODE)  # a candidate that went away before it had its votes
        await wait_until(lambda: nodes.quorum(1).leads and nodes.quorum(1).state.term > term + 1)
        await wait_until(lambda: not nodes[1].leaders_calls)
        assert (await append(nodes[1])).error_code == 0
        await wait_until(lambda: [nodes.quorum(one).leader for one in (2, 3)] == [1, 1])


@in_loop
async def test_who_votes_tells_an_earlier_leader_nothing_more(tmp_path: Path) -> None:
    """The node follows no leader until its log is compared, and continues where the vote is refused."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await wait_until(lambda: nodes.quorum(2).leader == 1 and nodes[2].following.fetcher is not None)
        seen: list[object] = []
        decide = nodes.quorum(2)._decide
        nodes.quorum(2)._decide = lambda *asked: seen.append(nodes[2].following.fetcher) or decide(*asked)  # type: ignore
        await nodes.quorum(3).promote()
        assert seen[-1] is None and nodes.quorum(2).state.voted_for == 3
