"""The cleaner among the other things that a manager does with its logs: deleting, cutting, moving, failing, closing."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kafkalog
from kafkalog.cleaner.types import CleanResult
from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import (
    CleaningAborted,
    ConfigError,
    CorruptRecord,
    IllegalState,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.scheduler import Scheduler
from tests.cleaner.logs import append
from tests.cleaner.pools import Passes
from tests.cleaner.test_states import in_thread, wait_until
from tests.faults import FaultFS
from tests.manager.managers import T0, T1, OpenManager, find_only, read_checkpoint
from tests.mock_time import MockClock
from tests.storage.logs import NOW

COMPACT = {"cleanup.policy": "compact"}
CHECKPOINT = "cleaner-offset-checkpoint"
JOB = "kafka-log-cleaner-thread-0"


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """A pass that cleans nothing, in the place of the real one."""
    made = Passes()
    monkeypatch.setattr("kafkalog.manager.cleaning.clean", made)
    return made


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A pass that begins (the event is set then) and runs until it is asked to stop."""
    begun = threading.Event()

    def clean(to_clean: object, offset_map: object, **given: Any) -> CleanResult:
        begun.set()
        while True:
            given["check_done"]()

    monkeypatch.setattr("kafkalog.manager.cleaning.clean", clean)
    yield begun


def fill_dirty_log(
    held: OpenManager, topic_partition: TopicPartition = T0, segments: int = 3, **more: Any
) -> UnifiedLog:
    """A compacted log with segments of one record each, and an empty active one."""
    log = held.manager.get_or_create(topic_partition, **{"settings": COMPACT, **more})
    for _ in range(segments):
        append(log, (b"k", b"v"))
        log.roll()
    return log


def start_clean(held: OpenManager) -> list[Exception]:
    """Run the cleaner in a thread; its error, once it ends, is in the list."""
    raised: list[Exception] = []

    def work() -> None:
        try:
            held.manager.cleaner.run()
        except Exception as error:
            raised.append(error)

    in_thread(work)
    return raised


def job_names(held: OpenManager) -> list[str]:
    return [job.name for job in held.manager.jobs if "cleaner" in job.name]


def test_there_are_cleaner_jobs_as_long_as_there_are_compacted_logs(tmp_path: Path, passes: Passes) -> None:
    """CLN-36: a topic that is created, altered, or follows the store."""
    with OpenManager(tmp_path) as held:
        held.manager.schedule_jobs()
        held.create_log(T0)
        assert job_names(held) == []
        held.manager.alter_topic("t", COMPACT)
        assert job_names(held) == [JOB]
        held.manager.alter_topic("t", {"cleanup.policy": None})
        assert job_names(held) == []
        held.manager.alter_config({"log.cleanup.policy": "compact,delete"})
        assert job_names(held) == [JOB]
        held.manager.alter_config({"log.cleanup.policy": None})
        assert job_names(held) == []
        fill_dirty_log(held, TopicPartition("u", 0))
        assert job_names(held) == [JOB]


def test_a_job_cleans_after_the_first_delay_and_then_after_each_back_off(tmp_path: Path, passes: Passes) -> None:
    """CLN-33: the checkpoint is in the log's directory; the settings count at once."""
    with OpenManager(tmp_path, config=BrokerConfig(log_cleaner_backoff_ms=5000)) as held:
        held.manager.schedule_jobs()
        log = fill_dirty_log(held, settings={**COMPACT, "min.cleanable.dirty.ratio": "0.1"})
        held.scheduler.advance(4999)
        assert passes.cleaned == []
        held.scheduler.advance(1)
        assert passes.cleaned == [0]
        assert read_checkpoint(tmp_path, CHECKPOINT) == {"t-0": 3}
        append(log, (b"k", b"v"))
        append(log, (b"k", b"w"))
        log.roll()
        held.manager.alter_config({"log.cleaner.backoff.ms": 100})
        held.scheduler.advance(100)
        assert passes.cleaned == [0, 0]
        assert read_checkpoint(tmp_path, CHECKPOINT) == {"t-0": 5}
        assert [job.last_error for job in held.manager.jobs if job.name == JOB] == [None]


def test_a_checkpoint_is_found_again_after_a_restart(tmp_path: Path, passes: Passes) -> None:
    """CLN-33: what was clean stays clean."""
    with OpenManager(tmp_path) as held:
        fill_dirty_log(held)
        assert held.manager.cleaner.run() == 1
    with OpenManager(tmp_path) as held:
        assert held.manager.cleaner.run() == 0
        log = held.manager.logs[T0]
        assert held.manager.cleaner.clean(log).start_offset == 3


def test_as_many_jobs_as_threads(tmp_path: Path, passes: Passes) -> None:
    """CLN-43: a change is taken up at once, by steps; what cannot be changes nothing."""
    with OpenManager(tmp_path) as held:
        held.manager.schedule_jobs()
        fill_dirty_log(held)
        held.manager.alter_config({"log.cleaner.threads": 2})
        held.manager.alter_config({"log.cleaner.threads": 4, "log.cleaner.dedupe.buffer.size": 48 << 20})
        assert job_names(held) == [f"kafka-log-cleaner-thread-{number}" for number in range(4)]
        assert held.manager.cleaner.share.map_bytes == 12 << 20
        held.manager.alter_config({"log.cleaner.threads": 2})
        assert len(job_names(held)) == 2
        with pytest.raises(ConfigError, match=r"load\.factor"):
            held.manager.alter_config({"log.cleaner.io.buffer.load.factor": 0.0})
        assert held.manager.config.log_cleaner_io_buffer_load_factor == 0.9
        held.manager.alter_config({"log.cleaner.io.max.bytes.per.second": 7.0})
        assert held.manager.cleaner.throttle.bytes_per_s == 7.0


def test_a_ctrl_c_while_jobs_are_started_waits_until_all_are(
    tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLN-43, MGR-24: else the store would say it has a cleaner, and never clean."""
    with OpenManager(tmp_path, config=BrokerConfig(log_cleaner_threads=2)) as held:
        held.manager.schedule_jobs()
        fill_dirty_log(held, settings={})
        real = type(held.scheduler).schedule

        def interrupted(*given: Any, **more: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return real(*given, **more)

        monkeypatch.setattr(type(held.scheduler), "schedule", interrupted)
        with pytest.raises(KeyboardInterrupt):
            held.manager.alter_topic("t", COMPACT)
        monkeypatch.undo()
        held.scheduler.advance(60_000)
        assert [job.runs > 0 for job in held.manager.jobs if "cleaner" in job.name] == [True, True]


@pytest.mark.parametrize("of", ["topic", "store"])
def test_a_ctrl_c_in_a_change_of_policy_still_ends_the_clean(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """CLN-36: it comes when the logs have their settings, and the cleaner has not heard of it."""
    with OpenManager(tmp_path) as held:
        held.manager.alter_config({"log.cleanup.policy": "compact"})
        fill_dirty_log(held, settings={})
        start_clean(held)
        stuck.wait()
        real = LogManager._set_configs

        def interrupted(configs: Any) -> Any:
            found = real(configs)
            signal.raise_signal(signal.SIGINT)
            return found

        monkeypatch.setattr(LogManager, "_set_configs", staticmethod(interrupted))
        with pytest.raises(KeyboardInterrupt):
            if of == "topic":
                held.manager.alter_topic("t", {"cleanup.policy": "delete"})
            else:
                held.manager.alter_config({"log.cleanup.policy": "delete"})
        assert held.manager.cleaner.manager.states.of(T0) is None


def test_a_job_that_could_not_be_started_is_started_with_the_next_change(
    tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLN-43: for want of a thread, say."""
    with OpenManager(tmp_path) as held:
        held.manager.schedule_jobs()
        monkeypatch.setattr(type(held.scheduler), "schedule", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError):
            fill_dirty_log(held)
        monkeypatch.undo()
        held.manager.alter_topic("t", {"retention.ms": 5})
        held.scheduler.advance(60_000)
        assert [job.runs > 0 for job in held.manager.jobs if job.name == JOB] == [True]


def test_a_log_that_is_made_anew_is_not_set_aside(tmp_path: Path, passes: Passes) -> None:
    """CLN-39: the fault of the earlier topic of that name no longer counts."""
    with OpenManager(tmp_path) as held:
        held.manager.cleaner.manager.set_aside(fill_dirty_log(held), CorruptRecord("bad bytes"))
        held.manager.delete(T0)
        fill_dirty_log(held)
        assert held.manager.cleaner_report.uncleanable == ()
        assert held.manager.cleaner.run() == 1
        assert passes.cleaned == [0]


def test_a_directory_that_failed_has_nothing_that_is_set_aside(tmp_path: Path, passes: Passes) -> None:
    """CLN-39: at once, also where the cleaner does not run."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b, config=BrokerConfig(log_cleaner_enable=False)) as held:
        log = fill_dirty_log(held, T0, directory=a)
        fill_dirty_log(held, T1, directory=b)
        held.manager.cleaner.manager.set_aside(log, CorruptRecord("bad bytes"))
        assert len(held.manager.cleaner_report.uncleanable) == 1
        held.manager.fail_directory(str(a), OSError(errno.EIO, "the disk is gone"))
        assert held.manager.cleaner_report.uncleanable == ()


def test_without_the_cleaner_nothing_is_cleaned_but_what_is_asked_for(tmp_path: Path, passes: Passes) -> None:
    with OpenManager(tmp_path, config=BrokerConfig(log_cleaner_enable=False)) as held:
        held.manager.schedule_jobs()
        log = fill_dirty_log(held)
        held.scheduler.advance(100_000)
        assert (passes.cleaned, job_names(held)) == ([], [])
        assert held.manager.cleaner.clean(log).end_offset == 3
        plain = held.create_log(TopicPartition("u", 0))
        with pytest.raises(IllegalState, match="u-0 is not compacted"):
            held.manager.cleaner.clean(plain)


def test_settings_with_which_nothing_would_ever_be_cleaned_are_refused(tmp_path: Path) -> None:
    """CLN-5: before a directory is created."""
    for settings in ({"log_cleaner_io_buffer_load_factor": 0.0}, {"log_cleaner_io_max_bytes_per_second": "nan"}):
        with pytest.raises(ConfigError, match=r"log\.cleaner\.io\."):
            kafkalog.open_dirs(tmp_path / "new", "a", **settings)
    assert not (tmp_path / "new").exists()


def test_no_job_outlives_the_last_compacted_log(tmp_path: Path, passes: Passes) -> None:
    """CLN-36: nor one that is deleted with its future log."""
    with OpenManager(tmp_path) as held:
        held.manager.schedule_jobs()
        fill_dirty_log(held)
        fill_dirty_log(held, T1)
        held.manager.delete(T0)
        assert job_names(held) == [JOB]
        held.manager.delete(T1)
        assert job_names(held) == []
        fill_dirty_log(held)
        assert job_names(held) == [JOB]


def test_a_log_that_is_deleted_while_it_is_cleaned(tmp_path: Path, stuck: threading.Event) -> None:
    """CLN-33, CLN-35: the cleaner lets go before the directory is renamed; its line in the checkpoint goes."""
    with OpenManager(tmp_path) as held:
        log = fill_dirty_log(held)
        (tmp_path / CHECKPOINT).write_text("0\n1\nt 0 1\n")
        raised = start_clean(held)
        stuck.wait()
        assert held.manager.delete(T0) is log
        wait_until(lambda: held.manager.cleaner.book.totals.aborted == 1)
        assert find_only(tmp_path, "-delete").name in log.path
        assert held.manager.cleaner.manager.states.of(T0) is None
        assert read_checkpoint(tmp_path, CHECKPOINT) == {}
        assert raised == []


def test_a_delete_that_fails_lets_the_cleaner_have_the_log_again(tmp_path: Path, passes: Passes) -> None:
    """KAFKA-6568: the pause is undone."""
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        fill_dirty_log(held)
        fs.fail("rename", code=errno.ENOSPC, path="/t-0")
        with pytest.raises(StorageError):
            held.manager.delete(T0)
        assert held.manager.cleaner.run() == 1
        assert passes.cleaned == [0]


def test_a_log_that_is_cut_while_it_is_cleaned(tmp_path: Path, stuck: threading.Event) -> None:
    """MGR-25, CLN-35: what comes after the cut is dirty."""
    with OpenManager(tmp_path) as held:
        log = fill_dirty_log(held)
        (tmp_path / CHECKPOINT).write_text("0\n1\nt 0 2\n")
        asked: list[Exception] = []

        def clean() -> None:
            try:
                held.manager.cleaner.clean(log)
            except CleaningAborted as error:
                asked.append(error)

        in_thread(clean)
        stuck.wait()
        held.manager.truncate_to(T0, 1)
        wait_until(lambda: len(asked) == 1)
        assert read_checkpoint(tmp_path, CHECKPOINT) == {"t-0": 1}
        assert held.manager.cleaner.manager.states.of(T0) is None
        with pytest.raises(UnknownTopicOrPartition):
            held.manager.truncate_to(T1, 1)
        assert held.manager.cleaner.manager.states.of(T1) is None


def test_a_log_that_loses_its_policy_while_it_is_cleaned(tmp_path: Path, stuck: threading.Event) -> None:
    """CLN-36, MGR-24: the clean is aborted, and the log is no longer a candidate."""
    with OpenManager(tmp_path) as held:
        fill_dirty_log(held)
        start_clean(held)
        stuck.wait()
        held.manager.alter_topic("t", {"cleanup.policy": "delete"})
        wait_until(lambda: held.manager.cleaner.book.totals.aborted == 1)
        assert held.manager.cleaner.run() == 0


def test_a_log_that_moves(tmp_path: Path, passes: Passes) -> None:
    """CLN-33, MGR-9: not cleaned while there is a copy that is to take its place; then in the other directory."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        current = fill_dirty_log(held, directory=a)
        other = fill_dirty_log(held, T1, directory=a)
        assert held.manager.cleaner.run() == 2
        append(current, (b"k", b"v"), (b"k", b"v"), (b"k", b"v"), (b"k", b"w"))
        current.roll()
        held.manager.cleaner.manager.set_aside(current, CorruptRecord("bad bytes"))
        future = held.manager.get_or_create(T0, is_future=True, directory=b)
        for segment in current.segments:
            if segment.size:
                future.append_as_follower(bytearray(current.read(segment.base_offset, 1 << 20).records.read()), 0)
        held.manager.cleaner.manager.reinstate(current)
        assert held.manager.cleaner.run() == 0
        with pytest.raises(IllegalState, match="cannot be cleaned now"):
            held.manager.cleaner.clean(current)
        held.manager.cleaner.manager.set_aside(current, CorruptRecord("bad bytes"))
        held.manager.replace_with_future(T0)
        assert (read_checkpoint(a, CHECKPOINT), read_checkpoint(b, CHECKPOINT)) == ({"t-1": 3}, {"t-0": 3})
        assert [one.directory for one in held.manager.cleaner.manager.uncleanable] == [str(b)]
        assert held.manager.logs[T1] is other


def test_a_copy_that_is_begun_while_the_log_is_cleaned(tmp_path: Path, stuck: threading.Event) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        fill_dirty_log(held, directory=a)
        start_clean(held)
        stuck.wait()
        held.manager.get_or_create(T0, is_future=True, directory=b)
        wait_until(lambda: held.manager.cleaner.book.totals.aborted == 1)


def test_retention_and_cleaner_never_have_the_same_log(tmp_path: Path, passes: Passes) -> None:
    """CLN-38, MGR-15: the job takes logs that are not compacted, and leaves out what somebody else works on."""
    with OpenManager(tmp_path) as held:
        old = {"retention.ms": "1", "message.timestamp.before.max.ms": str(2**63 - 1)}
        plain = fill_dirty_log(held, T0, settings=old)
        compacted = fill_dirty_log(held, TopicPartition("u", 0), settings={**old, **COMPACT})
        held.clock.advance(1000)
        retention = held.manager.jobs[0]
        states = held.manager.cleaner.manager.states
        states.abort_and_pause(T0)
        retention.run()
        assert (plain.log_start_offset, compacted.log_start_offset) == (0, 0)
        states.resume(T0)
        retention.run()
        assert (plain.log_start_offset, compacted.log_start_offset) == (3, 0)
        assert states.of(T0) is None


def test_a_disk_that_fails_takes_its_directory_offline_and_the_others_are_cleaned(
    tmp_path: Path, passes: Passes
) -> None:
    """CLN-39: a clean that meets such an error; a full disk is only tried again."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        fill_dirty_log(held, T0, directory=a)
        fill_dirty_log(held, T1, directory=b)
        passes.fail[0] = StorageError("no space", errno=errno.ENOSPC)
        held.manager.cleaner.run()
        assert len(list(held.manager.offline)) == 0
        held.clock.advance(60_000)
        passes.fail[0] = StorageError("the disk is broken", errno=errno.EIO)
        held.manager.cleaner.run()
        assert [one.path for one in held.manager.offline] == [str(a)]
        assert passes.cleaned == [1]
        held.scheduler.advance(10)
        assert list(held.manager.logs) == [T1]
        assert held.manager.cleaner.run() == 0


def test_a_checkpoint_that_cannot_be_read_leaves_its_directory_alone(tmp_path: Path, passes: Passes) -> None:
    fs = FaultFS()
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b, fs=fs) as held:
        fill_dirty_log(held, T0, directory=a)
        fill_dirty_log(held, T1, directory=b)
        fs.fail("open_read", code=errno.EMFILE, path=str(a / CHECKPOINT))
        assert held.manager.cleaner.run() == 1
        assert passes.cleaned == [1]
        fs.heal()
        assert held.manager.cleaner.run() == 1


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path, passes: Passes) -> None:
    """The log is cleaned again later: that loses nothing. No log stays in progress."""
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        fill_dirty_log(held)
        fs.fail("rename", code=errno.ENOSPC, path=CHECKPOINT, times=1)
        held.manager.cleaner.run()
        assert held.manager.cleaner.manager.states.of(T0) is None
        held.clock.advance(60_000)
        assert held.manager.cleaner.run() == 1
        assert read_checkpoint(tmp_path, CHECKPOINT) == {"t-0": 3}


def test_closing_ends_a_clean_that_goes_on(tmp_path: Path, stuck: threading.Event) -> None:
    held = OpenManager(tmp_path)
    fill_dirty_log(held)
    raised = start_clean(held)
    stuck.wait()
    held.manager.close()
    assert held.manager.cleaner.book.totals.aborted == 1
    assert raised == []
    with OpenManager(tmp_path) as again:
        assert again.manager.logs[T0].log_end_offset == 3


def test_a_thread_that_dies_is_reported_and_goes_on(
    tmp_path: Path, passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    """On real threads: an error that is no log's ends the round, is logged, and the next round comes."""
    passes.fail[0] = MemoryError("no memory for the map")
    scheduler = Scheduler("kafkalog-test", threads=1)
    config = BrokerConfig(log_cleaner_backoff_ms=1, log_initial_task_delay_ms=0)
    clock = MockClock(NOW)

    def until(condition: Callable[[], bool]) -> None:
        """The log is put off by that clock."""
        wait_until(lambda: (clock.advance(1), condition())[1])

    with LogManager.open([tmp_path], config, clock=clock) as manager:
        log = manager.get_or_create(T0, settings=COMPACT)
        append(log, (b"k", b"v"))
        log.roll()
        manager.scheduler = scheduler
        manager._cleaning._clock = scheduler._clock
        manager.schedule_jobs()
        until(lambda: manager.cleaner.book.totals.thread_failures > 1)
        assert any(thread.name == "kafkalog-cleaner" for thread in threading.enumerate())
        assert f"task {JOB} failed" in caplog.text
        assert "no memory for the map" in caplog.text
        passes.fail.clear()
        until(lambda: passes.cleaned == [0])
    scheduler.shutdown()
    assert not any(thread.name == "kafkalog-cleaner" for thread in threading.enumerate())
