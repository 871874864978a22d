"""LogSegment and its files: cutting, closing, flushing, renaming, deleting."""

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import CorruptIndex, IllegalArgument, IllegalState, LogClosed, StorageError
from kafkalog.storage.index.aborted_txns import AbortedTxn
from tests.descriptors import open_descriptors
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW, config, files, offset_entries, run, segment, sized_batch, time_entries

NAME = f"{0:020d}"


def test_truncate_to_the_start_of_a_batch_removes_it(tmp_path: Path) -> None:
    """SEG-11: the truncated bytes are reported, and the next append continues from there."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    assert seg.truncate_to(2) == 100
    assert seg.read_next_offset() == 2
    seg.append(sized_batch(80, base=2))
    assert seg.translate_offset(2) == (2, 200, 80)


@pytest.mark.parametrize(("offset", "left"), [(45, 1), (41, 0), (40, 0), (3, 0), (50, 1), (51, 1), (53, 2), (99, 2)])
def test_truncate_inside_gaps_and_batches(tmp_path: Path, offset: int, left: int) -> None:
    """SEG-11: in a gap the next batch goes, inside a batch all of it, below the base all, past the end nothing."""
    seg = segment(tmp_path, 40)
    seg.append(sized_batch(100, 3, base=40) + sized_batch(100, 3, base=50))
    assert seg.truncate_to(offset) == 200 - 100 * left
    assert seg.size == os.path.getsize(seg.path) == 100 * left


def test_truncate_forgets_the_times_that_are_gone(tmp_path: Path) -> None:
    """SEG-12: 30 records, an entry at every second one; cut to 41 no entry is left and the largest time is 400."""
    seg = segment(tmp_path, 40, index_interval_bytes=199)
    for base in range(40, 70):
        seg.append(sized_batch(100, base=base, timestamp=base * 10))
    assert len(time_entries(seg)) == 14
    seg.truncate_to(41)
    assert (time_entries(seg), offset_entries(seg)) == ([], [])
    assert seg.largest_timestamp == 400
    assert seg.read_next_offset() == 41


def test_truncate_to_nothing_starts_anew_in_time(tmp_path: Path) -> None:
    """SEG-13: created now, no rolling time, and the trimmed indexes have their room again (KAFKA-6492)."""
    clock = MockClock(NOW)
    seg = segment(tmp_path, clock=clock, index_interval_bytes=1)
    seg.append(run(0, 4, timestamp=50))
    assert seg.tail.rolling_timestamp == 50
    seg.on_become_inactive()
    clock.advance(777)
    assert seg.truncate_to(0) == 400
    assert seg.tail.rolling_timestamp == -1 and seg.created_ms == clock.milliseconds()
    assert seg.tail.offset_slots > 0 and seg.tail.time_slots > 0
    assert files(tmp_path)[f"{NAME}.index"] == 1000 and files(tmp_path)[f"{NAME}.timeindex"] == 996
    seg.append(run(0, 3, timestamp=7000))
    assert offset_entries(seg) == [(1, 100), (2, 200)]
    assert seg.first_batch_timestamp == 7000


def test_a_full_index_takes_entries_again_after_a_cut(tmp_path: Path) -> None:
    """SEG-13, LOG-56: also where trimming had nothing to trim, since every slot was used."""
    seg = segment(tmp_path, segment_index_bytes=24, index_interval_bytes=1)
    seg.append(run(0, 4))
    assert offset_entries(seg) == [(1, 100), (2, 200), (3, 300)]
    seg.on_become_inactive()
    seg.truncate_to(2)
    seg.append(run(2, 2))
    assert (3, 300) in offset_entries(seg)


def test_the_counter_of_bytes_starts_at_zero_after_a_cut(tmp_path: Path) -> None:
    """SEG-11, SEG-13: so the first batch after it gets no entry."""
    seg = segment(tmp_path, index_interval_bytes=1)
    seg.append(run(0, 3))
    seg.truncate_to(2)
    seg.append(run(2, 2))
    assert offset_entries(seg) == [(1, 100), (3, 300)]


def test_suffixes_are_changed_on_every_file_that_exists(tmp_path: Path) -> None:
    """SEG-27: an index that was never opened is not made by it; lookups go on."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    seg.change_file_suffixes("", ".deleted")
    assert sorted(files(tmp_path)) == [f"{NAME}.index.deleted", f"{NAME}.log.deleted", f"{NAME}.timeindex.deleted"]
    assert seg.translate_offset(1) == (1, 100, 100)
    assert seg.path.endswith(".log.deleted")
    seg.change_file_suffixes(".deleted", "")
    assert f"{NAME}.log" in files(tmp_path)
    with pytest.raises(IllegalArgument):
        seg.change_file_suffixes(".swap", "")


def test_a_lazy_index_is_not_made_by_a_rename(tmp_path: Path) -> None:
    """SEG-27."""
    seg = segment(tmp_path)
    seg.change_file_suffixes("", ".swap")
    assert sorted(files(tmp_path)) == [f"{NAME}.log.swap"]
    assert seg.offset_index.entries == 0
    assert f"{NAME}.index.swap" in files(tmp_path)


def test_becoming_inactive_adds_the_final_time_and_trims(tmp_path: Path) -> None:
    """SEG-28: indexes to their entries, a preallocated file to its data; a write to them is an error afterwards."""
    seg = segment(tmp_path, index_interval_bytes=250)
    seg.append(run(0, 5, timestamp=10, step=10))
    assert time_entries(seg) == [(40, 3)]
    seg.on_become_inactive()
    assert time_entries(seg) == [(40, 3), (50, 4)]
    assert files(tmp_path) == {f"{NAME}.index": 8, f"{NAME}.log": 500, f"{NAME}.timeindex": 24}
    with pytest.raises(IllegalState):
        seg.offset_index.append(99, 500)
    with pytest.raises(IllegalState):
        seg.time_index.maybe_append(99, 99)


def test_close_trims_indexes_and_preallocated_data(tmp_path: Path) -> None:
    """SEG-28: and a second close, or a use after it, does no harm."""
    seg = segment(tmp_path, index_interval_bytes=250)
    other = tmp_path / "preallocated"
    other.mkdir()
    full = type(seg).open(other, 0, config(), preallocated_bytes=4096)
    for one in (seg, full):
        one.append(run(0, 2, timestamp=10))
    assert os.path.getsize(full.path) == 4096
    full.close()
    seg.close()
    seg.close()
    assert files(other)[f"{NAME}.log"] == files(tmp_path)[f"{NAME}.log"] == 200
    assert files(tmp_path)[f"{NAME}.index"] == 0 and files(tmp_path)[f"{NAME}.timeindex"] == 12
    with pytest.raises((LogClosed, StorageError)):
        seg.append(run(2, 1))


def test_sanity_check_finds_a_damaged_index(tmp_path: Path) -> None:
    """SEG-29: the loader rebuilds a missing one; it checks before it opens."""
    seg = segment(tmp_path, index_interval_bytes=1)
    seg.append(run(0, 4))
    seg.sanity_check()
    seg.close()
    (tmp_path / f"{NAME}.index").write_bytes(b"x" * 13)
    with pytest.raises(CorruptIndex) as caught:
        segment(tmp_path, exists=True).sanity_check()
    assert caught.value.path == str(tmp_path / f"{NAME}.index")


def list_synced(fs: FaultFS) -> list[str]:
    return [os.path.splitext(call.path)[1] for call in fs.named("fsync", "fdatasync")]


def test_flush_syncs_data_before_the_indexes(tmp_path: Path) -> None:
    """SEG-32: log, offset index, time index; what has nothing new since is left alone."""
    fs = FaultFS()
    seg = segment(tmp_path, fs=fs, index_interval_bytes=1)
    seg.append(run(0, 3))
    fs.calls.clear()
    seg.flush()
    assert list_synced(fs) == [".log", ".index", ".timeindex"]
    fs.calls.clear()
    seg.flush()
    assert list_synced(fs) == []
    seg.append(run(3, 2))
    fs.calls.clear()
    seg.flush()
    assert len(list_synced(fs)) == 3


def test_delete_removes_all_files_and_tolerates_missing_ones(tmp_path: Path) -> None:
    """SEG-27, SEG-31: a reader that holds a slice reads on; files that are gone already are as good as deleted."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    piece = seg.records.slice(0, 300)
    os.unlink(tmp_path / f"{NAME}.timeindex")
    seg.delete_if_exists()
    seg.delete_if_exists()
    assert files(tmp_path) == {}
    assert piece.read() == run(0, 3)


@pytest.mark.parametrize("is_read", [False, True])
def test_an_unlinked_segment_keeps_its_indexes_only_for_a_reader(tmp_path: Path, is_read: bool) -> None:
    """SEG-31: they are opened while they are there still; a segment that no one reads costs no file."""
    made = segment(tmp_path, index_interval_bytes=50)
    for offset in range(3):
        made.append(run(offset, 1, timestamp=NOW + offset))
    made.close()
    data = (tmp_path / f"{NAME}.log").read_bytes()
    fs = FaultFS()
    seg = segment(tmp_path, exists=True, fs=fs, index_interval_bytes=50)
    piece = seg.records.slice(100, 200) if is_read else None
    fs.calls.clear()
    seg.unlink_files()
    opened = {Path(call.path).suffix for call in fs.named("open", "open_read")}
    assert files(tmp_path) == {} and opened == ({".index", ".timeindex"} if is_read else set())
    if piece is not None:
        assert piece.read() == data[100:]
        assert seg.offset_index.lookup(1).offset == 1 and seg.time_index.entries


def test_files_that_cannot_be_deleted_are_closed(tmp_path: Path) -> None:
    """SEG-27: all of them, whichever fails; the error is that of the first."""
    fs = FaultFS()
    before = open_descriptors()
    seg = segment(tmp_path, fs=fs, index_interval_bytes=50)
    for offset in range(3):
        seg.append(run(offset, 1))
    seg.add_aborted(AbortedTxn(0, 1, 0, 2, 3))
    assert open_descriptors() > before
    fs.fail("unlink", code=errno.EIO)
    with pytest.raises(StorageError) as caught:
        seg.delete_if_exists()
    assert (caught.value.errno, caught.value.path) == (errno.EIO, str(tmp_path / f"{NAME}.log"))
    assert open_descriptors() == before and len(files(tmp_path)) == 4


def test_a_failed_rename_names_the_file(tmp_path: Path) -> None:
    fs = FaultFS()
    seg = segment(tmp_path, fs=fs)
    fs.fail("rename", path=".index", code=errno.EIO)
    seg.offset_index.flush()
    with pytest.raises(StorageError) as caught:
        seg.change_file_suffixes("", ".deleted")
    assert caught.value.errno == errno.EIO and str(caught.value.path).endswith(".index")


def test_every_file_is_closed_even_where_one_fails(tmp_path: Path) -> None:
    fs = FaultFS()
    seg = segment(tmp_path, fs=fs)
    seg.append(run(0, 3))
    fs.fail("ftruncate", path=".index", code=errno.EIO)
    with pytest.raises(StorageError):
        seg.close()
    assert seg.records.closed and seg.offset_index.closed and seg.time_index.closed
