"""Coordinators answer after replication: the next leader knows it and gives the same answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.leading import REFUSED
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.states import TransactionState
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import Set, fetch, set_of, wait_until

GROUPS, TRANSACTIONS = TopicPartition("__consumer_offsets", 0), TopicPartition("__transaction_state", 0)
ONE = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}


def commit(offset: int) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [row]}],
    }  # fmt: skip


async def lead_with_topics(nodes: Set) -> None:
    await nodes.promote(1)
    await nodes[1].topics.create("t", 1)
    for name in ("__consumer_offsets", "__transaction_state"):
        await nodes[1].topics.ensure_internal(name)
    await nodes[1].transactions.loaded()


async def replicate(nodes: Set, *keys: TopicPartition) -> None:
    """Node 2 has all of these partitions."""
    for key in keys:
        await fetch(nodes[1], 2, nodes[1].replicas.find(key).log.log_end_offset, key)


async def wait_for_end(nodes: Set, key: TopicPartition, count: int) -> None:
    await wait_until(lambda: nodes[1].replicas.find(key).log.log_end_offset >= count)


@in_loop
async def test_a_commit_is_answered_when_a_majority_has_it(tmp_path: Path) -> None:
    async with set_of(tmp_path, count=2, **ONE) as nodes:
        await lead_with_topics(nodes)
        asked = asyncio.ensure_future(call(nodes[1], "offset_commit", 9, commit(7)))
        await wait_for_end(nodes, GROUPS, 1)
        await asyncio.sleep(0)
        assert not asked.done()
        await replicate(nodes, GROUPS)
        assert (await asked).topics[0].partitions[0].error_code == 0


@in_loop
async def test_who_leads_no_more_sends_clients_elsewhere(tmp_path: Path) -> None:
    async with set_of(tmp_path, count=2, **ONE) as nodes:
        await lead_with_topics(nodes)
        asked = asyncio.ensure_future(call(nodes[1], "offset_commit", 9, commit(7)))
        await wait_for_end(nodes, GROUPS, 1)
        await nodes.quorum(2).promote(is_forced=True)
        assert (await asked).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert not nodes[1].groups.groups or nodes[1].leaders_calls


@in_loop
async def test_no_marker_is_written_before_the_end_of_a_transaction_is_certain(tmp_path: Path) -> None:
    data = TopicPartition("t", 0)
    async with set_of(tmp_path, count=2, **ONE) as nodes:
        await lead_with_topics(nodes)
        transactions = nodes[1].transactions
        begun = asyncio.ensure_future(transactions.init_producer_id("x", 600_000))
        await wait_for_end(nodes, TRANSACTIONS, 1)
        assert not begun.done()
        await replicate(nodes, TRANSACTIONS)
        producer = ProducerEpoch(*(await begun)[1:])
        assert transactions.add_partitions("x", producer, [data]) == ErrorCode.NONE
        ending = asyncio.ensure_future(transactions.end("x", producer, True))
        await wait_for_end(nodes, TRANSACTIONS, 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert nodes[1].replicas.find(data).log.log_end_offset == 0
        await replicate(nodes, TRANSACTIONS)
        await wait_for_end(nodes, data, 1)
        assert transactions.describe("x")[1].state == TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]
        await replicate(nodes, data)
        await wait_for_end(nodes, TRANSACTIONS, 4)
        await replicate(nodes, TRANSACTIONS)
        assert (await ending).error == ErrorCode.NONE
        assert transactions.describe("x")[1].state == TransactionState.COMPLETE_COMMIT  # type: ignore[union-attr]


@in_loop
async def test_a_node_that_does_not_lead_lists_no_groups_and_no_transactions(tmp_path: Path) -> None:
    """Administrators ask every node, and ask again for as long as one says that it loads."""
    async with set_of(tmp_path, count=2, **ONE) as nodes:
        await lead_with_topics(nodes)
        for name, filters in (("list_groups", ()), ("list_transactions", ("producer_id_filters",))):
            asked = {"state_filters": (), "states_filter": (), **dict.fromkeys(filters, ())}
            answer = await call(nodes[2], name, 0 if name == "list_transactions" else 4, asked)
            assert answer.error_code == 0, name


@in_loop
async def test_a_leader_whose_coordinators_have_not_started_does_not_list_its_groups_as_none(tmp_path: Path) -> None:
    async with set_of(tmp_path, count=2, **ONE) as nodes:
        await lead_with_topics(nodes)
        nodes[1].leaders_calls = REFUSED
        answer = await call(nodes[1], "list_groups", 4, {"states_filter": ()})
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
