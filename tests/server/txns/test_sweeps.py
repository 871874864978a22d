"""The sweeps of the transaction coordinator: one id that is odd, or very many, keep nothing else from its turn."""

from __future__ import annotations

from pathlib import Path

from kafkalog.server.error_codes import ErrorCode as E
from kafkalog.server.txns.coordinator import TransactionCoordinator
from kafkalog.server.txns.records import TOPIC, transactions_batch
from kafkalog.server.txns.states import TransactionState as S
from kafkalog.server.txns.transaction import LAST_EPOCH, Transaction
from tests.server.txns.small_node import SmallNode
from tests.server.txns.test_coordinator import A0, begin_transaction, on_node, state_of


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
