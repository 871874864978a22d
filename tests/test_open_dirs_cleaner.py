"""A store whose compacted topics are cleaned: in the background, and where it is asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cleaner.types import ASKED, DIRTY_RATIO
from kafkalog.errors import IllegalState, LogClosed, ReadOnlyLog, UnknownTopicOrPartition
from kafkalog.metrics import snapshot
from kafkalog.types import TopicPartition
from tests.cleaner.test_states import wait_until
from tests.held_store import Held

COMPACT = {"cleanup.policy": "compact"}
T0 = TopicPartition("t", 0)


def fill(log: kafkalog.Log, rounds: int = 3) -> None:
    """So many segments with the same two keys, and an empty active one."""
    for number in range(rounds):
        log.append([(b"a", b"%d" % number), (b"b", b"%d" % number)])
        log.roll()


def read_content(log: kafkalog.Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log]


def cleaner_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafkalog-cleaner")]


def test_no_thread_where_nothing_is_compacted(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append([(b"k", b"v")])
        assert cleaner_threads() == []
        dirs.create_topic("u", settings=COMPACT)
        assert len(cleaner_threads()) == 1
        assert dirs.cleaner.threads == 1
        dirs.delete_topic("u")
        assert (cleaner_threads(), dirs.cleaner.threads) == ([], 0)
        dirs.alter_topic("t", COMPACT)
        assert len(cleaner_threads()) == 1
        dirs.alter_topic("t", {"cleanup.policy": "delete"})
        assert (cleaner_threads(), dirs.cleaner.threads) == ([], 0)


def test_a_compacted_topic_is_cleaned_in_the_background(tmp_path: Path) -> None:
    """CLN-3, CLN-33: on real threads, without anybody's doing; and after a restart no more than is dirty."""
    quick = {"log_cleaner_backoff_ms": 1, "log_initial_task_delay_ms": 0}
    with kafkalog.open_dirs(tmp_path, "a", **quick) as dirs:
        dirs.create_topic("t", settings={**COMPACT, "min.cleanable.dirty.ratio": 0})
        log = dirs["t", 0]
        fill(log)
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        wait_until(lambda: checkpoint.exists() and "t 0 6" in checkpoint.read_text())  # it comes after the last swap
        assert read_content(log) == [(4, b"a", b"2"), (5, b"b", b"2")]
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False) as dirs:
        assert dirs.clean("t").start_offset == 6
        assert read_content(dirs["t", 0]) == [(4, b"a", b"2"), (5, b"b", b"2")]


def test_jobs_of_the_cleaner_by_a_clock(tmp_path: Path) -> None:
    """CLN-29, CLN-33: what is dirty enough, after the back-off."""
    with Held(tmp_path) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        log = held.dirs["t", 0]
        fill(log)
        held.pass_time(14_999, 14_999)
        assert len(read_content(log)) == 6
        held.pass_time(1)
        assert read_content(log) == [(4, b"a", b"2"), (5, b"b", b"2")]
        report = held.dirs.cleaner
        assert (report.threads, report.running, report.uncleanable, report.totals.cleans) == (1, (), (), 1)
        (last,) = report.last
        assert (last.topic_partition, last.reason, last.start_offset, last.end_offset) == (T0, DIRTY_RATIO, 0, 6)
        assert (last.stats.messages_read, last.stats.messages_written) == (6, 2)


def test_a_clean_that_is_asked_for(tmp_path: Path) -> None:
    """The result is the account of it; what is not compacted, or not there, is refused."""
    with Held(tmp_path, log_cleaner_enable=False) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        held.dirs.create_topic("u", 1)
        fill(held.dirs["t", 0])
        clean = held.dirs.clean("t", 0)
        assert (clean.reason, clean.end_offset, clean.stats.messages_written) == (ASKED, 6, 2)
        assert len(read_content(held.dirs["t", 0])) == 2
        with pytest.raises(IllegalState, match="cleanup.policy"):
            held.dirs.clean("u")
        with pytest.raises(UnknownTopicOrPartition):
            held.dirs.clean("t", 7)
        dirs = held.dirs
    with pytest.raises(LogClosed):
        dirs.clean("t")
    with kafkalog.open_dirs(tmp_path) as reader:
        with pytest.raises(ReadOnlyLog):
            reader.clean("t")
        assert (reader.cleaner.threads, reader.cleaner.last) == (0, ())


def test_compacting_a_log_of_a_store(tmp_path: Path) -> None:
    """The face of one log goes the same way: a dry run writes nothing, `from_start` looks at all of it again."""
    with Held(tmp_path, log_cleaner_enable=False) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        log = held.dirs["t", 0]
        fill(log)
        log.append([(b"a", b"last"), (b"c", b"last")])
        seen: list[int] = []
        dry = log.compact(dry_run=True, progress=lambda stats: seen.append(stats.messages_read))
        assert (dry.end_offset, dry.stats.messages_written, len(read_content(log))) == (6, 2, 8)
        assert seen
        assert not (tmp_path / "cleaner-offset-checkpoint").exists()
        found = log.compact(roll=True)
        assert (found.end_offset, [key for _, key, _ in read_content(log)]) == (8, [b"b", b"a", b"c"])
        assert log.compact().stats.map_messages_read == 0
        assert log.compact(from_start=True).stats.map_messages_read == 3
        assert held.dirs.cleaner.totals.cleans == 3


def test_a_second_clean_changes_nothing(tmp_path: Path) -> None:
    with Held(tmp_path, log_cleaner_enable=False) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        log = held.dirs["t", 0]
        fill(log)
        held.dirs.clean("t")
        before = read_content(log)
        held.dirs.clean("t")
        assert read_content(log) == before


def test_a_cut_through_the_log_itself_makes_what_follows_dirty(tmp_path: Path) -> None:
    """MGR-25: the checkpoint does not say more than the log has."""
    with Held(tmp_path, log_cleaner_enable=False) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        log = held.dirs["t", 0]
        fill(log)
        held.dirs.clean("t")
        log.truncate_to(5)
        log.append([(b"a", b"new")])
        log.roll()
        assert held.dirs.clean("t").start_offset <= 5
        assert [value for _, key, value in read_content(log) if key == b"a"] == [b"new"]
        log.truncate_fully_and_start_at(0)
        fill(log, 1)
        assert held.dirs.clean("t").start_offset == 0


def test_metrics_of_the_cleaner(tmp_path: Path) -> None:
    """CLN-39, CLN-40: cleans, bytes, what is left alone with its bytes."""
    with Held(tmp_path, log_cleaner_enable=False) as held:
        held.dirs.create_topic("t", 1, COMPACT)
        log = held.dirs["t", 0]
        fill(log)
        size = log.size
        held.dirs.clean("t")

        def value(name: str, label: str = "store") -> float:
            (found,) = [one["value"] for one in snapshot()[name] if one["labels"][label] == str(tmp_path)]
            return float(found)

        assert value("kafkalog_cleaner_cleans_total") == 1
        assert value("kafkalog_cleaner_read_bytes_total") == size
        assert value("kafkalog_cleaner_written_bytes_total") == log.size
        assert value("kafkalog_cleaner_uncleanable_partitions", "directory") == 0
        engine = held.store._manager.logs[T0]
        fill(log, 1)
        dirty = [segment.size for segment in engine.segments][-2]
        held.store._manager.cleaner.manager.set_aside(engine, ValueError("bad bytes"))
        assert value("kafkalog_cleaner_uncleanable_partitions", "directory") == 1
        assert value("kafkalog_cleaner_uncleanable_bytes", "directory") == dirty
        assert [one.reason for one in held.dirs.cleaner.uncleanable] == ["ValueError: bad bytes"]
