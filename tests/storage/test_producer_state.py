"""A log's producer state: sequences, epochs, transactions, snapshots (checklist PSM)."""

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.staged import CompletedTxn
from kafkalog.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkalogError,
    OutOfOrderSequence,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.names import snapshot_file_name
from kafkalog.storage.producer_snapshot import ProducerEntry, format_snapshot, parse_snapshot, read_snapshot
from kafkalog.storage.producer_state import ProducerStateManager

MAX = 2**31 - 1
DAY = 86_400_000
PID = 1


class Driver:
    """A manager, and a log end that moves with each append."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.manager = ProducerStateManager(os.fspath(folder), **more)
        self.end = 0

    def data(
        self,
        sequence: int,
        epoch: int = 0,
        *,
        pid: int = PID,
        count: int = 1,
        txn: bool = False,
        offset: int | None = None,
        time: int = 1000,
        origin: str = "client",
        guard: Any = None,
    ) -> Any:
        builder = RecordsBuilder(
            self.end if offset is None else offset,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=txn,
        )
        for _ in range(count):
            builder.append(time, b"k", b"v")
        return self.take(builder.build(), origin, guard=guard)

    def marker(
        self,
        kind: ControlType = ControlType.COMMIT,
        epoch: int = 0,
        *,
        pid: int = PID,
        coordinator: int = 0,
        origin: str = "coordinator",
        time: int = 2000,
        bumps: bool = False,
    ) -> list[tuple[CompletedTxn, int]]:
        batch = marker_batch(kind, pid, epoch, coordinator, timestamp=time, base_offset=self.end)
        return self.take(batch, origin, bumps=bumps)

    def take(self, batch: bytearray, origin: str, *, guard: Any = None, bumps: bool = False) -> Any:
        table = scan(batch)
        staged = self.manager.stage(table, 0, len(table), batch, origin=origin, guard=guard, epoch_bumps=bumps)
        if staged is None:
            self.end = table.last_offset + 1
            return []
        if staged.duplicate is not None:
            return staged.duplicate
        completed = self.manager.producers.completions(staged)
        self.end = table.last_offset + 1
        self.manager.commit(staged, self.end, 0)
        return completed

    @property
    def known(self) -> Any:
        return self.manager.producers.get(PID)

    def refused(self, kind: type[KafkalogError], step: str, *args: Any, **more: Any) -> None:
        before = self.manager.producers.get(PID)
        held = None if before is None else (before.entry(), before.batches)
        with pytest.raises(kind) as caught:
            getattr(self, step)(*args, **more)
        assert str(PID) in str(caught.value) or kind is InvalidRecord
        now = self.manager.producers.get(PID)
        assert held == (None if now is None else (now.entry(), now.batches))  # PSM-32


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


class TestSequences:
    @pytest.mark.parametrize("first", [0, 5, MAX])
    def test_a_new_producer_may_begin_anywhere(self, driver: Driver, first: int) -> None:
        """PSM-1."""
        driver.data(first)
        assert (driver.known.first_sequence, driver.known.last_sequence) == (first, first)

    def test_the_next_sequence_follows(self, driver: Driver) -> None:
        """PSM-2."""
        driver.data(0)
        driver.data(1, count=3)
        for wrong in (3, 5, 2):
            driver.refused(OutOfOrderSequence, "data", wrong)
        driver.data(4)

    def test_after_the_largest_comes_zero(self, driver: Driver) -> None:
        """PSM-2."""
        driver.data(MAX)
        driver.refused(OutOfOrderSequence, "data", 1)
        driver.data(0)

    def test_a_batch_may_pass_the_largest_sequence(self, driver: Driver) -> None:
        """PSM-29."""
        driver.data(MAX - 1, count=4)
        assert (driver.known.first_sequence, driver.known.last_sequence) == (MAX - 1, 1)
        driver.data(2)

    def test_a_new_epoch_begins_at_zero(self, driver: Driver) -> None:
        """PSM-3."""
        driver.data(0)
        driver.data(1)
        driver.refused(OutOfOrderSequence, "data", 2, 1)
        driver.data(0, 1)
        assert driver.known.producer_epoch == 1 and len(driver.known.batches) == 1

    def test_an_old_epoch_is_refused_from_a_client_and_taken_as_copied(self, driver: Driver) -> None:
        """PSM-4, LOG-63."""
        driver.data(0, 3)
        driver.refused(InvalidProducerEpoch, "data", 1, 2)
        driver.data(7, 2, origin="replication")
        assert (driver.known.producer_epoch, driver.known.last_sequence) == (2, 7)

    def test_gaps_are_taken_as_copied(self, driver: Driver) -> None:
        """PSM-4, PSM-30."""
        driver.data(0, origin="replication")
        driver.data(2, origin="replication", offset=17, count=2)
        assert (driver.known.last_sequence, driver.known.last_offset, driver.known.last_offset_delta) == (3, 18, 1)

    def test_five_batches_are_remembered(self, driver: Driver) -> None:
        """PSM-5, LOG-60, LOG-61."""
        for number in range(6):
            driver.data(2 * number, count=2, time=1000 + number)
        assert [b[:4] for b in driver.known.batches] == [(2 * n, 2 * n + 1, 2 * n, 2 * n + 1) for n in range(1, 6)]
        end = driver.end
        assert driver.data(2, count=2) == (2, 3, 1001)
        assert driver.data(10, count=2) == (10, 11, 1005)
        driver.refused(OutOfOrderSequence, "data", 0, count=2)
        driver.refused(OutOfOrderSequence, "data", 10, count=1)
        assert driver.end == end

    def test_producers_do_not_disturb_each_other(self, driver: Driver) -> None:
        """LOG-62."""
        for number in range(3):
            driver.data(number)
            driver.data(number, pid=2)
        assert driver.manager.producers.get(2).last_sequence == driver.known.last_sequence == 2


class TestMarkers:
    def test_after_a_marker_alone_sequences_begin_at_zero(self, driver: Driver) -> None:
        """PSM-6, LOG-67."""
        assert driver.marker() == []
        driver.refused(OutOfOrderSequence, "data", 1)
        driver.data(0)

    def test_a_marker_of_a_higher_epoch_empties_the_window(self, driver: Driver) -> None:
        """PSM-6."""
        driver.data(0)
        driver.data(1)
        driver.marker(epoch=0)
        driver.data(2)
        driver.marker(epoch=1)
        driver.refused(OutOfOrderSequence, "data", 2, 1)
        driver.data(0, 1)

    def test_transactions_begin_with_their_first_batch(self, driver: Driver) -> None:
        """PSM-7, PSM-13."""
        driver.data(0, txn=True)
        driver.data(0, pid=2, txn=True)
        driver.data(1, txn=True)
        assert driver.known.current_txn_first_offset == 0
        assert list(driver.manager.producers.open_transactions.items()) == [(0, PID), (1, 2)]
        assert driver.manager.producers.first_unstable_offset == 0

    def test_no_other_batch_while_one_is_open(self, driver: Driver) -> None:
        """PSM-8."""
        driver.data(0, txn=True)
        driver.refused(InvalidTxnState, "data", 1)

    def test_a_marker_completes(self, driver: Driver) -> None:
        """PSM-9, PSM-13, PSM-14."""
        driver.data(0, txn=True)
        driver.data(0, pid=2, txn=True)
        assert driver.marker(ControlType.ABORT) == [(CompletedTxn(PID, 0, 2, True), 1)]
        assert driver.manager.first_unstable_offset == 0
        assert driver.marker(pid=2) == [(CompletedTxn(2, 1, 3, False), 4)]
        driver.manager.on_high_watermark(2)
        assert driver.manager.first_unstable_offset == 0
        driver.manager.on_high_watermark(3)
        assert driver.manager.first_unstable_offset == 1
        driver.manager.on_high_watermark(4)
        assert driver.manager.first_unstable_offset == -1

    def test_epochs_of_markers(self, driver: Driver) -> None:
        """PSM-10: transaction versions 0 and 1."""
        driver.data(0, 2, txn=True)
        driver.refused(InvalidProducerEpoch, "marker", epoch=1)
        driver.marker(epoch=2)
        driver.marker(epoch=5)
        assert driver.known.producer_epoch == 5
        driver.refused(InvalidProducerEpoch, "marker", epoch=4)
        driver.marker(epoch=1, origin="replication")

    def test_epochs_of_markers_that_bump(self, driver: Driver) -> None:
        """PSM-10, PSM-33: transaction version 2."""
        driver.data(0, txn=True)
        driver.refused(InvalidProducerEpoch, "marker", epoch=0, bumps=True)
        driver.marker(epoch=1, bumps=True)
        assert driver.known.producer_epoch == 1 and driver.known.batches == []
        driver.marker(epoch=1, bumps=True)
        driver.refused(InvalidProducerEpoch, "marker", epoch=0, bumps=True)
        driver.refused(OutOfOrderSequence, "data", 1, 1, txn=True)
        driver.data(0, 1, txn=True)

    def test_an_old_coordinator_is_fenced(self, driver: Driver) -> None:
        """PSM-11, LOG-66."""
        driver.data(0, txn=True)
        driver.marker(coordinator=5)
        driver.refused(CoordinatorFenced, "marker", coordinator=4)
        driver.data(0, 1)
        assert driver.known.coordinator_epoch == 5
        driver.marker(epoch=1, coordinator=4, origin="replication")
        assert driver.known.coordinator_epoch == 4

    def test_a_marker_that_was_compacted_away(self, driver: Driver) -> None:
        """PSM-12."""
        driver.data(0, txn=True)
        empty = bytearray(marker_batch(ControlType.COMMIT, PID, 0, 0, timestamp=1, base_offset=1)[:61])
        empty[8:12] = (61 - 12).to_bytes(4, "big")
        empty[57:61] = bytes(4)
        assert driver.take(empty, "replication") == []
        assert driver.known.current_txn_first_offset == 0

    def test_a_copied_marker_of_a_lower_epoch(self, driver: Driver) -> None:
        """PSM-35."""
        driver.data(0, 3)
        driver.marker(epoch=1, origin="replication")
        assert driver.known.producer_epoch == 1 and driver.known.batches == []

    def test_an_unreadable_marker_is_refused_and_passed_over_as_copied(self, driver: Driver) -> None:
        marker = marker_batch(ControlType.COMMIT, PID, 0, 0, timestamp=1)
        marker[66:68] = b"\xff\xff"  # the version of the key
        driver.refused(InvalidRecord, "take", marker, "coordinator")
        assert driver.take(marker, "replication") == []

    def test_many_in_one_append(self, driver: Driver) -> None:
        """The state right after each marker counts, not that after the whole append."""
        parts = b""
        end = 0
        for pid in (1, 2):
            builder = RecordsBuilder(end, producer_id=pid, producer_epoch=0, base_sequence=0, is_transactional=True)
            builder.append(5, None, b"v")
            parts += builder.build()
            end += 1
        for pid in (1, 2):
            parts += marker_batch(ControlType.ABORT, pid, 0, 0, timestamp=5, base_offset=end)
            end += 1
        assert driver.take(bytearray(parts), "replication") == [
            (CompletedTxn(1, 0, 2, True), 1), (CompletedTxn(2, 1, 3, True), 4),
        ]  # fmt: skip


class TestTime:
    def test_idle_producers_are_forgotten(self, driver: Driver) -> None:
        """PSM-15."""
        driver.data(0, time=1000)
        driver.data(0, pid=2, time=1000, txn=True)
        driver.manager.remove_expired(1000 + DAY - 1)
        assert driver.known is not None
        driver.manager.remove_expired(1000 + DAY)
        assert driver.known is None and driver.manager.producers.get(2) is not None

    def test_a_marker_counts_as_life(self, driver: Driver) -> None:
        """PSM-15."""
        driver.data(0, time=1000)
        driver.marker(time=5000)
        driver.manager.remove_expired(1000 + DAY)
        assert driver.known is not None

    def test_late_transactions(self, driver: Driver) -> None:
        """PSM-26."""
        driver.data(0, time=1000, txn=True)
        longest = 900_000
        assert not driver.manager.has_late_transaction(1000 + longest + 300_000, longest)
        assert driver.manager.has_late_transaction(1001 + longest + 300_000, longest)
        driver.marker()
        assert not driver.manager.has_late_transaction(10 * DAY, longest)


class TestVerification:
    @pytest.fixture
    def driver(self, tmp_path: Path) -> Driver:
        return Driver(tmp_path, verify_transactions=True)

    def ask(self, driver: Driver, sequence: int, epoch: int = 0, bumps: bool = False) -> Any:
        return driver.manager.maybe_start_verification(PID, sequence, epoch, bumps, 1000)

    def test_one_question_for_each_producer(self, driver: Driver) -> None:
        """PSM-27."""
        guard = self.ask(driver, 3)
        assert self.ask(driver, 5) is guard
        assert driver.manager.verified[PID].lowest_sequence == 3
        assert self.ask(driver, 1) is guard
        assert driver.manager.verified[PID].lowest_sequence == 1
        self.ask(driver, 9, epoch=1)
        assert driver.manager.verified[PID][1::2] == (9, 1)

    def test_a_transaction_begins_with_its_guard_only(self, driver: Driver) -> None:
        """LOG-64."""
        driver.refused(InvalidTxnState, "data", 0, txn=True)
        guard = self.ask(driver, 0)
        driver.refused(InvalidTxnState, "data", 0, txn=True)
        driver.refused(InvalidTxnState, "data", 0, txn=True, guard=object())
        driver.data(0, txn=True, guard=guard)
        assert not driver.manager.verified and self.ask(driver, 1) is None
        driver.data(1, txn=True)
        driver.marker()
        driver.refused(InvalidTxnState, "data", 2, txn=True, guard=guard)
        driver.data(0, pid=2, txn=True, origin="replication")

    def test_a_marker_ends_the_question(self, driver: Driver) -> None:
        """PSM-27."""
        self.ask(driver, 0)
        driver.marker()
        assert not driver.manager.verified

    def test_it_must_not_begin_behind_what_was_announced(self, driver: Driver) -> None:
        """PSM-28, LOG-65."""
        guard = self.ask(driver, 3)
        driver.refused(OutOfOrderSequence, "data", 5, txn=True, guard=guard)
        assert PID in driver.manager.verified
        driver.data(3, txn=True, guard=guard)

    def test_with_bumped_epochs_it_begins_at_zero(self, driver: Driver) -> None:
        """PSM-34."""
        guard = self.ask(driver, 3, bumps=True)
        driver.refused(OutOfOrderSequence, "data", 3, txn=True, guard=guard)
        driver.data(0, txn=True, guard=guard)

    def test_questions_expire(self, driver: Driver) -> None:
        """PSM-27."""
        self.ask(driver, 0)
        driver.manager.remove_expired(1000 + DAY)
        assert not driver.manager.verified


class TestSnapshots:
    def test_an_empty_one(self) -> None:
        """PSM-36."""
        assert format_snapshot([]) == bytes.fromhex("000148674bc700000000")

    def test_they_are_written_when_there_is_something_new(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-16."""
        assert not driver.manager.take_snapshot()
        driver.data(0, count=3)
        assert driver.manager.take_snapshot() and not driver.manager.take_snapshot()
        assert [p.name for p in tmp_path.iterdir()] == [snapshot_file_name(3)]
        assert read_snapshot(tmp_path / snapshot_file_name(3)) == [ProducerEntry(PID, 0, 2, 2, 2, 1000, -1, -1)]

    def test_what_comes_back(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-17, PSM-31."""
        driver.data(0, pid=3)
        driver.data(0, txn=True)
        driver.data(1, txn=True)
        driver.marker(pid=2, coordinator=7)
        driver.manager.take_snapshot()
        again = Driver(tmp_path)
        again.manager.truncate_and_reload(0, 4, 3000)
        again.end = again.manager.map_end_offset
        assert again.end == 4 and again.known.entry() == driver.known.entry() == (PID, 0, 1, 2, 0, 1000, -1, 1)
        assert again.manager.producers.get(2).entry() == (2, 0, -1, -1, 0, 2000, 7, -1)
        assert again.manager.producers.open_transactions == {1: PID}
        assert again.data(1, txn=True) == (2, 2, 1000)
        again.refused(OutOfOrderSequence, "data", 0, txn=True)
        again.data(2, txn=True)

    def test_expired_producers_do_not_come_back(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-18."""
        driver.data(0, time=1000)
        driver.manager.take_snapshot()
        again = Driver(tmp_path)
        again.manager.truncate_and_reload(0, 1, 1000 + DAY)
        assert again.known is None and again.manager.map_end_offset == 1

    @pytest.mark.parametrize("damage", ["flip", "cut", "empty", "version", "count", "behind"])
    def test_a_damaged_one_is_removed_and_the_older_used(self, driver: Driver, tmp_path: Path, damage: str) -> None:
        """PSM-19, LOAD-23."""
        driver.data(0)
        driver.manager.take_snapshot()
        driver.data(1)
        driver.manager.take_snapshot()
        path = tmp_path / snapshot_file_name(2)
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[20] ^= 1
        elif damage == "version":
            data[1] = 2
        elif damage == "count":
            data[9] = 200
        elif damage == "behind":
            data += b"\0"
        path.write_bytes({"cut": bytes(data[:-1]), "empty": b""}.get(damage, bytes(data)))
        again = Driver(tmp_path)
        again.manager.truncate_and_reload(0, 2, 3000)
        assert again.manager.map_end_offset == 1 and again.known.last_sequence == 0
        assert not path.exists()

    def test_those_out_of_range_go(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-20."""
        for number in range(5):
            driver.data(number)
            driver.manager.take_snapshot()
        driver.manager.truncate_and_reload(1, 3, 3000)
        assert driver.manager.snapshots.offsets == (2, 3)
        assert driver.known.last_sequence == 2 and driver.manager.map_end_offset == 3

    def test_memory_stays_where_the_end_fits(self, driver: Driver) -> None:
        """PSM-20."""
        driver.data(0)
        driver.data(1)
        driver.manager.truncate_and_reload(0, 2, 3000)
        assert len(driver.known.batches) == 2

    def test_starting_anew(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-21."""
        driver.data(0, txn=True)
        driver.manager.take_snapshot()
        driver.manager.truncate_fully_and_start_at(29)
        assert driver.manager.is_empty and driver.manager.map_end_offset == 29 and not list(tmp_path.iterdir())

    def test_old_ones_go(self, driver: Driver) -> None:
        """PSM-22."""
        for number in range(4):
            driver.data(number)
            driver.manager.take_snapshot()
        driver.manager.snapshots.remove_below(3)
        assert driver.manager.snapshots.offsets == (3, 4)

    @pytest.mark.parametrize(
        ("bases", "kept"), [((5,), (5, 42)), ((42,), (42,)), ((1, 2, 4), (2, 42)), ((50,), ()), ((), (42,))]
    )
    def test_strays(self, tmp_path: Path, bases: tuple[int, ...], kept: tuple[int, ...]) -> None:
        """PSM-23, LOAD-20."""
        for offset in (2, 5, 42):
            (tmp_path / snapshot_file_name(offset)).write_bytes(format_snapshot([]))
        manager = ProducerStateManager(os.fspath(tmp_path))
        manager.snapshots.remove_strays(bases)
        assert manager.snapshots.offsets == kept

    def test_marked_for_deletion(self, driver: Driver, tmp_path: Path) -> None:
        """PSM-24."""
        driver.data(0)
        driver.manager.take_snapshot()
        path = driver.manager.snapshots.mark_deleted(1)
        assert path == os.fspath(tmp_path / (snapshot_file_name(1) + ".deleted")) and os.path.exists(path)
        assert driver.manager.snapshots.latest is None and driver.manager.snapshots.mark_deleted(1) is None
        driver.data(1)
        driver.manager.take_snapshot()
        (tmp_path / snapshot_file_name(2)).unlink()
        assert driver.manager.snapshots.mark_deleted(2) is None

    def test_the_log_start_counts_as_written(self, driver: Driver) -> None:
        """LOG-84."""
        driver.data(0)
        driver.manager.on_log_start_incremented(1)
        assert not driver.manager.take_snapshot()
        driver.data(1)
        assert driver.manager.take_snapshot()

    def test_entries_in_any_order_read_the_same(self) -> None:
        entries = [ProducerEntry(n, 1, n, n, 0, 5, -1, -1) for n in range(3)]
        assert sorted(parse_snapshot(format_snapshot(reversed(entries)))) == entries
