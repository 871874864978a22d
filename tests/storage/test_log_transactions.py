"""Producers and transactions in a log: duplicates, markers, last stable offset, snapshots, retention."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    StorageError,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.index.aborted_txns import read_aborted_txns
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import snapshot_file_name, txn_index_file_name
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW, append_batches, config, files, log

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def build_batch(
    pid: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False, base: int = 0
) -> bytearray:
    builder = RecordsBuilder(
        base, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn, leader_epoch=0
    )
    for _ in range(count):
        builder.append(NOW, b"key", b"value")
    return builder.build()


def write(a_log: UnifiedLog, pid: int, sequence: int, count: int = 1, **more: Any) -> Any:
    guard = more.pop("guard", None)
    return a_log.append_as_leader(build_batch(pid, sequence, count, **more), guard=guard)


def append_marker(a_log: UnifiedLog, kind: ControlType, pid: int, *, epoch: int = 0, coordinator: int = 0) -> Any:
    marker = marker_batch(kind, pid, epoch, coordinator, timestamp=NOW)
    return a_log.append_as_leader(marker, origin="coordinator")


def list_aborted(a_log: UnifiedLog, start: int = 0, size: int = 2**20) -> list[tuple[int, int]]:
    return [txn[:2] for txn in a_log.read(start, size, "committed").aborted_transactions or ()]


class TestIdempotence:
    def test_a_batch_that_is_sent_again_is_not_written_again(self, tmp_path: Path) -> None:
        """LOG-60: one of the last five gives its offsets and its time; LOG-61: an older one is refused."""
        a_log = log(tmp_path)
        for number in range(6):
            write(a_log, 7, 2 * number, 2)
        again = write(a_log, 7, 4, 2)
        assert (again.first_offset, again.last_offset, again.log_append_time) == (4, 5, NOW)
        for sequence, count in ((0, 2), (10, 1), (9, 2)):
            with pytest.raises(OutOfOrderSequence, match="producer 7"):
                write(a_log, 7, sequence, count)
        assert a_log.log_end_offset == 12

    def test_what_is_refused_leaves_no_trace(self, tmp_path: Path) -> None:
        """LOG-63, PSM-32."""
        a_log = log(tmp_path)
        write(a_log, 7, 0, epoch=3)
        before = [(p.entry(), p.batches) for p in a_log.producers]
        with pytest.raises(InvalidProducerEpoch):
            write(a_log, 7, 1, epoch=2)
        with pytest.raises(OutOfOrderSequence):
            write(a_log, 7, 5, epoch=3)
        assert [(p.entry(), p.batches) for p in a_log.producers] == before and a_log.log_end_offset == 1
        a_log.append_as_follower(build_batch(7, 9, epoch=2, base=1), 0)
        assert a_log.producers[0].producer_epoch == 2

    def test_after_a_reopen_the_last_batch_is_known(self, tmp_path: Path) -> None:
        """LOG-68, PSM-17."""
        a_log = log(tmp_path)
        write(a_log, 7, 0, 3)
        write(a_log, 7, 3)
        a_log.close()
        assert snapshot_file_name(4) in files(tmp_path / "topic-0")
        again = log(tmp_path)
        assert write(again, 7, 3).first_offset == 3
        with pytest.raises(OutOfOrderSequence):
            write(again, 7, 0, 3)
        assert write(again, 7, 4).first_offset == 4

    def test_many_batches_at_once(self, tmp_path: Path) -> None:
        """LOG-62: each is an append of its own; what was there is left out."""
        a_log = log(tmp_path)
        write(a_log, 7, 0)
        info = a_log.append_batches(build_batch(7, 0) + build_batch(7, 1) + build_batch(8, 0) + build_batch(7, 2))
        assert a_log.log_end_offset == 4 and (info.first_offset, info.last_offset) == (0, 3)
        again = a_log.append_batches(build_batch(7, 1) + build_batch(7, 2))
        assert a_log.log_end_offset == 4 and (again.first_offset, again.last_offset) == (1, 3)
        assert [p.last_sequence for p in a_log.producers] == [2, 0]

    def test_a_write_that_fails_can_be_sent_again(self, tmp_path: Path) -> None:
        fs = FaultFS()
        a_log = log(tmp_path, fs=fs)
        write(a_log, 7, 0)
        fs.fail("pwrite", nth=1, times=1)
        with pytest.raises(StorageError):
            write(a_log, 7, 1)
        assert write(a_log, 7, 1).first_offset == 1


class TestTransactions:
    def test_what_is_open_holds_committed_readers_back(self, tmp_path: Path) -> None:
        """LOG-30, LOG-32."""
        a_log = log(tmp_path)
        write(a_log, 1, 0)
        write(a_log, 2, 0, 2, txn=True)
        write(a_log, 1, 1)
        assert (a_log.high_watermark, a_log.last_stable_offset) == (4, 1)
        assert a_log.read(1, 2**20, "committed").records.size == 0
        append_marker(a_log, COMMIT, 2)
        assert a_log.last_stable_offset == a_log.log_end_offset == 5
        assert list_aborted(a_log) == []

    def test_two_that_overlap(self, tmp_path: Path) -> None:
        """LOG-31, LOG-32: an index entry says where the log was stable right after its marker."""
        a_log = log(tmp_path, high_watermark_follows_end=False)
        write(a_log, 1, 0, 8, txn=True)
        write(a_log, 2, 0, 8, txn=True)
        write(a_log, 1, 8, 14, txn=True)
        append_marker(a_log, ABORT, 1)
        write(a_log, 2, 8, 5, txn=True)
        append_marker(a_log, ABORT, 2)
        entries = a_log.active_segment.txn_index.entries()
        assert [tuple(entry)[1:] for entry in entries] == [(1, 0, 30, 8), (2, 8, 36, 37)]
        for mark, stable in ((30, 0), (31, 8), (36, 8), (37, 37)):
            a_log.update_high_watermark(mark)
            assert a_log.last_stable_offset == stable
        assert list_aborted(a_log) == [(1, 0), (2, 8)]
        assert list_aborted(a_log, 31) == [(2, 8)]

    def test_aborted_ones_are_found_over_segments(self, tmp_path: Path) -> None:
        """LOG-33: the search goes on where the range needs it."""
        a_log = log(tmp_path)
        write(a_log, 1, 0, 2, txn=True)
        a_log.roll()
        write(a_log, 2, 0, txn=True)
        a_log.roll()
        append_marker(a_log, ABORT, 1)
        append_marker(a_log, ABORT, 2)
        assert list_aborted(a_log) == [(1, 0)] and list_aborted(a_log, 2) == [(1, 0), (2, 2)]
        names = files(tmp_path / "topic-0")
        assert txn_index_file_name(3) in names and txn_index_file_name(0) not in names

    def test_a_batch_outside_its_transaction_is_refused(self, tmp_path: Path) -> None:
        """LOG-66, PSM-8."""
        a_log = log(tmp_path)
        write(a_log, 1, 0, txn=True)
        with pytest.raises(InvalidTxnState):
            write(a_log, 1, 1)
        append_marker(a_log, COMMIT, 1, coordinator=5)
        with pytest.raises(CoordinatorFenced):
            append_marker(a_log, COMMIT, 1, coordinator=4)
        assert a_log.log_end_offset == 2

    def test_a_marker_without_a_transaction(self, tmp_path: Path) -> None:
        """LOG-67."""
        a_log = log(tmp_path)
        append_marker(a_log, ABORT, 9, epoch=2)
        assert a_log.producers[0].producer_epoch == 2 and a_log.last_stable_offset == 1
        assert txn_index_file_name(0) not in files(tmp_path / "topic-0")

    def test_they_begin_only_with_a_guard_where_that_is_asked(self, tmp_path: Path) -> None:
        """LOG-64, LOG-65."""
        a_log = log(tmp_path, verify_transactions=True)
        with pytest.raises(InvalidTxnState):
            write(a_log, 1, 0, txn=True)
        guard = a_log.maybe_start_verification(1, 0, 0)
        write(a_log, 1, 0, txn=True, guard=guard)
        write(a_log, 1, 1, txn=True)
        assert a_log.maybe_start_verification(1, 2, 0) is None
        append_marker(a_log, COMMIT, 1)
        a_log.append_as_follower(build_batch(3, 0, txn=True, base=3), 0)

    def test_an_index_that_cannot_be_written(self, tmp_path: Path) -> None:
        """LOG-34: the reference keeps the marker and goes offline; here the append is undone, and may be sent again."""
        fs = FaultFS()
        a_log = log(tmp_path, fs=fs)
        write(a_log, 1, 0, 10, txn=True)
        fs.fail("pwrite", nth=2, times=1)
        with pytest.raises(StorageError):
            append_marker(a_log, ABORT, 1)
        assert (a_log.log_end_offset, a_log.last_stable_offset) == (10, 0)
        append_marker(a_log, ABORT, 1)
        assert (a_log.log_end_offset, a_log.last_stable_offset) == (11, 11) and list_aborted(a_log) == [(1, 0)]
        a_log.close()
        assert len(read_aborted_txns(tmp_path / "topic-0" / txn_index_file_name(0))) == 1

    def test_an_open_one_survives_a_reopen(self, tmp_path: Path) -> None:
        """LOG-68, LOAD-22."""
        for clean in (True, False):
            a_log = log(tmp_path)
            if clean:
                write(a_log, 1, 0, txn=True)
                a_log.close()
            else:
                a_log.close_handlers()
            again = log(tmp_path, had_clean_shutdown=clean, recovery_point=0)
            assert again.last_stable_offset == 0 and again.producers[0].current_txn_first_offset == 0
            again.close()
        again = log(tmp_path)
        append_marker(again, ABORT, 1)
        assert list_aborted(again) == [(1, 0)]

    def test_a_cut_takes_producers_back(self, tmp_path: Path) -> None:
        """LOG-53, LOAD-24."""
        a_log = log(tmp_path)
        write(a_log, 1, 0)
        a_log.roll()
        write(a_log, 1, 1, txn=True)
        append_marker(a_log, ABORT, 1)
        a_log.truncate_to(2)
        assert a_log.last_stable_offset == 1 and a_log.producers[0].current_txn_first_offset == 1
        assert a_log.active_segment.txn_index.entries() == []
        a_log.truncate_to(1)
        assert a_log.last_stable_offset == 1 and a_log.producers[0].last_sequence == 0
        a_log.truncate_fully_and_start_at(50)
        assert a_log.producers == () and write(a_log, 1, 7).first_offset == 50

    def test_a_cut_that_opens_one_again(self, tmp_path: Path) -> None:
        """LOG-53: the stable offset moves back at the next append, also one without a producer, as in the reference."""
        a_log = log(tmp_path, high_watermark_follows_end=False)
        write(a_log, 1, 0, txn=True)
        append_batches(a_log, times=3)
        append_marker(a_log, ABORT, 1)
        a_log.close()
        a_log = log(tmp_path, high_watermark_follows_end=False)
        a_log.update_high_watermark(3)
        a_log.truncate_to(4)
        assert (a_log.last_stable_offset, a_log.producers[0].current_txn_first_offset) == (3, 0)
        append_batches(a_log)
        assert a_log.last_stable_offset == 0

    def test_what_a_cut_reads_again_is_undecided_until_the_high_watermark_moves(self, tmp_path: Path) -> None:
        """LOG-53, PSM-13: as in the reference, also if a producer appends meanwhile."""
        a_log = log(tmp_path, high_watermark_follows_end=False)
        write(a_log, 1, 0, txn=True)
        append_marker(a_log, ABORT, 1)
        write(a_log, 2, 0, txn=True)
        append_batches(a_log, times=3)
        a_log.update_high_watermark(4)
        assert a_log.last_stable_offset == 2
        a_log.truncate_to(5)
        assert a_log.last_stable_offset == 2
        append_batches(a_log)
        write(a_log, 7, 0)
        assert a_log.last_stable_offset == 0
        a_log.update_high_watermark(6)
        assert a_log.last_stable_offset == 2

    def test_a_cut_down_to_the_high_watermark_leaves_nothing_undecided(self, tmp_path: Path) -> None:
        """LOG-53: also if one before it left more; a leader without followers has no high watermark to wait for."""
        a_log = log(tmp_path, high_watermark_follows_end=False)
        append_batches(a_log, times=4)
        a_log.update_high_watermark(2)
        a_log.truncate_to(3)
        a_log.truncate_to(2)
        a_log.high_watermark_follows_end = True
        write(a_log, 1, 0, txn=True)
        append_marker(a_log, COMMIT, 1)
        assert a_log.last_stable_offset == a_log.log_end_offset == 4

    def test_appends_after_a_cut_are_single_steps_again(self, tmp_path: Path) -> None:
        """LOG-53: the first one, also of a producer, sets the first unstable offset."""
        a_log = log(tmp_path, high_watermark_follows_end=False)
        append_batches(a_log, times=2)
        a_log.update_high_watermark(1)
        write(a_log, 1, 0, txn=True)
        a_log.truncate_to(2)
        write(a_log, 7, 0)
        assert not a_log._core.unstable_is_stale and a_log._core.state.first_unstable_offset == -1

    def test_a_log_start_inside_one(self, tmp_path: Path) -> None:
        """LOG-30, PSM-25: the batch that holds the log start is named, its base may lie below."""
        a_log = log(tmp_path)
        write(a_log, 1, 0, 4, txn=True)
        a_log.maybe_increment_log_start_offset(0)
        a_log.update_high_watermark(4)
        assert a_log.last_stable_offset == 0
        assert not a_log.maybe_increment_log_start_offset(0)
        a_log.maybe_increment_log_start_offset(2)
        assert a_log.last_stable_offset == 0 and a_log.producers[0].current_txn_first_offset == 0


class TestSnapshots:
    def test_one_at_each_roll(self, tmp_path: Path) -> None:
        """LOG-18, LOG-69: a segment's goes with it, the producer stays known."""
        a_log = log(tmp_path)
        for number in range(3):
            write(a_log, 1, number)
            a_log.roll()
        assert sorted(n for n in files(tmp_path / "topic-0") if n.endswith(".snapshot")) == [
            snapshot_file_name(n) for n in (1, 2, 3)
        ]
        a_log.delete_before(1)
        assert sorted(n for n in files(tmp_path / "topic-0") if n.endswith(".snapshot")) == [
            snapshot_file_name(n) for n in (1, 2, 3)
        ]
        a_log.delete_before(2)
        assert sorted(n for n in files(tmp_path / "topic-0") if n.endswith(".snapshot")) == [
            snapshot_file_name(n) for n in (2, 3)
        ]
        assert a_log.producers[0].last_sequence == 2

    def test_none_at_close_where_nothing_is_new(self, tmp_path: Path) -> None:
        """LOG-84."""
        a_log = log(tmp_path)
        write(a_log, 1, 0, 3)
        a_log.delete_before(3)
        a_log.close()
        assert snapshot_file_name(3) not in files(tmp_path / "topic-0")

    def test_one_that_cannot_be_written_stops_the_roll(self, tmp_path: Path) -> None:
        fs = FaultFS()
        a_log = log(tmp_path, fs=fs)
        write(a_log, 1, 0)
        fs.fail("pwrite", nth=1, times=1)
        with pytest.raises(StorageError):
            a_log.roll()
        assert len(a_log.segments) == 1
        a_log.roll()
        assert write(a_log, 1, 1).first_offset == 1 and len(a_log.segments) == 2


class TestRetention:
    def filled(self, tmp_path: Path, **more: Any) -> UnifiedLog:
        """Three segments of five records, the last one active."""
        clock = MockClock(NOW + 100)
        a_log = log(tmp_path, clock=clock, **more)
        for number in range(3):
            if number:
                a_log.roll()
            for _ in range(5):
                write(a_log, -1, -1)
        return a_log

    @pytest.mark.parametrize(("start", "left"), [(1, 3), (5, 2), (6, 2), (10, 1), (15, 1)])
    def test_below_the_log_start(self, tmp_path: Path, start: int, left: int) -> None:
        """LOG-37, LOG-38: whatever the cleanup policy."""
        a_log = self.filled(tmp_path, cleanup_policy="compact", retention_ms=1)
        a_log.maybe_increment_log_start_offset(start)
        a_log.delete_old_segments()
        assert (len(a_log.segments), a_log.log_start_offset, a_log.recovery_point >= start) == (left, start, True)
        assert a_log.delete_old_segments() == 0  # LOG-44

    def test_by_size(self, tmp_path: Path) -> None:
        """LOG-39."""
        size = len(build_batch(-1, -1))
        for limit, left in ((10 * size, 2), (15 * size, 3), (-1, 3)):
            folder = tmp_path / str(limit)
            folder.mkdir()
            a_log = self.filled(folder, retention_bytes=limit, retention_ms=-1)
            a_log.delete_old_segments()
            assert len(a_log.segments) == left

    def test_by_time_takes_all(self, tmp_path: Path) -> None:
        """LOG-40, LOG-43, LOG-44, LOG-45: an empty one is begun first."""
        a_log = self.filled(tmp_path, retention_ms=1)
        assert a_log.delete_old_segments() == 3
        assert (len(a_log.segments), a_log.log_start_offset, a_log.log_end_offset) == (1, 15, 15)
        assert a_log.leader_epochs == ((0, 15),)
        assert a_log.delete_old_segments() == 0

    def test_nothing_above_the_high_watermark(self, tmp_path: Path) -> None:
        """LOG-41."""
        a_log = self.filled(tmp_path, retention_ms=1, high_watermark_follows_end=False)
        assert a_log.delete_old_segments() == 0
        a_log.update_high_watermark(9)
        assert a_log.delete_old_segments() == 1 and a_log.log_start_offset == 5

    def test_not_for_a_compacted_topic(self, tmp_path: Path) -> None:
        """LOG-48."""
        a_log = log(tmp_path, cleanup_policy="compact", retention_ms=1, retention_bytes=1)
        write(a_log, 1, 0)
        a_log.roll()
        assert a_log.delete_old_segments() == 0

    def test_the_worked_example(self, tmp_path: Path) -> None:
        """Segments at 0, 21, 35, 57, 71 with a log start between 57 and 71: the first three go, the fourth stays."""
        a_log = log(tmp_path, retention_ms=-1)
        for first, following in zip((0, 21, 35, 57, 71), (21, 35, 57, 71, 80), strict=True):
            if first:
                a_log.roll()
            write(a_log, -1, -1, following - first)
        a_log.maybe_increment_log_start_offset(60)
        assert a_log.delete_old_segments() == 3
        assert [s.base_offset for s in a_log.segments] == [57, 71]


def test_the_config_of_a_log_may_change(tmp_path: Path) -> None:
    """LOG-47, LOG-76."""
    a_log = TestRetention().filled(tmp_path, retention_ms=-1)
    assert a_log.delete_old_segments() == 0
    a_log.config = config(retention_ms=0)
    assert a_log.delete_old_segments() == 3


def test_the_next_append_forgets_transactions_that_a_truncation_left(tmp_path: Path) -> None:
    """LOG-30, LOG-53: also that of a producer without a transaction; what began below the log start is gone."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    write(a_log, 7, 0, txn=True)
    a_log.roll()
    for sequence in range(4):
        write(a_log, 8, sequence)
    a_log.update_high_watermark(2)
    a_log.maybe_increment_log_start_offset(1)
    a_log.truncate_to(4)
    assert a_log.last_stable_offset == 1
    write(a_log, 8, 3)
    assert a_log.last_stable_offset == 2


def test_a_high_watermark_whose_place_is_found_decides_transactions(tmp_path: Path) -> None:
    """LOG-29, LOG-53: the first read after a truncation, as a new high watermark does."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    write(a_log, 7, 0, txn=True)
    append_marker(a_log, COMMIT, 7)
    write(a_log, 8, 0, txn=True)
    append_batches(a_log, times=3)
    a_log.update_high_watermark(3)
    a_log.truncate_to(5)
    append_batches(a_log)
    assert a_log.last_stable_offset == 0
    a_log.read(0, 100, "high_watermark")
    assert a_log.last_stable_offset == 2


def test_a_committed_read_without_data_lists_what_is_aborted_from_there_on(tmp_path: Path) -> None:
    """LOG-33: one of no bytes, in or before the aborted transaction, but not one at the last stable offset."""
    a_log = log(tmp_path)
    write(a_log, 7, 0, txn=True)
    append_marker(a_log, ABORT, 7)
    append_batches(a_log)
    for start, expected in ((0, [(7, 0)]), (1, [(7, 0)]), (2, []), (3, [])):
        found = a_log.read(start, 0, "committed", min_one_message=False)
        assert found.records.size == 0
        assert [txn[:2] for txn in found.aborted_transactions or ()] == expected


@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize(("cut", "stable"), [(7, 8), (4, 2)], ids=["behind its marker", "before its marker"])
def test_a_truncation_knows_the_transactions_of_producers_that_expired(
    tmp_path: Path, cut: int, stable: int, is_rolled: bool
) -> None:
    """LOG-30: the last stable offset is neither held up by one that ended, nor beyond one that is open again."""

    def plain(offset: int) -> bytes:
        made = RecordsBuilder(offset, leader_epoch=0)
        made.append(NOW, b"key", b"value")
        return bytes(made.build())

    with kafkalog.open(tmp_path / "t-0", "a", retention_ms=-1) as opened:
        for offset in (0, 1):
            opened.replicate(plain(offset))
        opened.replicate(bytes(build_batch(7, 0, txn=True, base=2)))
        if is_rolled:
            opened.roll()  # with a snapshot, in which it is open
        for offset in (3, 4):
            opened.replicate(plain(offset))
        opened.replicate(
            marker_batch(
                COMMIT, base_offset=5, producer_id=7, producer_epoch=0, coordinator_epoch=1, leader_epoch=0,
                timestamp=NOW,
            )
        )  # fmt: skip
        for offset in range(6, 10):
            opened.replicate(plain(offset))
        opened.opened_for_append().log.expire_producers(2**62)
        assert not opened.producers
        opened.truncate_to(cut)
        opened.replicate(plain(cut))
        assert opened.last_stable_offset == stable
