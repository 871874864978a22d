"""A log after a power cut, one loss at a time (tests/crash finds them, these keep them)."""

from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.storage.log import UnifiedLog
from tests import transactional
from tests.faults import FaultFS
from tests.storage.logs import NOW, append_batches, bases, files, log

SETTINGS = {"internal_segment_bytes": 300, "index_interval_bytes": 0}


def write_dead_log(path: Path, count: int) -> Path:
    """A log of `count` batches in segments of three, with its process dead."""
    a_log = log(path, **SETTINGS)
    for n in range(count):
        append_batches(a_log, timestamp=NOW + n)
    a_log.flush()
    a_log.close_handlers()
    return path / "topic-0"


def open_recovered(path: Path, recovery_point: int = 0) -> UnifiedLog:
    return log(path, had_clean_shutdown=False, recovery_point=recovery_point, **SETTINGS)


def zero_from(file: Path, start: int) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:start].ljust(len(data), b"\0"))


def segment_file(directory: Path, base: int, suffix: str) -> Path:
    return directory / f"{base:020d}.{suffix}"


def test_a_torn_segment_before_an_empty_one(tmp_path: Path) -> None:
    """LOAD-10: it is recovered before anybody asks where it ends."""
    directory = write_dead_log(tmp_path, 3)
    segment_file(directory, 3, "log").write_bytes(b"")
    zero_from(segment_file(directory, 0, "log"), 200)
    a_log = open_recovered(tmp_path)
    assert (a_log.log_end_offset, bases(a_log)) == (2, [0])


@pytest.mark.parametrize("suffix", ["index", "txnindex"])
def test_a_torn_segment_before_one_without_a_sound_index(tmp_path: Path, suffix: str) -> None:
    """LOAD-7, LOAD-8: what is to be recovered anyway is not recovered out of turn."""
    directory = write_dead_log(tmp_path, 6)
    zero_from(segment_file(directory, 0, "log"), 200)
    if suffix == "index":
        segment_file(directory, 3, suffix).unlink()
    else:
        segment_file(directory, 3, suffix).write_bytes(bytes(34))
    a_log = open_recovered(tmp_path)
    assert (a_log.log_end_offset, bases(a_log)) == (2, [0])


def test_indexes_below_the_recovery_point_whose_trim_is_lost(tmp_path: Path) -> None:
    """LOAD-28: they have room at their ends again, which is no entry."""
    directory = write_dead_log(tmp_path, 7)
    for suffix in ("index", "timeindex"):
        file = segment_file(directory, 0, suffix)
        file.write_bytes(file.read_bytes() + bytes(600))
    a_log = open_recovered(tmp_path, recovery_point=6)
    for n in range(7):
        found = a_log.offset_for_time(NOW + n)
        assert found is not None and found.offset == n
    assert files(directory)[f"{0:020d}.index"] == 16


def test_a_sealed_segment_whose_trim_is_lost(tmp_path: Path) -> None:
    """LOAD-29: room behind its last batch hides nothing, where the next segment begins at its end."""
    directory = write_dead_log(tmp_path, 7)
    with segment_file(directory, 0, "log").open("ab") as file:
        file.write(bytes(100))
    a_log = open_recovered(tmp_path)
    assert (a_log.log_end_offset, bases(a_log)) == (7, [0, 3, 6])
    assert files(directory)[f"{0:020d}.log"] == 300


def test_a_hole_behind_a_torn_segment_ends_the_log(tmp_path: Path) -> None:
    """LOAD-11: where a batch is missing, nothing behind it stays."""
    directory = write_dead_log(tmp_path, 7)
    zero_from(segment_file(directory, 0, "log"), 200)
    a_log = open_recovered(tmp_path)
    assert (a_log.log_end_offset, bases(a_log)) == (2, [0])


def test_snapshots_above_the_recovery_point_may_be_torn(tmp_path: Path) -> None:
    """LOAD-23: all of them are looked at, not only the newest."""
    directory = write_dead_log(tmp_path, 10)
    for base in (3, 6):
        segment_file(directory, base, "snapshot").write_bytes(b"")
    open_recovered(tmp_path, recovery_point=9).close_handlers()
    assert f"{3:020d}.snapshot" in files(directory)
    open_recovered(tmp_path, recovery_point=2).close_handlers()
    assert all(size for name, size in files(directory).items() if name.endswith(".snapshot"))


def test_a_log_never_goes_back_to_offsets_it_gave_out(tmp_path: Path) -> None:
    """LOG-17: an empty segment that is replaced has no file for a moment but the deleted one."""
    a_log = log(tmp_path, **SETTINGS)
    a_log.truncate_fully_and_start_at(20)
    a_log.close_handlers()
    directory = tmp_path / "topic-0"
    segment_file(directory, 20, "log").rename(segment_file(directory, 20, "log.deleted"))
    again = open_recovered(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (20, 20)


@pytest.mark.parametrize(("kept", "end"), [(300, 9), (250, 8), (0, 6)])
def test_all_segments_given_up_and_none_begun(tmp_path: Path, kept: int, end: int) -> None:
    """LOG-43: of a retention that takes all, a power cut may keep the new names and not the segment begun before."""
    directory = write_dead_log(tmp_path, 9)
    zero_from(segment_file(directory, 6, "log"), kept)
    for file in directory.glob("0*"):
        if not file.name.endswith("snapshot"):
            file.rename(f"{file}.deleted")
    again = open_recovered(tmp_path, recovery_point=6)
    assert (again.log_start_offset, again.log_end_offset, bases(again)) == (end, end, [end])
    assert not [name for name in files(directory) if name.endswith("deleted")]


def write_deleted_segments(path: Path, count: int) -> Path:
    """A log whose segments all wait for their delete."""
    directory = write_dead_log(path, count)
    for file in directory.glob("0*"):
        file.rename(f"{file}.deleted")
    return directory


@pytest.mark.parametrize("damaged", [-5, 2**33, 2**63 - 1])
def test_a_damaged_offset_says_nothing_about_where_the_log_goes_on(tmp_path: Path, damaged: int) -> None:
    """Offsets lie outside the checksum: one that no segment of this name has ends what is sound."""
    directory = write_deleted_segments(tmp_path, 9)
    with segment_file(directory, 6, "log.deleted").open("r+b") as file:
        file.seek(200)
        file.write(damaged.to_bytes(8, "big", signed=True))
    again = open_recovered(tmp_path)
    assert (again.log_start_offset, again.log_end_offset, bases(again)) == (8, 8, [8])


@pytest.mark.parametrize("log_start", [0, 9, 12])
def test_segments_given_up_and_a_second_crash(tmp_path: Path, log_start: int) -> None:
    """The file that shows the end is removed only once the segment that continues there is on disk."""
    directory = write_deleted_segments(tmp_path, 9)
    fs = FaultFS()
    fs.fail("unlink", path="6.timeindex.deleted")
    with pytest.raises(StorageError):
        log(tmp_path, fs=fs, had_clean_shutdown=False, log_start_offset=log_start, **SETTINGS)
    assert not segment_file(directory, 6, "log.deleted").exists()
    again = log(tmp_path, had_clean_shutdown=False, log_start_offset=log_start, **SETTINGS)
    end = max(9, log_start)
    assert (again.log_start_offset, again.log_end_offset, bases(again)) == (end, end, [end])


def test_room_reserved_ahead_is_given_up_before_the_last_flush(tmp_path: Path) -> None:
    """LOAD-29: the recovery point of a closed log lies behind its end, so that no later open truncates it."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, internal_segment_bytes=3000, preallocate=True)
    append_batches(a_log, times=3)
    a_log.close()
    calls = [call.op for call in fs.named("ftruncate", "fdatasync") if call.path.endswith(".log")]
    assert calls == ["ftruncate", "fdatasync"] and files(tmp_path / "topic-0")[f"{0:020d}.log"] == 300


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("entries", [None, [(9, 1, 2, 3)]], ids=["its own", "of a log before"])
def test_a_transaction_index_alone_was_renamed(
    tmp_path: Path, clean: bool, entries: list[tuple[int, int, int, int]] | None
) -> None:
    """A delete that came to nothing must not show aborted records; what the renamed file says is not believed."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    events = [("data", 7, 2), ("plain", -1, 1), ("abort", 7, 0), ("roll", 0, 0), ("plain", -1, 3), ("roll", 0, 0)]
    transactional.made([*events, ("plain", -1, 1)]).write(directory)
    renamed = directory / f"{0:020d}.txnindex.deleted"
    expected = transactional.index_path(directory, 0).read_bytes()
    transactional.index_path(directory, 0).rename(renamed)
    if entries is not None:
        renamed.write_bytes(transactional.txn_index(entries))
    a_log = log(tmp_path, had_clean_shutdown=clean, recovery_point=7)
    assert transactional.index_path(directory, 0).read_bytes() == expected
    assert not renamed.exists()
    a_log.close()


def test_producers_stay_known_though_a_renamed_transaction_index_lies_before_their_snapshots(tmp_path: Path) -> None:
    """A crash after a clean leaves such a file beside the new segment; records below the log start are not read."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    events = [("data", 7, 2), ("roll", 0, 0), ("abort", 7, 0), ("roll", 0, 0), ("plain", -1, 3)]
    transactional.made(events).write(directory)
    never = {"producer_expiration_ms": 2**62}
    a_log = log(tmp_path, had_clean_shutdown=False, **never)
    known = [one.entry() for one in a_log.producers]
    assert known
    a_log.close()
    (directory / f"{0:020d}.txnindex.deleted").touch()
    a_log = log(tmp_path, had_clean_shutdown=False, recovery_point=6, log_start_offset=2, **never)
    assert [one.entry() for one in a_log.producers] == known
    a_log.close()


def test_a_recovery_that_is_cut_short_knows_again_which_transaction_index_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    transactional.made([("data", 7, 2), ("abort", 7, 0), ("roll", 0, 0), ("plain", -1, 1)]).write(directory)
    expected = transactional.index_path(directory, 0).read_bytes()
    transactional.index_path(directory, 0).rename(directory / f"{0:020d}.txnindex.deleted")
    fs = FaultFS()
    fs.fail("pwrite", path=".txnindex")
    with pytest.raises(StorageError):
        log(tmp_path, fs=fs, had_clean_shutdown=False, recovery_point=4)
    transactional.index_path(directory, 0).unlink(missing_ok=True)  # its name was not synced
    log(tmp_path, had_clean_shutdown=False, recovery_point=4).close()
    assert transactional.index_path(directory, 0).read_bytes() == expected
