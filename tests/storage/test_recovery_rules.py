"""Recovery of one segment, rule by rule: where it ends, what its indexes, epochs and producers are afterwards."""

import errno
import os
import struct
from pathlib import Path

import pytest

from kafkalog.errors import SegmentOffsetOverflow, StorageError
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.names import txn_index_file_name
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.recovery.recover_segment import recover_segment, scan_segment
from kafkalog.storage.segment import LogSegment
from tests.faults import FaultFS
from tests.storage.logs import NOW, log, offset_entries, run, segment, sized_batch, time_entries
from tests.storage.test_log_transactions import build_batch

NAME = f"{0:020d}"


def recover(
    a_segment: LogSegment, producers: ProducerStateManager | None = None, epochs: LeaderEpochCache | None = None
) -> int:
    """The bytes cut; what is not given is forgotten afterwards."""
    folder = os.path.dirname(a_segment.path)
    producers = ProducerStateManager(folder) if producers is None else producers
    return recover_segment(a_segment, producers, epochs or LeaderEpochCache(folder), scan_segment(a_segment))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_text_in_an_index_does_not_matter(tmp_path: Path, suffix: str) -> None:
    """SEG-20: rebuilt; look-ups by offset and time are right."""
    a_segment = segment(tmp_path, index_interval_bytes=150)
    a_segment.append(run(0, 20))
    offsets, times = offset_entries(a_segment), time_entries(a_segment)
    a_segment.close_handlers()
    (tmp_path / (NAME + suffix)).write_bytes(b"no entry at all" * 20)
    again = segment(tmp_path, exists=True, index_interval_bytes=150)
    assert recover(again) == 0
    assert (offset_entries(again), again.txn_index.entries()) == (offsets, [])
    assert time_entries(again) == [*times, (NOW + 19, 19)]
    for n in range(20):
        assert again.translate_offset(n) == (n, 100 * n, 100)
        found = again.find_offset_by_timestamp(NOW + n, 0)
        assert found is not None and found.offset == n
    again.close_handlers()


@pytest.mark.parametrize("damaged", range(10))
def test_what_lies_before_a_flipped_bit_is_kept(tmp_path: Path, damaged: int) -> None:
    """SEG-21: of ten batches the sound ones before it remain, and the bytes after them are reported."""
    a_segment = segment(tmp_path)
    a_segment.append(run(0, 10))
    a_segment.close_handlers()
    path = tmp_path / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[damaged * 100 + 70] ^= 4
    path.write_bytes(data)
    again = segment(tmp_path, exists=True)
    assert recover(again) == 1000 - 100 * damaged
    assert path.read_bytes() == data[: damaged * 100]
    assert again.read_next_offset() == damaged
    again.close_handlers()


def test_nothing_is_cut_from_sound_data(tmp_path: Path) -> None:
    """SEG-22: the offset index comes out as appends made it, the time index has the final entry besides; no room."""
    a_segment = segment(tmp_path, index_interval_bytes=250)
    a_segment.append(run(0, 11))
    offsets, times = offset_entries(a_segment), time_entries(a_segment)
    assert recover(a_segment) == 0
    assert (offset_entries(a_segment), time_entries(a_segment)) == (offsets, [*times, (NOW + 10, 10)])
    assert os.path.getsize(tmp_path / f"{NAME}.index") == 8 * len(offsets)
    assert os.path.getsize(tmp_path / f"{NAME}.timeindex") == 12 * len(times) + 12
    a_segment.close_handlers()


def test_the_last_time_entry_is_the_largest_time(tmp_path: Path) -> None:
    """SEG-35: 12 batches, interval 150: appends made 30:3, 60:6 and 90:9, recovery adds 110:11."""
    a_segment = segment(tmp_path, index_interval_bytes=150)
    for n in range(12):
        a_segment.append(sized_batch(70, base=n, timestamp=10 * n))
    assert time_entries(a_segment) == [(30, 3), (60, 6), (90, 9)]
    recover(a_segment)
    assert time_entries(a_segment) == [(30, 3), (60, 6), (90, 9), (110, 11)]
    a_segment.close_handlers()


def test_entries_that_shifted_come_out_as_without_the_reopening(tmp_path: Path) -> None:
    """SEG-36: interval 150, 70 bytes each, closed after two: (5,350); recovered (3,210) and (6,420)."""
    for n in range(8):
        if n in (0, 2):
            a_log = log(tmp_path, index_interval_bytes=150)
        a_log.append_as_leader(bytearray(sized_batch(70, timestamp=NOW + n)))
        if n in (1, 7):
            shifted = offset_entries(a_log.active_segment)
            a_log.close()
    assert shifted == [(5, 350)]
    again = log(tmp_path, index_interval_bytes=150, had_clean_shutdown=False)
    assert offset_entries(again.active_segment) == [(3, 210), (6, 420)]
    again.close()


FAR = 2**31


@pytest.mark.parametrize(
    ("bad", "bound", "behind", "is_damage"),
    [
        (104 + FAR, None, None, False), (105 + FAR, None, None, True),  # from the end on, no segment has so many
        (100 + FAR, 101 + FAR, None, False), (100 + FAR, 100 + FAR, None, True),
        (100 + FAR, None, 101 + FAR, False), (100 + FAR, None, 100 + FAR, True),
        (100 + FAR, 101 + FAR, 100 + FAR, True), (100 + FAR, 100 + FAR, 101 + FAR, True),
        (99, None, None, True), (99, 101 + FAR, None, True),
    ],
)  # fmt: skip
def test_an_offset_that_does_not_fit_is_damage_where_the_log_goes_on_below_it(
    tmp_path: Path, bad: int, bound: int | None, behind: int | None, is_damage: bool
) -> None:
    path = tmp_path / f"{100:020d}.log"
    path.write_bytes(run(100, 5) + sized_batch(100, base=bad) + run(105, 1))
    a_segment = segment(tmp_path, 100, exists=True)
    found = scan_segment(a_segment)
    a_segment.close_handlers()
    judged = found.within(bound, behind)
    assert (judged.is_cut, judged.end_offset, judged.found.tail.size) == (is_damage, 105, 500)


@pytest.mark.parametrize("behind", [b"", bytes(40), b"\0" * 11 + b"\x0d" + bytes(10), b"x" * 200], ids=len)
def test_damage_is_an_end_and_a_failing_disk_an_error(tmp_path: Path, behind: bytes) -> None:
    """SEG-23: what is no batch ends the segment; what the system refuses is raised, and nothing is cut."""
    a_segment = segment(tmp_path)
    a_segment.append(run(0, 4))
    a_segment.close_handlers()
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(path.read_bytes() + behind)
    fs = FaultFS()
    fs.fail("preadv", path=".log", code=errno.EIO)
    failing = segment(tmp_path, exists=True, fs=fs)
    with pytest.raises(StorageError) as caught:
        recover(failing)
    assert (caught.value.errno, path.stat().st_size) == (errno.EIO, 400 + len(behind))
    failing.close_handlers()
    again = segment(tmp_path, exists=True)
    assert (recover(again), path.stat().st_size) == (len(behind), 400)
    again.close_handlers()


def test_producers_and_aborted_transactions(tmp_path: Path) -> None:
    """SEG-24: producer 2 aborted 102 to 106, stable from 100 on, where 1 has one open; the map ends at 108."""
    def data(offset: int, pid: int, sequence: int) -> bytearray:
        batch = build_batch(pid, sequence, 2, txn=True)
        struct.pack_into(">q", batch, 0, offset)
        return batch

    a_segment = segment(tmp_path, 100)
    a_segment.append(data(100, 1, 0) + data(102, 2, 0) + data(104, 1, 2))
    a_segment.append(marker_batch(ControlType.ABORT, 2, 0, 0, timestamp=NOW, base_offset=106))
    a_segment.append(sized_batch(90, base=107))
    producers = ProducerStateManager(os.fspath(tmp_path))
    assert recover(a_segment, producers) == 0
    assert [tuple(entry)[1:] for entry in a_segment.txn_index.entries()] == [(2, 102, 106, 100)]
    assert os.path.getsize(tmp_path / txn_index_file_name(100)) == 34
    assert producers.map_end_offset == 108
    assert producers.producers.open_transactions == {100: 1} and producers.first_unstable_offset == 100
    assert {one.producer_id: one.last_sequence for one in producers.producers} == {1: 3, 2: 1}
    assert producers.take_snapshot() and producers.snapshots.latest == 108
    a_segment.close_handlers()


def test_leader_epochs(tmp_path: Path) -> None:
    """SEG-25: 0@104, 1@106, 2@110, epoch 0 too; an epoch that is not above the latest known is not assigned."""
    a_segment = segment(tmp_path, 104)
    for offset, epoch in ((104, 0), (105, 0), (106, 1), (109, 0), (110, 2)):
        a_segment.append(sized_batch(80, base=offset, epoch=epoch))
    epochs = LeaderEpochCache(tmp_path)
    recover(a_segment, epochs=epochs)
    assert epochs.entries == ((0, 104), (1, 106), (2, 110))
    known = LeaderEpochCache(tmp_path)
    known.assign(1, 50)
    recover(a_segment, epochs=known)
    assert known.entries == ((1, 50), (2, 110))
    a_segment.close_handlers()


def test_an_offset_that_does_not_fit_is_raised(tmp_path: Path) -> None:
    """SEG-26: it names the segment and the offset, and nothing is cut: the caller splits it."""
    a_segment = segment(tmp_path)
    a_segment.append(run(0, 2))
    a_segment.close_handlers()
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(path.read_bytes() + sized_batch(100, base=2**31))
    again = segment(tmp_path, exists=True)
    with pytest.raises(SegmentOffsetOverflow) as caught:
        recover(again)
    assert (caught.value.path, caught.value.offset) == (str(path), 2**31)
    assert path.stat().st_size == 300
    again.close_handlers()
