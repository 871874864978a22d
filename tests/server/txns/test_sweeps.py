"""The sweeps of the transaction coordinator: one id that is odd, or very many, keep nothing else from its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkalog.errors import StorageError
from kafkalog.server.error_codes import ErrorCode as E
from kafkalog.server.txns.coordinator import MAX_RETRY_MS, TransactionCoordinator
from kafkalog.server.txns.records import TOPIC, transactions_batch
from kafkalog.server.txns.states import TransactionState as S
from kafkalog.server.txns.transaction import LAST_EPOCH, Transaction
from kafkalog.util.java_hash import partition_of
from tests.server.txns.small_node import INTERNAL_PARTITIONS, SmallNode
from tests.server.txns.test_coordinator import A0, OFFSETS, begin_transaction, on_node, state_of


def test_ids_are_forgotten_however_many_and_however_long(tmp_path: Path) -> None:
    """All tombstones of a partition in one batch would be more than a log takes, again and again."""
    names = [f"{number}-{'x' * 30_000}" for number in range(120)]

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for name in names:
            assert (await coordinator.init_producer_id(name, 1000)).error == E.NONE
        node.now_ms += 8 * 86_400_000
        assert coordinator.expire() == len(names)

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert coordinator.transactions() == []

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


def test_a_transaction_that_cannot_be_aborted_does_not_keep_others_open(tmp_path: Path) -> None:
    """An epoch that no client is given: only a record that something else wrote can have it."""
    odd = Transaction("odd", 7, LAST_EPOCH + 1, 1000, S.ONGOING, frozenset([A0]), 1, 1)

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        await coordinator.init_producer_id("x", 1000)
        for index in range(3):
            node.log(TOPIC, index).append_as_leader(transactions_batch([("odd", odd)], 5), origin="coordinator")

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        await begin_transaction(coordinator, "x", timeout_ms=1000)
        node.now_ms += 60_000
        assert coordinator.abort_late() == 2
        assert (state_of(coordinator, "x"), state_of(coordinator, "odd")) == (S.COMPLETE_ABORT, S.ONGOING)

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


def test_an_end_whose_own_record_is_on_a_failed_disk_does_not_keep_other_ends_from_being_retried(
    tmp_path: Path,
) -> None:
    away = partition_of("x", INTERNAL_PARTITIONS)
    assert partition_of("y", INTERNAL_PARTITIONS) != away

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        ended, find = node.groups.commits.on_transaction_ended, node.replicas.partition

        def fails(*_: object) -> None:
            raise RuntimeError("the group coordinator failed")

        def partition(name: str, index: int) -> Any:
            if (name, index) == (TOPIC, away):
                raise StorageError("the disk is offline")
            return find(name, index)

        node.groups.commits.on_transaction_ended = fails
        for name in ("x", "y"):
            producer = await begin_transaction(coordinator, name)
            assert coordinator.add_partitions(name, producer, [OFFSETS]) == E.NONE
            assert (await coordinator.end(name, producer, True)).error == E.NONE
        node.groups.commits.on_transaction_ended, node.replicas.partition = ended, partition
        node.wait(MAX_RETRY_MS)
        assert (state_of(coordinator, "x"), state_of(coordinator, "y")) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
        node.replicas.partition = find
        node.wait(2 * MAX_RETRY_MS)
        assert state_of(coordinator, "x") == S.COMPLETE_COMMIT

    on_node(tmp_path / "data", work)


def test_an_end_that_fails_while_the_coordinator_stops_is_left_to_the_next_one(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        is_stopping, settling = asyncio.Event(), []

        async def settled(keys: Any) -> int:
            settling.append(keys)
            try:
                await is_stopping.wait()
            except asyncio.CancelledError:
                is_stopping.set()  # another end fails before it is its turn to be cancelled
                for _ in range(5):
                    await asyncio.sleep(0)
                raise
            return E.REQUEST_TIMED_OUT

        ends = []
        for name in ("x", "y"):
            producer = await begin_transaction(coordinator, name)
            ends.append((name, producer))
        find, node.replicas.settled = node.replicas.partition, settled
        node.replicas.partition = lambda *place: SimpleNamespace(**{**vars(find(*place)), "is_alone": False})
        waiting = [asyncio.ensure_future(coordinator.end(*one, True)) for one in ends]
        while len(settling) < len(ends):
            await asyncio.sleep(0)
        await coordinator.stop()
        await asyncio.gather(*waiting)
        assert is_stopping.is_set() and not node._timers

    on_node(tmp_path / "data", work)
