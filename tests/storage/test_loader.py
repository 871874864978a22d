"""Opening a partition directory, rule by rule; the golden vectors hold the same rules against the reference's files."""

import logging
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import IllegalState
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.directory import list_directory
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import snapshot_file_name, txn_index_file_name
from kafkalog.storage.producer_snapshot import format_snapshot, read_snapshot
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.recovery.loader import LogLoader
from kafkalog.storage.recovery.recover_log import RecoveryProgress
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, config, files, log, offset_entries
from tests.storage.test_log_transactions import ABORT, COMMIT, append_marker, build_batch, write

SETTINGS: dict[str, Any] = {"internal_segment_bytes": 500, "index_interval_bytes": 150}
UNCLEAN: dict[str, Any] = {**SETTINGS, "had_clean_shutdown": False}


def write_segments(path: Path, times: int = 12, *, killed: bool = False) -> Path:
    """The directory of a log with segments 0, 5 and 10, closed well or as a kill leaves it."""
    a_log = log(path, **SETTINGS)
    for n in range(times):
        append_batches(a_log, timestamp=NOW + n)
    if killed:
        a_log.close_handlers()
    else:
        a_log.close()
    return path / "topic-0"


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def reads_every_offset(a_log: UnifiedLog) -> bool:
    """True when every offset from log start to end is read at its own place."""
    wanted = range(a_log.log_start_offset, a_log.log_end_offset)
    return [a_log.read(n, 1).fetch_offset_metadata.message_offset for n in wanted] == list(wanted)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# Files of interrupted work

def test_an_index_whose_log_was_renamed_already(tmp_path: Path) -> None:
    """LOAD-4: `.index.swap` without `.log.swap` gets its name, and its entries are the segment's."""
    folder = write_segments(tmp_path)
    wanted = (folder / name(5, ".index")).read_bytes()
    (folder / name(5, ".index")).rename(folder / name(5, ".index.swap"))
    again = log(tmp_path, **SETTINGS)
    assert reads_every_offset(again) and offset_entries(again.segments[1])
    again.close()
    assert (folder / name(5, ".index")).read_bytes() == wanted and not list(folder.glob("*.swap"))


@pytest.mark.parametrize("clean", [True, False])
def test_a_snapshot_that_a_power_cut_left_unfinished_goes(tmp_path: Path, clean: bool) -> None:
    """No one writes a snapshot of that offset again, so no one else would remove it; another program's file stays."""
    folder = write_segments(tmp_path, killed=not clean)
    half = folder / f"{snapshot_file_name(7)}.tmp"
    half.write_bytes(b"half of one")
    (folder / "notes.tmp").write_bytes(b"not ours")
    again = log(tmp_path, **SETTINGS, had_clean_shutdown=clean)
    assert not half.exists() and (folder / "notes.tmp").exists()
    assert reads_every_offset(again) and again.log_end_offset == 12
    again.close()


def test_an_index_without_its_log_goes_and_a_missing_one_is_made(tmp_path: Path) -> None:
    """LOAD-7: orphans of all kinds."""
    folder = write_segments(tmp_path)
    for suffix in (".index", ".timeindex", ".txnindex"):
        (folder / name(7, suffix)).write_bytes(bytes(24))
        (folder / name(5, suffix)).unlink(missing_ok=True)
    again = log(tmp_path, **SETTINGS)
    assert bases(again) == [0, 5, 10] and reads_every_offset(again)
    assert not [one for one in files(folder) if one.startswith(name(7, ""))]
    assert files(folder)[name(5, ".index")] and files(folder)[name(5, ".timeindex")]
    again.close()


@pytest.mark.parametrize("entry", [(256, 1, 0, 2, 3), (0, 1, 0, -9, 3)], ids=["version", "below"])
def test_a_transaction_index_that_contradicts_itself(tmp_path: Path, entry: tuple[int, ...]) -> None:
    """LOAD-8: the segment is recovered, also for a version that is not known: there the reference does not start."""
    a_log = log(tmp_path, **SETTINGS)
    write(a_log, 1, 0, 2, txn=True)
    append_marker(a_log, ABORT, 1)
    a_log.close()
    path = tmp_path / "topic-0" / txn_index_file_name(0)
    sound = path.read_bytes()
    path.write_bytes(struct.pack(">hqqqq", *entry))
    again = log(tmp_path, **SETTINGS)
    assert [tuple(one)[1:] for one in again.active_segment.txn_index.entries()] == [(1, 0, 2, 3)]
    assert path.read_bytes() == sound
    again.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_beside_sound_data(tmp_path: Path, suffix: str) -> None:
    """LOAD-28: it opens, and everything is read; the reference finds nothing through entries of zeros."""
    folder = write_segments(tmp_path)
    (folder / name(5, suffix)).write_bytes(bytes(48))
    again = log(tmp_path, **SETTINGS)
    assert again.log_end_offset == 12 and reads_every_offset(again)
    again.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_below_the_recovery_point_is_rebuilt_and_logged(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """LOAD-28: once for its segment, whose new indexes are on disk; those of the others stay as they are."""
    folder = write_segments(tmp_path, killed=True)
    (folder / name(5, suffix)).write_bytes(bytes(48))
    fs = FaultFS()
    with caplog.at_level(logging.WARNING):
        again = log(tmp_path, fs=fs, recovery_point=10, **UNCLEAN)
    assert caplog.messages == [f"rebuilding the indexes of {folder / name(5)}, which are damaged"]
    assert reads_every_offset(again)
    synced = {Path(call.path).name for call in fs.named("fdatasync", "fsync")}
    assert {name(5, ".index"), name(5, ".timeindex")} <= synced and name(0, ".index") not in synced
    again.close()


# Which segments are recovered, and what is cut

@pytest.mark.parametrize(("point", "segments"), [(0, 3), (4, 3), (5, 2), (10, 1), (12, 1), (99, 1)])
def test_segments_from_the_recovery_point_on_are_looked_at(tmp_path: Path, point: int, segments: int) -> None:
    """LOAD-10, LOAD-27: from the one that holds it; the last one always."""
    write_segments(tmp_path, killed=True)
    reported: list[RecoveryProgress] = []
    clock = MockClock(NOW)
    again = UnifiedLog.open(
        tmp_path / "topic-0", config(**SETTINGS), clock=clock, recovery_point=point, had_clean_shutdown=False,
        progress=reported.append,
    )  # fmt: skip
    assert reported[-1].segments_done == reported[-1].segments == segments
    again.close()


def test_damage_below_the_recovery_point_is_not_met(tmp_path: Path) -> None:
    """LOAD-10: what was flushed is not read again."""
    folder = write_segments(tmp_path, killed=True)
    flip(folder / name(0), 70)
    again = log(tmp_path, recovery_point=5, **UNCLEAN)
    assert (bases(again), again.log_end_offset) == ([0, 5, 10], 12)
    again.close()


@pytest.mark.parametrize(("damaged", "left"), [(0, [0]), (5, [0, 5]), (10, [0, 5, 10])])
def test_what_lies_behind_damage_is_given_up(tmp_path: Path, damaged: int, left: list[int]) -> None:
    """LOAD-11: later segments are renamed and removed after their delay, their snapshots at once; the log goes on.

    That is, where nothing in them is sound: else they are kept.
    """
    folder = write_segments(tmp_path, killed=True)
    flip(folder / name(damaged), 170)
    for base in (5, 10):
        if base not in left:
            (folder / name(base)).write_bytes(b"no batch" * 60)
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    again = log(tmp_path, clock=clock, scheduler=scheduler, **UNCLEAN)
    assert (bases(again), again.log_end_offset) == (left, damaged + 1) and reads_every_offset(again)
    lost = [base for base in (5, 10) if base not in left]
    for base in lost:
        assert {name(base, ".log.deleted"), name(base, ".index.deleted")} <= set(files(folder))
        assert name(base, ".snapshot") not in files(folder)
    clock.advance(60_000)
    scheduler.tick()
    assert not list(folder.glob("*.deleted"))
    append_batches(again)
    again.close()


@pytest.mark.parametrize("offset", [3, 2**40])
def test_offsets_that_make_no_sense(tmp_path: Path, offset: int) -> None:
    """LOAD-12: going back is damage: what lies before stays (the reference empties the segment); too far is split."""
    folder = write_segments(tmp_path, killed=True)
    with (folder / name(5)).open("r+b") as file:
        file.seek(200)
        file.write(offset.to_bytes(8, "big"))
    again = log(tmp_path, **UNCLEAN)
    if offset == 3:
        assert (bases(again), again.log_end_offset, again.segments[1].size) == ([0, 5], 7, 200)
    else:
        assert [again.read(n, 1).fetch_offset_metadata.message_offset for n in (4, 5, 6)] == [4, 5, 6]
        assert all(one.read_next_offset() - one.base_offset <= 2**31 for one in again.segments)
    again.close()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("damage", ["an impossible offset", "zeros behind the end"])
def test_damage_before_an_empty_last_segment_leaves_it(tmp_path: Path, damage: str, clean: bool) -> None:
    """The reference ends the log there too: without the segment it would end at the damaged offset."""
    a_log = log(tmp_path)
    append_batches(a_log, times=5)
    a_log.roll()
    a_log.close()
    file = tmp_path / "topic-0" / name(0)
    if damage == "an impossible offset":
        flip(file, 400)
    else:
        file.write_bytes(file.read_bytes() + bytes(100))
    again = log(tmp_path, had_clean_shutdown=clean, recovery_point=5)
    assert (bases(again), again.log_end_offset) == ([0, 5], 5)
    again.close()


def test_a_first_batch_that_is_cut_off(tmp_path: Path) -> None:
    """LOAD-31: the last segment is empty then, with its base, where the log ends."""
    folder = write_segments(tmp_path, killed=True)
    os.truncate(folder / name(10), 50)
    again = log(tmp_path, **UNCLEAN)
    assert (bases(again), again.log_end_offset, again.active_segment.size) == ([0, 5, 10], 10, 0)
    append_batches(again)
    assert again.log_end_offset == 11
    again.close()


def test_a_preallocated_file_of_a_killed_process(tmp_path: Path) -> None:
    """LOAD-29: its tail of zeros is no damage: it is cut, and the log ends behind the last batch."""
    a_log = log(tmp_path, preallocate=True, internal_segment_bytes=4096)
    append_batches(a_log, times=3)
    a_log.close_handlers()
    path = tmp_path / "topic-0" / name(0)
    assert path.stat().st_size == 4096
    again = log(tmp_path, had_clean_shutdown=False)
    assert (again.log_end_offset, again.active_segment.size, path.stat().st_size) == (3, 300, 300)
    again.close()


def test_the_recovery_point_and_the_high_watermark_after_it(tmp_path: Path) -> None:
    """LOAD-33, LOAD-10: the high watermark is the log start until somebody says more; the point given stays."""
    write_segments(tmp_path, 10, killed=True)
    again = log(tmp_path, recovery_point=5, high_watermark_follows_end=False, **UNCLEAN)
    assert (again.log_end_offset, again.recovery_point, again.high_watermark) == (10, 5, 0)
    again.flush()
    assert again.recovery_point == 10
    again.close()
    clean = log(tmp_path, high_watermark_follows_end=False, recovery_point=3, **SETTINGS)
    assert (clean.recovery_point, clean.high_watermark) == (10, 0)
    clean.close()


# Log start

def test_a_log_that_ends_below_its_start_begins_anew(tmp_path: Path) -> None:
    """LOAD-13: its files are kept, epochs and producers forgotten; a segment and an empty snapshot at the start."""
    folder = write_segments(tmp_path)
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    clock = MockClock(NOW)
    again = log(tmp_path, clock=clock, scheduler=MockScheduler(clock), log_start_offset=500, **SETTINGS)
    assert (bases(again), again.log_start_offset, again.log_end_offset, again.recovery_point) == ([500], 500, 500, 500)
    assert (again.leader_epochs, again.producers) == ((), ())
    listed = set(files(folder))
    assert {name(0), name(5, ".index"), name(10, ".timeindex")} <= set(files(next(folder.glob("kafkalog-kept/*"))))
    assert {name(500), name(500, ".snapshot")} <= listed and not {name(0), name(5), name(10)} & listed
    assert {one for one in listed if ".snapshot" in one} == {name(500, ".snapshot")}, "the others are gone at once"
    assert read_snapshot(str(folder / name(500, ".snapshot"))) == []
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    again.close()


@pytest.mark.parametrize("start", [0, 500])
def test_an_empty_directory(tmp_path: Path, start: int) -> None:
    """LOAD-13, LOAD-15: a first segment at the log start, its indexes at full length (LOAD-16)."""
    a_log = log(tmp_path, log_start_offset=start)
    assert (bases(a_log), a_log.log_start_offset, a_log.log_end_offset) == ([start], start, start)
    listed = files(tmp_path / "topic-0")
    assert (listed[name(start)], listed[name(start, ".index")], listed[name(start, ".timeindex")]) == (0, 1000, 996)
    a_log.close()


@pytest.mark.parametrize(("given", "start"), [(0, 5), (7, 7), (11, 11), (12, 12)])
def test_the_log_start_and_the_epochs_within_it(tmp_path: Path, given: int, start: int) -> None:
    """LOAD-14: the larger of checkpoint and first base; epochs are cut at both ends, the last stays at the log end."""
    folder = write_segments(tmp_path)
    for path in folder.glob(f"{0:020d}*"):
        path.unlink()
    (folder / "leader-epoch-checkpoint").write_text("0\n4\n0 0\n1 6\n2 8\n3 40\n")
    again = log(tmp_path, log_start_offset=given, **SETTINGS)
    assert (again.log_start_offset, again.log_end_offset) == (start, 12)
    kept = {0: ((0, 0), (1, 6), (2, 8)), 7: ((1, 7), (2, 8)), 11: ((2, 11),), 12: ((2, 12),)}
    assert again.leader_epochs == kept[given]
    again.close()


@pytest.mark.parametrize(("damaged", "end"), [(10, 10), (0, 2)])
def test_a_cut_below_the_first_epoch_leaves_the_epochs_of_the_batches(tmp_path: Path, damaged: int, end: int) -> None:
    """The file is of after a deletion that a power loss undid, and the damage is below its first epoch."""
    folder = write_segments(tmp_path, killed=True)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 11\n")
    flip(folder / name(damaged), 250 if damaged == 0 else 90)
    again = log(tmp_path, **UNCLEAN)
    assert (again.log_end_offset, again.leader_epochs) == (end, ((0, 0),))
    again.close()


def test_the_last_segment_has_its_room_again(tmp_path: Path) -> None:
    """LOAD-16: also after a recovery, which leaves indexes without any."""
    folder = write_segments(tmp_path)
    for clean in (True, False):
        again = log(tmp_path, **SETTINGS, had_clean_shutdown=clean)
        listed = files(folder)
        assert (listed[name(10, ".index")], listed[name(10, ".timeindex")]) == (1000, 996)
        assert listed[name(5, ".index")] < 1000
        again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [5, 12])
def test_an_empty_segment_without_indexes_gets_them(tmp_path: Path, base: int, clean: bool) -> None:
    """LOAD-7: amid a log, where its neighbour was cleaned away, and at its end."""
    folder = write_segments(tmp_path, killed=not clean)
    for suffix in (".log", ".index", ".timeindex"):
        (folder / name(base, suffix)).unlink(missing_ok=True)
    (folder / name(base)).touch()
    again = log(tmp_path, **SETTINGS, had_clean_shutdown=clean)
    assert (bases(again), again.log_end_offset) == (sorted({0, 5, 10, base}), 12)
    assert {(folder / name(base, suffix)).exists() for suffix in (".index", ".timeindex")} == {True}
    again.close()


# Producers

def test_a_loader_begins_with_producers_that_know_nothing(tmp_path: Path) -> None:
    """LOAD-19."""
    folder = os.fspath(write_segments(tmp_path))
    producers = ProducerStateManager(folder)
    producers.snapshots.write(12, [(7, 0, 0, 3, 0, NOW, -1, -1)])
    producers.truncate_and_reload(0, 12, NOW)
    made = LogLoader(
        folder, config(), LeaderEpochCache.open(folder), producers, fs=OS, clock=MockClock(NOW), log_start_offset=0,
        recovery_point=12, had_clean_shutdown=True, progress=None, threads=None, listed=list_directory(folder, OS),
        keeps_begun_epochs=False, refuses_loss=False,
    )  # fmt: skip
    with pytest.raises(IllegalState, match="producer state"):
        made.load()


def producing(path: Path) -> Path:
    """Segments 0, 4 and 6: producer 7 in all of them, a transaction of 8 that is open from 4 on."""
    a_log = log(path)
    write(a_log, 7, 0, 4)
    a_log.roll()
    write(a_log, 8, 0, txn=True)
    write(a_log, 7, 4)
    a_log.roll()
    write(a_log, 7, 5, 2)
    a_log.close()
    return path / "topic-0"


def list_producers(a_log: UnifiedLog) -> list[tuple[int, int, int]]:
    return [(one.producer_id, one.last_sequence, one.current_txn_first_offset) for one in a_log.producers]


def snapshots(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_without_any_snapshot_all_of_the_log_is_read(tmp_path: Path) -> None:
    """LOAD-21: the reference writes empty ones and forgets its producers; ours are known, at the bases and the end."""
    folder = producing(tmp_path)
    for path in folder.glob("*.snapshot"):
        path.unlink()
    again = log(tmp_path)
    assert list_producers(again) == [(7, 6, -1), (8, 0, 4)] and again.last_stable_offset == 4
    assert snapshots(folder) == [4, 6, 8]
    again.close()


def test_snapshots_after_a_recovery(tmp_path: Path) -> None:
    """LOAD-25, LOAD-24, LOAD-20: at the bases of what was recovered and at the end, none beyond it, no stray."""
    folder = producing(tmp_path)
    (folder / snapshot_file_name(5)).write_bytes(format_snapshot([]))
    (folder / snapshot_file_name(99)).write_bytes(format_snapshot([]))
    again = log(tmp_path, had_clean_shutdown=False)
    assert snapshots(folder) == [4, 6, 8] and list_producers(again) == [(7, 6, -1), (8, 0, 4)]
    again.close()


@pytest.mark.parametrize(("has_index", "expected"), [(True, [6, 8, 9]), (False, [4, 6, 8, 9])])
def test_a_recovery_without_snapshots_writes_those_of_the_last_two_bases(
    tmp_path: Path, has_index: bool, expected: list[int]
) -> None:
    """LOAD-25: of the whole log, and of what lies before a segment without index, which is recovered twice."""
    folder = producing(tmp_path)
    a_log = log(tmp_path)
    a_log.roll()
    write(a_log, 7, 7)
    a_log.close()
    for path in folder.glob("*.snapshot"):
        path.unlink()
    if not has_index:
        (folder / f"{8:020d}.index").unlink()
    again = log(tmp_path, had_clean_shutdown=False, recovery_point=9)
    assert snapshots(folder) == expected and list_producers(again) == [(7, 7, -1), (8, 0, 4)]
    again.close()


def test_segments_behind_the_newest_snapshot_are_read(tmp_path: Path) -> None:
    """LOAD-22: one that lies is believed up to its offset; none at the end means that the last segment is read."""
    folder = producing(tmp_path)
    (folder / snapshot_file_name(8)).unlink()
    (folder / snapshot_file_name(6)).write_bytes(format_snapshot([(55, 0, 0, 3, 0, NOW, -1, -1)]))
    again = log(tmp_path)
    assert list_producers(again) == [(7, 6, -1), (55, 0, -1)]
    again.close()


def test_a_damaged_snapshot_is_removed_and_an_older_one_used(tmp_path: Path) -> None:
    """LOAD-23: and without a sound one the log is read from its start."""
    folder = producing(tmp_path)
    for damaged in ((8,), (4, 6, 8)):
        for offset in damaged:
            (folder / snapshot_file_name(offset)).write_bytes(b"damaged")
        again = log(tmp_path)
        assert list_producers(again) == [(7, 6, -1), (8, 0, 4)]
        again.close()


def test_a_coordinator_epoch_that_goes_back(tmp_path: Path) -> None:
    """LOAD-26: refused where it is appended, taken as it is where the log has it."""
    a_log = log(tmp_path)
    write(a_log, 1, 0, txn=True)
    append_marker(a_log, COMMIT, 1, coordinator=9)
    data = build_batch(1, 1, txn=True, base=2)
    a_log.append_as_follower(data, 0)
    a_log.close_handlers()
    path = tmp_path / "topic-0" / name(0)
    path.write_bytes(path.read_bytes() + bytes(marker_batch(COMMIT, 1, 0, 3, timestamp=NOW, base_offset=3)))
    again = log(tmp_path, had_clean_shutdown=False)
    assert (again.log_end_offset, again.last_stable_offset) == (4, 4)
    assert [one.coordinator_epoch for one in again.producers] == [3]
    again.close()


# The system

def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """LOAD-9: what stands where a segment is meant is named; nothing is changed."""
    folder = write_segments(tmp_path)
    (folder / name(5)).unlink()
    (folder / name(5)).mkdir()
    before = files(folder)
    with pytest.raises(OSError, match=name(5)):
        log(tmp_path, **SETTINGS)
    assert files(folder) == before


def test_what_is_read_is_what_was_written_after_any_of_it(tmp_path: Path) -> None:
    """LOAD-10: recovered twice, cut nowhere: the same files as after the first time."""
    folder = write_segments(tmp_path, killed=True)
    seen = []
    for _ in range(2):
        again = log(tmp_path, **UNCLEAN)
        assert reads_every_offset(again) and again.log_end_offset == 12
        again.close()
        seen.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert seen[0] == seen[1]
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    assert len(data) == 1200
