"""A produce request and its transaction, also across restarts."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.records.memory import MemoryRecords
from kafkalog.server.node.node import Node
from tests.server.nodes import call
from tests.server.txns.calls import (
    ALL_OF,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
    fetch_committed,
    init_producer,
    produce,
    with_node,
)


def test_what_is_open_comes_back_with_a_restart(tmp_path: Path) -> None:
    kept: list[Any] = []

    async def work(node: Node) -> None:
        producer = await init_producer(node)
        kept.append(producer)
        await add_partitions(node, producer)
        await add_offsets(node, producer)
        assert await produce(node, producer) == 0
        assert await commit_offsets(node, producer) == 0

    async def after(node: Node) -> None:
        assert await fetch_committed(node, stable=True) == (-1, 88)
        assert node.replicas.partition("t", 0).last_stable_offset == 0
        assert await produce(node, kept[0], 1) == 0
        assert (await end_transaction(node, kept[0])).error_code == 0
        assert await fetch_committed(node, stable=True) == (5, 0)
        assert node.replicas.partition("t", 0).last_stable_offset == 3

    with_node(tmp_path, work)
    with_node(tmp_path, after)


def test_a_produce_needs_its_transaction(tmp_path: Path) -> None:
    """FLOW-9"""

    async def work(node: Node) -> None:
        producer = await init_producer(node)
        assert await produce(node, producer) == 48
        assert await produce(node, producer, version=11) == 120
        assert (await add_partitions(node, producer, t=[0])) == {("t", 0): 0}
        assert await produce(node, producer) == 0
        assert await produce(node, producer, 1) == 0
        assert (await end_transaction(node, producer)).error_code == 0
        assert await produce(node, producer, 2) == 48
        assert await init_producer(node) is not None
        assert await produce(node, producer, 2) == 47

    with_node(tmp_path, work)


def test_a_produce_of_version_12_adds_its_partition(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        assert await produce(node, producer, version=12) == 0
        ended = await end_transaction(node, producer, 5)
        assert (ended.error_code, ended.producer_epoch) == (0, 1)
        assert await produce(node, ended, version=12) == 0
        assert (await end_transaction(node, ended, 5, committed=False)).producer_epoch == 2

    with_node(tmp_path, work)


def test_without_verification_a_produce_needs_no_transaction(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        assert await produce(node, await init_producer(node)) == 0

    with_node(tmp_path, work, transaction_partition_verification_enable=False)


def test_a_verification_that_failed_keeps_later_sequences_out(tmp_path: Path) -> None:
    """FLOW-10"""

    async def work(node: Node) -> None:
        producer = await init_producer(node)
        assert await produce(node, producer, 6) == 48
        await add_partitions(node, producer)
        assert await produce(node, producer, 7) == 45
        assert await produce(node, producer, 6) == 0

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", ALL_OF["write_txn_markers"])
def test_markers_by_hand(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        await add_partitions(node, producer)
        assert await produce(node, producer) == 0
        marker = {
            "producer_id": producer.producer_id, "producer_epoch": 0, "transaction_result": False,
            "coordinator_epoch": 0, "topics": [{"name": "t", "partition_indexes": [0, 7]}],
        }  # fmt: skip
        response = await call(node, "write_txn_markers", version, {"markers": [marker]})
        partitions = response.markers[0].topics[0].partitions
        assert [(one.partition_index, one.error_code) for one in partitions] == [(0, 0), (7, 3)]
        assert node.replicas.partition("t", 0).last_stable_offset == 2
        old = {**marker, "producer_epoch": 5, "coordinator_epoch": -1}
        response = await call(node, "write_txn_markers", version, {"markers": [old]})
        assert response.markers[0].topics[0].partitions[0].error_code == 52

    with_node(tmp_path, work)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_marker_by_hand_is_in_the_log_as_it_was_asked_for(tmp_path: Path, is_committed: bool) -> None:
    async def work(node: Node) -> None:
        marker = {
            "producer_id": 7, "producer_epoch": 5, "transaction_result": is_committed, "coordinator_epoch": 3,
            "topics": [{"name": "t", "partition_indexes": [1]}],
        }  # fmt: skip
        response = await call(node, "write_txn_markers", 1, {"markers": [marker]})
        assert response.markers[0].topics[0].partitions[0].error_code == 0
        log = node.replicas.partition("t", 1).log
        [batch] = MemoryRecords(log.read(0, 1 << 20).records.read()).batches()
        assert batch.control is not None
        assert (batch.header.producer_id, batch.header.producer_epoch) == (7, 5)
        assert (batch.control.type.name, batch.control.coordinator_epoch) == (
            "COMMIT" if is_committed else "ABORT", 3,
        )  # fmt: skip

    with_node(tmp_path, work)


def test_an_end_after_a_marker_of_a_later_coordinator_epoch_is_seen_by_readers(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        marker = {
            "producer_id": producer.producer_id, "producer_epoch": 0, "transaction_result": False,
            "coordinator_epoch": 5, "topics": [{"name": "t", "partition_indexes": [0]}],
        }  # fmt: skip
        await call(node, "write_txn_markers", 1, {"markers": [marker]})
        await add_partitions(node, producer)
        assert await produce(node, producer) == 0
        assert (await end_transaction(node, producer)).error_code == 0
        assert node.replicas.partition("t", 0).last_stable_offset == 3

    with_node(tmp_path, work)
