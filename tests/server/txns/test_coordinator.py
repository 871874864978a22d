"""The coordinator on real logs: what it answers, what lies in the partitions then, and what a restart makes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import StorageError
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.memory import MemoryRecords
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.txns.coordinator import RETRY_MS, Assigned, TransactionCoordinator
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.records import TOPIC, transactions_batch
from kafkalog.server.txns.states import EPOCH_BUMPS, TransactionState
from kafkalog.server.txns.transaction import LAST_EPOCH, Transaction
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.server.txns.small_node import SmallNode, open_node

S, E = TransactionState, ErrorCode
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OFFSETS = TopicPartition("__consumer_offsets", 0)
Work = Callable[[SmallNode, TransactionCoordinator], Awaitable[None]]


def on_node(directory: Path, work: Work, fs: FaultFS | None = None, damage: Callable[[], None] | None = None) -> None:
    """Runs `work` between start and stop of a node on `directory`; `damage` comes when its logs are open."""

    async def run(node: SmallNode) -> None:
        await node.transactions.start()
        await node.transactions.loaded()
        try:
            await work(node, node.transactions)
        finally:
            await node.transactions.stop()

    with open_node(directory, *([fs] if fs else [])) as node:
        if not node.store.logs:
            node.add_topic("a", 2)
            node.add_topic("__consumer_offsets", 1)
        if damage is not None:
            damage()
        asyncio.run(run(node))


def write(log: UnifiedLog, producer: ProducerEpoch, sequence: int = 0) -> None:
    builder = RecordsBuilder(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=sequence, is_transactional=True
    )
    builder.append(5, b"k", b"v")
    log.append_as_leader(builder.build())


def markers(log: UnifiedLog) -> list[tuple[str, int, int]]:
    """Kind, producer epoch and coordinator epoch of the markers in a log."""
    found = []
    for batch in MemoryRecords(log.read(0, 1 << 30).records.read()).batches():
        if (control := batch.control) is not None:
            found.append((control.type.name, batch.header.producer_epoch, control.coordinator_epoch))
    return found


async def begin_transaction(
    coordinator: TransactionCoordinator, name: str = "x", timeout_ms: int = 60_000
) -> ProducerEpoch:
    assigned = await coordinator.init_producer_id(name, timeout_ms)
    assert assigned.error == E.NONE
    producer = ProducerEpoch(assigned.producer_id, assigned.producer_epoch)
    assert coordinator.add_partitions(name, producer, [A0, A1]) == E.NONE
    return producer


def state_of(coordinator: TransactionCoordinator, name: str = "x") -> TransactionState:
    found = coordinator.describe(name)[1]
    assert found is not None
    return found.state


def test_a_commit_is_in_every_partition_when_it_is_answered(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        assert coordinator.add_partitions("x", producer, [OFFSETS]) == E.NONE
        write(node.log("a"), producer)
        assert node.log("a").last_stable_offset == 0
        assert await coordinator.end("x", producer, True) == Assigned(E.NONE, *producer)
        assert node.log("a").last_stable_offset == node.log("a").log_end_offset == 2
        assert markers(node.log("a")) == markers(node.log("a", 1)) == [("COMMIT", 0, 0)]
        assert node.marked == [(producer.producer_id, 0, [0], True)]
        assert state_of(coordinator) == S.COMPLETE_COMMIT
        assert await coordinator.end("x", producer, True) == Assigned(E.NONE, *producer)
        assert await coordinator.end("x", producer, False) == Assigned(E.INVALID_TXN_STATE)
        assert len(markers(node.log("a"))) == 1

    on_node(tmp_path / "data", work)


def test_by_version_2_the_answer_has_the_epoch_to_go_on_with(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = ProducerEpoch((await coordinator.init_producer_id("x", 1000)).producer_id, 0)
        for epoch in range(3):
            now = producer._replace(epoch=epoch)
            assert coordinator.verify("x", *now, [A0], produce_version=12) == {A0: E.NONE}
            write(node.log("a"), now)
            assert await coordinator.end("x", now, epoch != 1, EPOCH_BUMPS) == Assigned(E.NONE, now[0], epoch + 1)
        assert markers(node.log("a")) == [("COMMIT", 1, 0), ("ABORT", 2, 0), ("COMMIT", 3, 0)]
        assert await coordinator.end("x", now, True, EPOCH_BUMPS) == Assigned(E.NONE, now[0], 3)

    on_node(tmp_path / "data", work)


def test_epochs_that_are_used_up_lead_to_another_producer(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        first = (await coordinator.init_producer_id("x", 1000)).producer_id
        last = ProducerEpoch(first, LAST_EPOCH)
        known = coordinator.describe("x")[1]
        assert known is not None
        coordinator._log.write(known._replace(producer_epoch=LAST_EPOCH))
        assert coordinator.add_partitions("x", last, [A0], EPOCH_BUMPS) == E.NONE
        write(node.log("a"), last)
        ended = await coordinator.end("x", last, True, EPOCH_BUMPS)
        assert (ended.error, ended.producer_epoch) == (E.NONE, 0) and ended.producer_id > first
        assert markers(node.log("a")) == [("COMMIT", LAST_EPOCH + 1, 0)]
        assert await coordinator.end("x", last, True, EPOCH_BUMPS) == ended  # the answer did not arrive
        coordinator._log.write(known._replace(producer_epoch=LAST_EPOCH))
        rotated = await coordinator.init_producer_id("x", 1000)
        assert rotated.producer_epoch == 0 and rotated.producer_id > ended.producer_id

    on_node(tmp_path / "data", work)


def test_who_comes_back_aborts_what_was_open_and_fences_who_wrote_it(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        old = await begin_transaction(coordinator)
        write(node.log("a"), old)
        assert await coordinator.init_producer_id("x", 1000) == Assigned(E.CONCURRENT_TRANSACTIONS)
        assert markers(node.log("a")) == [("ABORT", 1, 0)]
        new = await coordinator.init_producer_id("x", 1000)
        assert new == Assigned(E.NONE, old.producer_id, 2)
        assert coordinator.add_partitions("x", old, [A0]) == E.PRODUCER_FENCED
        assert await coordinator.end("x", old, True) == Assigned(E.PRODUCER_FENCED)
        assert coordinator.verify("x", *old, [A0], produce_version=9) == {A0: E.INVALID_PRODUCER_EPOCH}
        assert await coordinator.init_producer_id("x", 1000, old) == Assigned(E.PRODUCER_FENCED)

    on_node(tmp_path / "data", work)


def test_what_is_refused_at_once(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for timeout_ms in (0, -1, 900_001):
            assert await coordinator.init_producer_id("x", timeout_ms) == Assigned(E.INVALID_TRANSACTION_TIMEOUT)
        assert await coordinator.init_producer_id("", 1000) == Assigned(E.INVALID_REQUEST)
        nobody = ProducerEpoch(5, 0)
        assert coordinator.add_partitions("", nobody, [A0]) == E.INVALID_REQUEST
        assert await coordinator.end("", nobody, True) == Assigned(E.INVALID_REQUEST)
        assert coordinator.verify_partitions("", nobody, [A0]) == {A0: E.INVALID_REQUEST}
        assert coordinator.describe("") == (E.INVALID_REQUEST, None)
        assert coordinator.describe("none")[0] == E.TRANSACTIONAL_ID_NOT_FOUND
        assert coordinator.add_partitions("none", nobody, [A0]) == E.INVALID_PRODUCER_ID_MAPPING

    on_node(tmp_path / "data", work)


@pytest.mark.parametrize(
    ("version", "known", "unknown"),
    [(9, E.NONE, E.INVALID_TXN_STATE), (11, E.NONE, E.TRANSACTION_ABORTABLE), (12, E.NONE, E.NONE)],
)
def test_what_a_produce_is_told_of_its_partitions(tmp_path: Path, version: int, known: E, unknown: E) -> None:
    """FLOW-9"""

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        other = TopicPartition("b", 0)
        assert coordinator.verify("x", *producer, [A0, other], produce_version=version)[A0] == known
        assert coordinator.verify("x", *producer, [other], produce_version=version)[other] == unknown
        assert coordinator.verify("none", 1, 0, [A0], produce_version=version) == {A0: E.INVALID_PRODUCER_ID_MAPPING}

    on_node(tmp_path / "data", work)


def test_what_passes_is_told_as_an_error_that_clients_try_again(tmp_path: Path) -> None:
    """FLOW-9"""

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        known = coordinator.describe("x")[1]
        assert known is not None
        coordinator._log.write(known._replace(state=S.PREPARE_COMMIT))
        for version, code in ((9, E.NOT_ENOUGH_REPLICAS), (12, E.CONCURRENT_TRANSACTIONS)):
            assert coordinator.verify("x", *producer, [A0], produce_version=version) == {A0: code}
        assert coordinator.verify_commit("x", producer, OFFSETS, 3) == E.CONCURRENT_TRANSACTIONS
        coordinator._log.is_loading = True
        for version in (9, 12):
            assert coordinator.verify("x", *producer, [A0], produce_version=version) == {A0: E.NOT_ENOUGH_REPLICAS}
        assert coordinator.verify_commit("x", producer, OFFSETS, 3) == E.COORDINATOR_LOAD_IN_PROGRESS
        coordinator._log.is_loading = False

    on_node(tmp_path / "data", work)


def test_offsets_are_committed_in_a_transaction_that_knows_of_them(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        assert coordinator.verify_commit("x", producer, OFFSETS, 3) == E.INVALID_TXN_STATE
        assert coordinator.verify_commit("x", producer, OFFSETS, 4) == E.TRANSACTION_ABORTABLE
        assert coordinator.verify_commit("x", producer, OFFSETS, 5) == E.NONE
        assert coordinator.verify_commit("x", producer, OFFSETS, 3) == E.NONE  # version 5 added it
        old = producer._replace(epoch=9)
        assert coordinator.verify_commit("x", old, OFFSETS, 3) == E.INVALID_PRODUCER_EPOCH

    on_node(tmp_path / "data", work)


def test_late_transactions_are_aborted_and_idle_ids_forgotten(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator, timeout_ms=15_000)
        write(node.log("a"), producer)
        node.wait(10_000)
        assert state_of(coordinator) == S.ONGOING
        node.wait(10_000)
        assert state_of(coordinator) == S.COMPLETE_ABORT
        assert markers(node.log("a")) == [("ABORT", 1, 0)]
        assert await coordinator.end("x", producer, True) == Assigned(E.PRODUCER_FENCED)
        node.wait(8 * 86_400_000)
        assert coordinator.describe("x")[0] == E.TRANSACTIONAL_ID_NOT_FOUND

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert coordinator.transactions() == []

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


def test_a_restart_knows_everything_but_what_only_memory_had(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for name in "xyz":
            kept[name] = await begin_transaction(coordinator, name)
        await coordinator.end("y", kept["y"], True)
        kept["all"] = coordinator.transactions()

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert sorted(coordinator.transactions() or ()) == sorted(kept["all"])
        assert await coordinator.end("x", kept["x"], True) == Assigned(E.NONE, *kept["x"])
        fresh = await coordinator.init_producer_id(None, 0)
        assert fresh.producer_id > max(kept[name].producer_id for name in "xyz")

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_end_that_a_crash_cut_off_is_written_by_the_next_start(tmp_path: Path, state: TransactionState) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        write(node.log("a"), producer)
        known = coordinator.describe("x")[1]
        assert known is not None
        coordinator._log.write(known._replace(state=state))  # and no marker: the process ends here

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        committed = state == S.PREPARE_COMMIT
        assert state_of(coordinator) == (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
        assert markers(node.log("a")) == [("COMMIT" if committed else "ABORT", 0, 0)]
        assert node.log("a").last_stable_offset == 2

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after)
    on_node(tmp_path / "data", after)  # and no second time


def test_markers_wait_until_the_groups_are_known(tmp_path: Path) -> None:
    with open_node(tmp_path / "data") as node:
        node.add_topic(TOPIC, 1)
        node.add_topic("__consumer_offsets", 1)
        prepared = Transaction("x", 7, 0, 1000, S.PREPARE_COMMIT, frozenset([OFFSETS]), 5, 5)
        node.log(TOPIC).append_as_leader(transactions_batch([("x", prepared)], 5), origin="coordinator")

        async def run() -> None:
            coordinator = node.transactions
            node.groups_are_loaded.clear()
            await coordinator.start()
            await asyncio.sleep(0.05)
            assert node.marked == [] and coordinator.transactions() is None
            assert coordinator.add_partitions("x", ProducerEpoch(7, 0), [A0]) == E.COORDINATOR_LOAD_IN_PROGRESS
            assert (await coordinator.init_producer_id(None, 0)).error == E.NONE
            node.groups_are_loaded.set()
            await coordinator.loaded()
            assert node.marked == [(7, 0, [0], True)]
            await coordinator.stop()

        asyncio.run(run())


def test_an_end_is_certain_once_it_is_written_and_is_tried_again_until_a_disk_takes_it(tmp_path: Path) -> None:
    fs = FaultFS()

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        write(node.log("a"), producer)
        write(node.log("a", 1), producer)
        rule = fs.fail("pwrite", path="a-1/", times=1)
        assert await coordinator.end("x", producer, True) == Assigned(E.NONE, *producer)
        assert rule.fired == 1
        assert (len(markers(node.log("a"))), len(markers(node.log("a", 1)))) == (1, 0)
        assert state_of(coordinator) == S.PREPARE_COMMIT
        assert coordinator.add_partitions("x", producer, [A0]) == E.CONCURRENT_TRANSACTIONS
        assert await coordinator.init_producer_id("x", 1000) == Assigned(E.CONCURRENT_TRANSACTIONS)
        node.wait(RETRY_MS)
        assert (len(markers(node.log("a"))), len(markers(node.log("a", 1)))) == (1, 1)
        assert state_of(coordinator) == S.COMPLETE_COMMIT

    on_node(tmp_path / "data", work, fs)


def test_an_end_is_tried_again_whatever_went_wrong_and_less_often_each_time(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        tried: list[int] = []

        def fails(*_: object) -> None:
            tried.append(node.now_ms)
            raise RuntimeError("the group coordinator failed")

        node.groups.commits.on_transaction_ended, ended = fails, node.groups.commits.on_transaction_ended
        assert coordinator.add_partitions("x", producer, [OFFSETS]) == E.NONE
        assert (await coordinator.end("x", producer, True)).error == E.NONE
        node.wait(20_000)
        waits = [after - before for before, after in pairwise(tried)]
        assert waits == [100, 200, 400, 800, 1600, 3200, 6400] and state_of(coordinator) == S.PREPARE_COMMIT
        node.groups.commits.on_transaction_ended = ended
        node.wait(10_000)
        assert state_of(coordinator) == S.COMPLETE_COMMIT and len(node.marked) == 1

    on_node(tmp_path / "data", work)


def test_an_id_with_records_in_two_partitions_is_what_the_newer_one_says(tmp_path: Path) -> None:
    with open_node(tmp_path / "data") as node:
        node.add_topic(TOPIC, 2)
        for index in (0, 1):
            for name, newer in (("x", 0), ("y", 1)):
                known = Transaction(name, 7, index, 1000, S.EMPTY, update_ms=100 + (index == newer))
                batch = transactions_batch([(name, known)], 5)
                node.log(TOPIC, index).append_as_leader(batch, origin="coordinator")

        async def run() -> None:
            await node.transactions.start()
            await node.transactions.loaded()
            found = {one.transactional_id: one.producer_epoch for one in node.transactions.transactions() or ()}
            assert found == {"x": 0, "y": 1}
            await node.transactions.stop()

        asyncio.run(run())


def test_what_a_disk_refuses_changes_nothing(tmp_path: Path) -> None:
    fs = FaultFS()

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        before = coordinator.describe("x")
        for step in range(3):
            rule = fs.fail("pwrite", path=TOPIC, times=1)
            if step == 0:
                assert (await coordinator.end("x", producer, True)).error == E.NOT_COORDINATOR
            elif step == 1:
                assert coordinator.add_partitions("x", producer, [OFFSETS]) == E.NOT_COORDINATOR
            else:
                assert (await coordinator.init_producer_id("x", 1000)).error == E.NOT_COORDINATOR
            assert rule.fired == 1 and coordinator.describe("x") == before
        assert markers(node.log("a")) == []
        assert (await coordinator.end("x", producer, True)).error == E.NONE

    on_node(tmp_path / "data", work, fs)


def test_a_partition_that_was_deleted_does_not_keep_a_transaction_open(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        assert coordinator.add_partitions("x", producer, [TopicPartition("gone", 3)]) == E.NONE
        assert (await coordinator.end("x", producer, True)).error == E.NONE
        assert state_of(coordinator) == S.COMPLETE_COMMIT

    on_node(tmp_path / "data", work)


def test_an_end_waits_for_a_partition_whose_disk_is_away(tmp_path: Path) -> None:
    homes = {TopicPartition(TOPIC, 0): tmp_path / "one", A1: tmp_path / "one", A0: tmp_path / "two"}

    def with_both(work: Work) -> None:
        with LogManager.open([tmp_path / "one", tmp_path / "two"], BrokerConfig()) as store:
            for key, home in homes.items():
                store.get_or_create(key, directory=home)
            node = SmallNode(store)

            async def run() -> None:
                await node.transactions.start()
                await node.transactions.loaded()
                await work(node, node.transactions)
                await node.transactions.stop()

            asyncio.run(run())

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        write(node.log("a"), producer)
        node.store.fail_directory(tmp_path / "two", OSError(5, "the disk"))
        assert await coordinator.end("x", producer, True) == Assigned(E.NONE, *producer)
        assert state_of(coordinator) == S.PREPARE_COMMIT and len(markers(node.log("a", 1))) == 1

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert state_of(coordinator) == S.COMPLETE_COMMIT
        assert markers(node.log("a")) == [("COMMIT", 0, 0)] and node.log("a").last_stable_offset == 2

    with_both(work)
    with_both(after)


def test_ids_in_a_damaged_partition_are_not_served_and_the_others_are(tmp_path: Path) -> None:
    names = ["x", "y", "z"]  # three partitions, one each

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        for name in names:
            await begin_transaction(coordinator, name)
        for _ in range(2):
            await coordinator.init_producer_id("x", 1000)

    async def after(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        assert coordinator.describe("x")[0] == E.COORDINATOR_NOT_AVAILABLE
        assert (await coordinator.init_producer_id("x", 1000)).error == E.COORDINATOR_NOT_AVAILABLE
        assert {coordinator.describe(name)[0] for name in names[1:]} == {E.NONE}

    def damage() -> None:
        path = max((tmp_path / "data").glob(f"{TOPIC}-*/*.log"), key=lambda path: path.stat().st_size)
        content = bytearray(path.read_bytes())
        content[70] ^= 0xFF
        path.write_bytes(content)

    on_node(tmp_path / "data", work)
    on_node(tmp_path / "data", after, damage=damage)


def test_an_end_needs_no_producer_id(tmp_path: Path) -> None:
    fs = FaultFS()

    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        producer = await begin_transaction(coordinator)
        ids = coordinator._ids
        assert ids is not None
        ids.skip_to(ids._end)
        fs.fail("open", path=PRODUCER_IDS_FILE)
        assert await coordinator.end("x", producer, True) == Assigned(E.NONE, *producer)
        with pytest.raises(StorageError):
            await coordinator.init_producer_id(None, 0)
        fs.heal()

    on_node(tmp_path / "data", work, fs)


def test_lists_are_filtered(tmp_path: Path) -> None:
    async def work(node: SmallNode, coordinator: TransactionCoordinator) -> None:
        first = await begin_transaction(coordinator, "one")
        node.now_ms += 500
        second = await begin_transaction(coordinator, "two")
        await coordinator.end("two", second, True)

        def names(*filters: Any) -> list[str]:
            return [one.transactional_id for one in coordinator.transactions(*filters) or ()]

        assert names() == ["one", "two"]
        assert names({"Ongoing"}) == ["one"] and names({"CompleteCommit", "Dead"}) == ["two"] and names({"?"}) == []
        assert names((), {first.producer_id, 12345}) == ["one"]
        assert names((), (), 499) == ["one"] and names((), (), 500) == []

    on_node(tmp_path / "data", work)
