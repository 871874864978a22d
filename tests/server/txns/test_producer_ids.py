"""Producer ids from a coordinator: each is issued once, even with a directory offline or an invented id in use."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.producer_ids import MAX_PRODUCER_ID, PRODUCER_IDS_FILE
from kafkalog.server.txns.coordinator import TransactionCoordinator
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.records import read_transactions
from tests.faults import FaultFS
from tests.server.txns.small_node import SmallNode, open_node
from tests.server.txns.test_coordinator import E, on_node, write


def test_producer_ids_are_given_once_over_restarts(tmp_path: Path) -> None:
    given: list[int] = []

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        many = await asyncio.gather(*(coordinator.init_producer_id(None, 0) for _ in range(1500)))
        given.extend(one.producer_id for one in many)

    for _ in range(3):
        on_node(tmp_path / "data", work)
    assert len(set(given)) == len(given) == 4500
    assert min(given) == 0


def test_producer_ids_that_are_in_a_log_are_not_given_again(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        write(node.log("a"), ProducerEpoch(7000, 3))

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert (await coordinator.init_producer_id(None, 0)).producer_id == 7001

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


def test_producer_ids_of_transactions_are_not_given_again_however_early_one_asks(tmp_path: Path) -> None:
    """A producer that got an id for transactions may have written nothing, and the file of ids may be lost."""
    data = tmp_path / "data"
    ids = []

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for _ in range(5):
            await coordinator.init_producer_id(None, 0)
        ids.append((await coordinator.init_producer_id("x", 60_000)).producer_id)

    on_node(data, work)
    (data / PRODUCER_IDS_FILE).unlink()

    async def ask_first() -> None:
        run = node.run

        async def slowly(function: Any, *args: Any, **named: Any) -> Any:
            for _ in range(100 if function is read_transactions else 0):
                await asyncio.sleep(0)
            return await run(function, *args, **named)

        node.run = slowly  # type: ignore[method-assign]
        await node.transactions.start()
        many = await asyncio.gather(*(node.transactions.init_producer_id(None, 0) for _ in range(20)))
        ids.extend(one.producer_id for one in many)
        await node.transactions.stop()

    with open_node(data) as node:
        asyncio.run(ask_first())
    assert ids == list(range(5, 26))


def test_an_id_that_was_made_up_does_not_use_up_all_others(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for made_up in (MAX_PRODUCER_ID, MAX_PRODUCER_ID - 1500):
            write(node.log("a"), ProducerEpoch(made_up, 3))

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        many = await asyncio.gather(*(coordinator.init_producer_id(None, 0) for _ in range(3000)))
        assert [one.producer_id for one in many] == list(range(3000))

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


def test_producer_ids_are_given_once_while_a_directory_is_away(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    given: list[int] = []

    def on(*directories: Path) -> None:
        with LogManager.open(directories, BrokerConfig()) as store:
            node = SmallNode(store)

            async def run() -> None:
                await node.transactions.start()
                given.append((await node.transactions.init_producer_id(None, 0)).producer_id)
                await node.transactions.stop()

            asyncio.run(run())

    on(*paths)
    on(paths[1])
    on(paths[0])
    on(*paths)
    assert given[0] < given[1] < given[3] and given[0] < given[2] < given[3]


@pytest.mark.parametrize("away", [0, 1])
def test_a_directory_that_takes_no_reservation_does_not_keep_others_from_it(tmp_path: Path, away: int) -> None:
    fs = FaultFS()
    paths = [tmp_path / "one", tmp_path / "two"]
    with LogManager.open(paths, BrokerConfig(), fs=fs) as store:
        node = SmallNode(store)

        async def run() -> None:
            await node.transactions.start()
            fs.fail("open", path=f"{paths[away].name}/{PRODUCER_IDS_FILE}")
            assert (await node.transactions.init_producer_id(None, 0)).error == E.NONE
            fs.heal()
            await node.transactions.stop()

        asyncio.run(run())
    assert [(path / PRODUCER_IDS_FILE).exists() for path in paths] == [away != 0, away != 1]
