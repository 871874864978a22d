"""Errors of the transaction coordinator are in the server's log: place, reason, and a traceback if unexpected."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.server.txns.coordinator import TransactionCoordinator
from kafkalog.server.txns.producer_ids import ProducerIds
from kafkalog.server.txns.records import TOPIC, read_transactions, transactions_batch
from kafkalog.server.txns.transaction import Transaction
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.server.looping import in_loop
from tests.server.txns.small_node import SmallNode, open_node
from tests.server.txns.test_coordinator import OFFSETS, E, S, begin_transaction, on_node, state_of


def lines(caplog: pytest.LogCaptureFixture, start: str) -> list[tuple[str, bool]]:
    """The errors and warnings that begin so, and whether each has a traceback."""
    found = [(record.getMessage(), record.exc_info is not None) for record in caplog.records]
    return [(message, is_traced) for message, is_traced in found if message.startswith(start)]


@pytest.mark.parametrize("error", [StorageError("the disk", path="p"), ValueError("strange")])
@in_loop
async def test_transactions_that_cannot_be_read_are_logged_with_their_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    with open_node(tmp_path / "data") as node:
        coordinator, run = node.transactions, node.run

        async def failing(function: Any, *args: Any, **named: Any) -> Any:
            if function is read_transactions:
                raise error
            return await run(function, *args, **named)

        node.run = failing  # type: ignore[method-assign]
        node.add_topic(TOPIC, 1)
        batch = transactions_batch([("x", Transaction("x", 1, 0, 9))], 5)
        node.log(TOPIC).append_as_leader(batch, origin="coordinator")
        await coordinator.start()
        await coordinator.loaded()
        assert coordinator.describe("x")[0] == E.COORDINATOR_NOT_AVAILABLE
        await coordinator.stop()
    expected = f"the transactions of {TOPIC}-0 cannot be read and are not served: {error}"
    assert lines(caplog, "the transactions of") == [(expected, not isinstance(error, StorageError))]


def test_an_end_that_cannot_go_on_is_logged_by_its_transaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)

        def fails(*_: object) -> None:
            raise RuntimeError("the group coordinator failed")

        node.groups.commits.on_transaction_ended = fails
        assert coordinator.add_partitions("x", producer, [OFFSETS]) == E.NONE
        assert (await coordinator.end("x", producer, True)).error == E.NONE
        assert state_of(coordinator) == S.PREPARE_COMMIT
        assert lines(caplog, "the end of") == [("the end of transaction 'x' is incomplete and will be retried", True)]

    on_node(tmp_path / "data", work)


@in_loop
async def test_a_reservation_that_no_directory_takes_is_refused_and_each_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultFS()
    paths = [str(tmp_path / name) for name in ("one", "two")]
    for path in paths:
        Path(path).mkdir()

    async def run(function: Any, *args: Any) -> Any:
        return function(*args)

    ids = ProducerIds(paths, 5, run, fs=fs)
    fs.fail("open", path=PRODUCER_IDS_FILE)
    with pytest.raises(StorageError, match=PRODUCER_IDS_FILE):
        await ids.ready()
    caplog.set_level(logging.WARNING)
    for path in paths:
        [(message, _)] = lines(caplog, f"cannot reserve producer ids below 1005 in {path}: ")
        assert PRODUCER_IDS_FILE in message
    fs.heal()
    await ids.ready()
    assert ids.take() == 5, "nothing was given meanwhile"


def test_a_partition_that_takes_no_marker_is_logged_with_its_producer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        assert coordinator.add_partitions("x", producer, [TopicPartition("gone", 3)]) == E.NONE
        assert (await coordinator.end("x", producer, True)).error == E.NONE
        assert state_of(coordinator) == S.COMPLETE_COMMIT
        [(message, _)] = lines(caplog, "cannot write")
        assert message.startswith(f"cannot write the marker of producer {producer.producer_id} to gone-3: ")

    on_node(tmp_path / "data", work)
