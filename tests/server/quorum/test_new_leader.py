"""A node that does not lead names the leader in the error itself (KIP-951), so that clients need not ask first."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for, joined, request_bytes
from tests.server.quorum.sets import set_of, wait_until
from tests.server.quorum.test_leading import with_topic
from tests.server.replica.partitions import make_batch


def produce(acks: int = 1) -> dict[str, Any]:
    rows = [{"index": 0, "records": make_batch()}]
    topics = [{"name": "t", "partition_data": rows}]
    return {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": topics}


def fetch(**more: Any) -> dict[str, Any]:
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
           "log_start_offset": -1, "partition_max_bytes": 1000, **more}  # fmt: skip
    return {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0, "session_id": 0,
            "session_epoch": -1, "topics": [{"topic": "t", "partitions": [row]}], "forgotten_topics_data": [],
            "rack_id": ""}  # fmt: skip


@in_loop
@pytest.mark.parametrize("version", [9, 10, 12])
async def test_a_produce_elsewhere_is_told_of_the_leader(tmp_path: Path, version: int) -> None:
    """FLOW-4."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        answer = await call(nodes[3], "produce", version, produce())
        [row] = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not getattr(answer, "node_endpoints", ())  # no leader
        await nodes.promote(2)
        await wait_until(lambda: nodes.quorum(3).leader == 2)
        answer = await call(nodes[3], "produce", version, produce())
        [row] = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 10:
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, nodes.quorum(2).state.term)
            [one] = answer.node_endpoints
            assert (one.node_id, one.host, one.port) == (2, "host2", 9092)
        answer = await call(nodes[2], "produce", version, produce())
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert not getattr(answer, "node_endpoints", ())


@in_loop
async def test_a_fetch_elsewhere_is_told_of_the_leader(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        topic_id = nodes[3].topics.get("t").id
        await nodes.promote(2)
        await wait_until(lambda: nodes.quorum(3).leader == 2)
        term = nodes.quorum(2).state.term
        for epoch, code in ((-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.FENCED_LEADER_EPOCH)):
            tree = fetch(current_leader_epoch=epoch)
            tree["topics"][0]["topic_id"] = topic_id
            answer = await call(nodes[3], "fetch", 16, tree)
            [row] = answer.responses[0].partitions
            assert row.error_code == code
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, term)
            assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [(2, "host2", 9092)]


@in_loop
async def test_each_leader_that_a_fetch_is_told_of_has_an_endpoint(tmp_path: Path) -> None:
    """A partition without a leader names none: librdkafka 2.16 counts a leader of -1 beside others, and then reads
    memory that it has not set (confluentinc/librdkafka#5280)."""
    async with set_of(tmp_path) as nodes:
        for number in (1, 2, 3):
            await nodes[number].topics.create("t", 3)
        await nodes.promote(2)
        await wait_until(lambda: nodes.quorum(3).leader == 2)
        term = nodes.quorum(2).state.term
        for index, leader in ((1, -1), (2, 1)):
            partition = nodes[3].replicas.find(TopicPartition("t", index))
            role = partition.role
            partition.become_follower(role._replace(leader=leader, partition_epoch=role.partition_epoch + 1))
        tree = fetch()
        [row] = tree["topics"][0]["partitions"]
        tree["topics"][0]["partitions"] = [{**row, "partition": index} for index in range(3)]
        tree["topics"][0]["topic_id"] = nodes[3].topics.get("t").id
        pieces = await dispatch(nodes[3], connection_for(), request_bytes("fetch", 16, tree))
        data = joined(pieces)
        answered = [data.count(struct.pack(">BBii", 1, 9, leader, term)) for leader in (2, -1, 1)]
        assert answered == [1, 0, 1]
        answer = await call(nodes[3], "fetch", 16, tree)
        assert {one.error_code for one in answer.responses[0].partitions} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert [one.node_id for one in answer.node_endpoints] == [1, 2]


@in_loop
async def test_while_nobody_leads_nothing_is_told_of_a_leader(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        tree = fetch()
        tree["topics"][0]["topic_id"] = nodes[3].topics.get("t").id
        data = joined(await dispatch(nodes[3], connection_for(), request_bytes("fetch", 16, tree)))
        assert struct.pack(">BBi", 1, 9, -1) not in data
        assert data.endswith(b"\0\0\0")  # no tags of the partition, of the topic, of the whole


@in_loop
async def test_who_may_lead_no_more_tells_nobody_that_he_is_beyond_the_end(tmp_path: Path) -> None:
    """A client that names no leader epoch gives up its position for that answer; it asks others for this one."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await wait_until(lambda: nodes.quorum(3).leader == 1 and nodes.quorum(2).leader == 1)
        asked = {version: fetch(fetch_offset=7) for version in (4, 16)}
        asked[16]["topics"][0]["topic_id"] = nodes[1].topics.get("t").id

        async def answers() -> list[Any]:
            answered = [await call(nodes[1], "fetch", version, tree) for version, tree in asked.items()]
            return [row for one in answered for topic in one.responses for row in topic.partitions]

        assert [one.error_code for one in await answers()] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
        nodes.cut.add(3)
        assert [one.error_code for one in await answers()] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
        nodes.cut.symmetric_difference_update({1, 3})
        await nodes.promote(2)
        assert nodes.quorum(1).leads  # it has not heard of it
        answered = await answers()
        assert [one.error_code for one in answered] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert answered[1].current_leader.leader_id == -1
        for tree in asked.values():
            tree["topics"][0]["partitions"][0]["fetch_offset"] = -1
        assert [one.error_code for one in await answers()] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2  # any leader
