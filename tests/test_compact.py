"""`log.compact()`: one clean of a log that is open for writing, and what the data directory remembers of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cleaner import pass_
from kafkalog.cleaner.splits import MOST_SPLITS
from kafkalog.cleaner.types import CleanerStats, CleanResult
from kafkalog.errors import (
    CleaningAborted,
    IllegalArgument,
    IllegalState,
    LogClosed,
    ReadOnlyLog,
    SegmentOffsetOverflow,
)
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, OffsetCheckpoint
from tests.cleaner.filtering import build_batch
from tests.cleaner.test_pass_splits import FAR, write_overflowing
from tests.interruptions import interrupted_at


def open_compacted(path: Path, **more: object) -> kafkalog.Log:
    return kafkalog.open(path / "data" / "states-0", "a", **{"cleanup_policy": "compact", **more})


def open_filled(path: Path, **more: object) -> kafkalog.Log:
    log = open_compacted(path, **more)
    for number in range(60):
        log.append((b"key %d" % (number % 7), b"value %d" % number))
    return log


def cleaner_checkpoint(path: Path) -> OffsetCheckpoint:
    return OffsetCheckpoint(path / "data" / CLEANER_OFFSET_FILE)


def test_the_last_record_of_each_key_stays(tmp_path: Path) -> None:
    """CLN-3: after a roll; the active segment is never cleaned (CLN-30)."""
    with open_filled(tmp_path) as log:
        assert log.compact().stats.messages_read == 0
        assert len(list(log)) == 60
        found = log.compact(roll=True)
        assert (found.end_offset, found.stats.messages_written) == (60, 7)
        assert [record.offset for record in log] == list(range(53, 60))
        assert log[59].value == b"value 59"
        log.append((b"key 1", b"new"))
    with kafkalog.open(tmp_path / "data" / "states-0") as log:
        assert {record.key: record.value for record in log}[b"key 1"] == b"new"


def test_a_second_clean_changes_nothing(tmp_path: Path) -> None:
    with open_filled(tmp_path) as log:
        log.compact(roll=True)
        rows = list(log)
        found = log.compact(from_start=True)
        assert found.stats.bytes_read == found.stats.bytes_written
        assert list(log) == rows


def test_the_cleaner_checkpoint_is_kept_where_there_is_one(tmp_path: Path) -> None:
    """CLN-33: other partitions' lines stay; without the file none is created, and all of the log is dirty each time."""
    other, ours = TopicPartition("other", 3), TopicPartition("states", 0)
    with open_filled(tmp_path) as log:
        log.compact(roll=True)
        assert not (tmp_path / "data" / CLEANER_OFFSET_FILE).exists()
        (tmp_path / "data" / str(other)).mkdir()
        cleaner_checkpoint(tmp_path).write({other: 17})
        assert log.compact().end_offset == 60
        assert cleaner_checkpoint(tmp_path).read() == {other: 17, ours: 60}
        log.append((b"key 6", b"last"))
        found = log.compact(roll=True)
        assert (found.end_offset, found.stats.map_messages_read) == (61, 1)
        assert log.compact().end_offset == 61
        assert cleaner_checkpoint(tmp_path).read() == {other: 17, ours: 61}
        assert [record.offset for record in log] == [53, 54, *range(56, 61)]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    with open_filled(tmp_path) as log:
        log.roll()
        cleaner_checkpoint(tmp_path).write({})
        found = log.compact(dry_run=True)
        assert found.stats.messages_written == 7 and len(list(log)) == 60
        assert cleaner_checkpoint(tmp_path).read() == {}


def test_a_small_map_needs_more_than_one_call(tmp_path: Path) -> None:
    """CLN-4: the checkpoint says where the next one begins."""
    with open_filled(tmp_path) as log:
        cleaner_checkpoint(tmp_path).write({})
        ends = [log.compact(roll=True, offset_map_bytes=24 * 4).end_offset]
        while ends[-1] < 60:
            ends.append(log.compact(offset_map_bytes=24 * 4).end_offset)
        assert len(ends) > 5 and ends == sorted(set(ends))
        assert [record.offset for record in log] == list(range(53, 60))


def test_readers_of_the_log_and_of_its_directory_see_every_key_while_it_is_compacted(tmp_path: Path) -> None:
    """CLN-41: offsets rise, no key is missing, none goes back to an older value than the one before the clean.

    A reader ends where the log ended when it began: of a key whose value a later one has replaced since, the last value
    that it would meet may be cleaned away.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def check(rows: kafkalog.Log) -> None:
        last, seen, end = -1, {}, rows.end_offset
        for record in rows:
            assert record.offset > last
            last, seen[record.key] = record.offset, int(record.value or b"")
        replaced = {b"%d" % (number % 50) for number in range(end, log.end_offset)}
        assert len(seen.keys() | replaced) == 50
        assert min((value for key, value in seen.items() if key not in replaced), default=450) >= 450

    def read(from_directory: bool) -> None:
        try:
            while not stop.is_set():
                if from_directory:
                    with kafkalog.open(log.path) as view:
                        check(view)
                else:
                    check(log)
        except BaseException as error:
            failures.append(error)

    with open_compacted(tmp_path, internal_segment_bytes=4000) as log:
        for number in range(500):
            log.append((b"%d" % (number % 50), b"%d" % number))
        threads = [threading.Thread(target=read, args=(each,)) for each in (True, False)]
        for thread in threads:
            thread.start()
        for number in range(500, 1500):
            log.append((b"%d" % (number % 50), b"%d" % number))
            if number % 50 == 0:
                log.compact(from_start=True)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_progress_is_told_and_may_end_the_clean(tmp_path: Path) -> None:
    seen: list[CleanerStats] = []

    def on_progress(stats: CleanerStats) -> None:
        seen.append(stats)
        if len(seen) > 2:
            raise CleaningAborted("enough")

    with open_filled(tmp_path) as log:
        with pytest.raises(CleaningAborted, match="enough"):
            log.compact(roll=True, progress=on_progress)
        assert len(list(log)) == 60
        log.compact()
        assert len(list(log)) == 7


def test_a_ctrl_c_anywhere_leaves_a_log_that_can_be_compacted_and_closed(tmp_path: Path) -> None:
    """CLN-34, pitfall 46: no thread keeps the log; it ends the clean between two chunks, or comes after."""
    package = Path(kafkalog.__file__).parent
    files = tuple(str(package / name) for name in ("log/compact.py", "storage/log_parts/replacer.py"))
    moment, outcomes = 1, set()
    with open_filled(tmp_path) as log:
        log.roll()
        log.compact()
        while (ended := interrupted_at(moment, lambda: log.compact(from_start=True, dry_run=True), files)) is not None:
            outcomes.add(ended)
            assert log.compact(from_start=True, dry_run=True).end_offset == 60
            moment += 1
        assert outcomes == {True} and moment > 20
        assert [record.offset for record in log] == list(range(53, 60))
        thread = threading.Thread(target=log.close)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()


def test_a_segment_that_has_to_be_split_first_is_split(tmp_path: Path) -> None:
    """CLN-26, CLN-40: the counters are those of the clean that came to its end, not of the one before the split."""
    write_overflowing(tmp_path, build_batch(0, (b"1", b"old")), build_batch(FAR + 1, (b"1", b"new"))).close()
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    with kafkalog.open(tmp_path / "topic-0", "a", cleanup_policy="compact") as log:
        found = log.compact()
        assert (found.stats.map_messages_read, found.stats.messages_read, found.stats.messages_written) == (2, 2, 1)
        assert [record.offset for record in log] == [FAR + 1, FAR + 9]


def test_splits_that_never_end_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-26: with what the clean itself says of it."""
    rounds = []

    def aborted(*args: object, **more: object) -> CleanResult:
        rounds.append(args)
        raise CleaningAborted("a segment had to be split") from SegmentOffsetOverflow("it does not fit")

    monkeypatch.setattr(pass_, "clean", aborted)
    with open_filled(tmp_path) as log, pytest.raises(CleaningAborted, match="had to be split"):
        log.compact(roll=True)
    assert len(rounds) == MOST_SPLITS + 1


def test_what_refuses_it(tmp_path: Path) -> None:
    with open_filled(tmp_path, cleanup_policy="delete") as log:
        with pytest.raises(IllegalState, match="lacks compact"):
            log.compact(roll=True)
        with pytest.raises(TypeError, match="from_start"):
            log.compact(from_begin=True)
        assert len(list(log)) == 60
    with pytest.raises(LogClosed):
        log.compact()
    with kafkalog.open(tmp_path / "data" / "states-0") as view, pytest.raises(ReadOnlyLog):
        view.compact()


def test_a_log_of_a_store_is_cleaned_by_its_store(tmp_path: Path) -> None:
    with kafkalog.open_dirs([tmp_path / "store"], "a") as store:
        store.create_topic("states", 1, {"cleanup.policy": "compact"})
        assert store["states", 0].compact().end_offset == 0
        assert [clean.thread for clean in store.cleaner.last] == [-1]


@pytest.mark.parametrize("size", [-1, 0, 24, 47])
def test_a_map_for_no_key_is_refused(tmp_path: Path, size: int) -> None:
    """CLN-5: it would do nothing, and not say so."""
    with open_filled(tmp_path) as log:
        with pytest.raises(IllegalArgument, match="no room for a key"):
            log.compact(roll=True, offset_map_bytes=size)
        assert len(list(log)) == 60
