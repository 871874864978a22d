"""UnifiedLog: closing well and opening again, lost and damaged indexes, left-over files, flushing."""

import logging
import os
from pathlib import Path

import pytest

from kafkalog.errors import CorruptRecord, NotAPartition, StorageError
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import (
    NOW,
    append_batches,
    bases,
    config,
    files,
    log,
    offset_entries,
    run,
    sized_batch,
    time_entries,
)

NAME = f"{0:020d}"
SETTINGS = {"internal_segment_bytes": 500, "index_interval_bytes": 150}


def open_filled(path: Path, times: int = 12) -> UnifiedLog:
    a_log = log(path, **SETTINGS)
    for n in range(times):
        append_batches(a_log, timestamp=NOW + n)
    return a_log


def entries(a_log: UnifiedLog) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    return [(offset_entries(segment), time_entries(segment)) for segment in a_log.segments]


def test_close_and_open_again(tmp_path: Path) -> None:
    """LOG-1, SEG-28: same offsets, same entries and the final time; the active indexes are at full length again."""
    a_log = open_filled(tmp_path)
    before = entries(a_log)
    a_log.close()
    a_log.close()
    assert files(tmp_path / "topic-0")[f"{10:020d}.index"] == 0
    again = log(tmp_path, **SETTINGS)
    assert (bases(again), again.log_end_offset, again.recovery_point) == ([0, 5, 10], 12, 12)
    assert entries(again)[:2] == before[:2]
    assert time_entries(again.active_segment) == [(NOW + 11, 11)]
    assert files(tmp_path / "topic-0")[f"{10:020d}.index"] == 1000
    assert (again.high_watermark, again.leader_epochs) == (12, ((0, 0),))
    append_batches(again, timestamp=NOW + 50)
    assert again.log_end_offset == 13


def test_the_counter_of_bytes_is_zero_after_opening(tmp_path: Path) -> None:
    """SEG-3: so entries shift where a log was closed in between (SEG-36 has the reference's numbers)."""
    once, twice = log(tmp_path, index_interval_bytes=150), None
    for n in range(2):
        once.append_as_leader(bytearray(sized_batch(80, timestamp=NOW + n)))
    once.close()
    twice = log(tmp_path, index_interval_bytes=150)
    for n in range(2, 8):
        twice.append_as_leader(bytearray(sized_batch(80, timestamp=NOW + n)))
    assert offset_entries(twice.active_segment) == [(4, 320), (6, 480)]


def test_roll_by_time_after_opening_counts_from_the_first_batch(tmp_path: Path) -> None:
    """SEG-1, LOG-14: read from the file."""
    a_log = log(tmp_path, segment_ms=1000)
    append_batches(a_log, timestamp=NOW)
    a_log.close()
    again = log(tmp_path, segment_ms=1000)
    append_batches(again, timestamp=NOW + 1001)
    assert bases(again) == [0, 1]


@pytest.mark.parametrize("timestamp", [-1, 0, 1])
def test_the_largest_time_of_a_log_opened_again(tmp_path: Path, timestamp: int) -> None:
    """LOG-56: the final time entry names its batch; time 0 is one, -1 is none."""
    settings = {"index_interval_bytes": 150}
    a_log = log(tmp_path, **settings)
    append_batches(a_log, timestamp=timestamp, times=2)
    a_log.close()
    for _ in range(2):  # from the data, then from the entry that the first close wrote
        a_log = log(tmp_path, **settings)
        largest = (timestamp, 0) if timestamp >= 0 else (-1, -1)
        tail = a_log.active_segment.tail
        assert (tail.max_timestamp, tail.offset_of_max_timestamp) == largest
        a_log.close()
        again = log(tmp_path, **settings)
        assert time_entries(again.active_segment) == ([largest] if timestamp >= 0 else [])
        again.close_handlers()


@pytest.mark.parametrize("base", [0, 5, 10])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "zeros", "odd", "text", "beyond"])
def test_index_trouble_is_never_fatal(
    tmp_path: Path, base: int, suffix: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEG-29: missing, all zeros, cut in an entry, garbage, past the data: rebuilt from the data (KAFKA-1112)."""
    a_log = open_filled(tmp_path)
    a_log.close()
    want = filled_entries(tmp_path)
    path = tmp_path / "topic-0" / f"{base:020d}{suffix}"
    if damage == "missing":
        path.unlink()
    else:
        size = 8 if suffix == ".index" else 12
        path.write_bytes({
            "zeros": bytes(10 * size), "odd": b"\0" * (size + 3), "text": b"damaged!" * 3 * size,
            "beyond": b"\x7f\xff\xff\xff" * (size // 4),
        }[damage])  # fmt: skip
    with caplog.at_level(logging.WARNING):
        again = log(tmp_path, **SETTINGS)
        assert entries(again) == want
    assert "rebuilding" in caplog.text
    assert [again.read(n, 1).fetch_offset_metadata.message_offset for n in range(12)] == list(range(12))
    assert [getattr(again.offset_for_time(NOW + n), "offset", None) for n in range(12)] == list(range(12))


def filled_entries(path: Path) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Return the entries in the indexes of the closed log."""
    again = log(path, **SETTINGS)
    found = entries(again)
    again.close()
    return found


def test_a_missing_index_of_an_empty_segment_is_made(tmp_path: Path) -> None:
    """SEG-29: KAFKA-13603: nothing to rebuild, nothing to say."""
    a_log = log(tmp_path)
    a_log.close()
    os.unlink(tmp_path / "topic-0" / f"{NAME}.index")
    assert log(tmp_path).log_end_offset == 0


def test_left_over_files(tmp_path: Path) -> None:
    """LOAD-1, LOAD-2: what waits for its delete, and unfinished output, goes; other files stay."""
    open_filled(tmp_path).close()
    directory = tmp_path / "topic-0"
    gone = (f"{0:020d}.log.deleted", f"{3:020d}.log.cleaned", f"{4:020d}.index.swap")
    for name in (*gone, "notes.txt", "00000000000000000004-0000000001.checkpoint.deleted"):
        (directory / name).write_bytes(b"x" * 50)
    again = log(tmp_path, **SETTINGS)
    assert again.log_end_offset == 12
    again.close()
    assert not any((directory / name).exists() for name in gone)
    assert (directory / "notes.txt").exists() and list(directory.glob("*.checkpoint.deleted"))


def test_a_damaged_replacement_takes_nothing_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LOAD-3: the reference puts a `.log.swap` in place whatever is in it."""
    open_filled(tmp_path).close()
    directory = tmp_path / "topic-0"
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{5:020d}{suffix}.swap").write_bytes(b"x")
    before = {path.name: path.read_bytes() for path in directory.glob("*5.*") if path.suffix != ".swap"}
    assert set(before) >= {f"{5:020d}.log", f"{5:020d}.index", f"{5:020d}.timeindex"}
    with caplog.at_level(logging.WARNING):
        again = log(tmp_path, **SETTINGS)
    path = directory / f"{5:020d}.log.swap"
    assert caplog.messages == [f"removed {path}, which is damaged; the segments it was built from still exist"]
    assert (bases(again), again.log_end_offset) == ([0, 5, 10], 12)
    assert {name: (directory / name).read_bytes() for name in before} == before
    assert not list(directory.glob("*.swap"))


def test_an_empty_segment_that_would_hide_records_goes(tmp_path: Path) -> None:
    """LOG-19: what a roll that failed may leave: an empty file whose base the segment before it holds."""
    open_filled(tmp_path).close()
    for base in (3, 11):
        (tmp_path / "topic-0" / f"{base:020d}.log").touch()
    again = log(tmp_path, **SETTINGS)
    assert (bases(again), again.log_end_offset) == ([0, 5, 10], 12)
    assert again.read(4, 1).fetch_offset_metadata.message_offset == 4
    assert not (tmp_path / "topic-0" / f"{11:020d}.log").exists()


@pytest.mark.parametrize("damage", ["torn", "zeros"])
def test_a_torn_end_is_cut_whatever_the_marker_says(tmp_path: Path, damage: str) -> None:
    """LOAD-10: nothing is appended behind it; the reference hides the whole segment."""
    open_filled(tmp_path).close()
    path = tmp_path / "topic-0" / f"{10:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:-5] if damage == "torn" else data + bytes(30))
    again = log(tmp_path, **SETTINGS)
    assert again.log_end_offset == (11 if damage == "torn" else 12)
    assert path.read_bytes() == data[: path.stat().st_size] and path.stat().st_size <= len(data)
    append_batches(again)
    again.close()


@pytest.mark.parametrize("damage", ["flipped", "text"])
def test_an_end_that_no_crash_leaves_is_refused(tmp_path: Path, damage: str) -> None:
    """LOAD-10: with the marker there, nothing is cut that may be of use."""
    open_filled(tmp_path).close()
    path = tmp_path / "topic-0" / f"{10:020d}.log"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-1] ^= 1
    else:
        data += bytes(11) + b"\5texttexttexttext"
    path.write_bytes(data)
    with pytest.raises(CorruptRecord) as caught:
        log(tmp_path, **SETTINGS)
    assert caught.value.path == str(path) and caught.value.position is not None and caught.value.hint
    assert path.read_bytes() == data


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file-0").touch()
    with pytest.raises(NotAPartition):
        UnifiedLog.open(tmp_path / "file-0", config())
    with pytest.raises(StorageError):
        UnifiedLog.open(tmp_path / "none-0", config())


def test_flush_makes_data_and_names_durable(tmp_path: Path) -> None:
    """LOG-18: the files of the range and the directory; then the recovery point and the time follow."""
    fs, clock = FaultFS(), MockClock(NOW)
    a_log = log(tmp_path, fs=fs, clock=clock, **SETTINGS, recovery_point=0)
    append_batches(a_log, times=6)
    clock.advance(5)
    fs.calls.clear()
    a_log.flush()
    synced = [os.path.basename(call.path) for call in fs.named("fsync", "fdatasync")]
    assert {f"{0:020d}.log", f"{5:020d}.log", f"{5:020d}.index", "topic-0"} <= set(synced)
    assert (a_log.recovery_point, a_log.last_flush_time) == (6, NOW + 5)
    fs.calls.clear()
    append_batches(a_log)
    a_log.flush()
    assert [os.path.basename(call.path) for call in fs.named("fsync", "fdatasync")] == [f"{5:020d}.log"]


def test_flush_up_to_an_offset(tmp_path: Path) -> None:
    """LOG-18: exclusive; a lower one than the recovery point does nothing."""
    a_log = open_filled(tmp_path)
    a_log.flush(5)
    assert a_log.recovery_point == 5
    a_log.flush(3)
    assert a_log.recovery_point == 5
    a_log.flush(99)
    assert a_log.recovery_point == 12


def test_preallocated_files_are_trimmed_by_close(tmp_path: Path) -> None:
    """SEG-28."""
    a_log = log(tmp_path, internal_segment_bytes=5000, preallocate=True)
    append_batches(a_log)
    a_log.close()
    assert files(tmp_path / "topic-0")[f"{NAME}.log"] == 100
    assert log(tmp_path, internal_segment_bytes=5000, preallocate=True).log_end_offset == 1


def test_bytes_come_out_as_they_went_in(tmp_path: Path) -> None:
    """LOG-3: a follower's copy equals the leader's files."""
    (tmp_path / "leader").mkdir()
    leader = open_filled(tmp_path / "leader")
    follower = log(tmp_path, **SETTINGS)
    for segment in leader.segments:
        for n in range(segment.size // 100):
            follower.append_as_follower(segment.records.read(n * 100, 100), 0)
    leader.close()
    follower.close()
    for name in files(tmp_path / "topic-0"):
        assert (tmp_path / "topic-0" / name).read_bytes() == (tmp_path / "leader" / "topic-0" / name).read_bytes()
    assert run(0, 1)
