"""Cleaner jobs on real threads: their number, and the calls that make them release a log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cleaner.types import CleanerStats, CleanResult
from kafkalog.config.broker import BrokerConfig
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.errors import CleaningAborted
from kafkalog.manager.cleaning import CleanerJobs
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.cleaner.pools import Passes, Pool
from tests.cleaner.test_states import in_thread, wait_until
from tests.mock_time import MockScheduler

T0 = TopicPartition("t", 0)
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
QUICK = {"log_cleaner_backoff_ms": 1, "log_initial_task_delay_ms": 0}


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that runs until it is asked to stop."""

    def clean(to_clean: object, offset_map: object, **given: Any) -> CleanResult:
        waiting = threading.Event()
        while True:
            given["check_done"]()
            waiting.wait(0.001)

    monkeypatch.setattr("kafkalog.manager.cleaning.clean", clean)


def fill(log: kafkalog.Log) -> None:
    """Twenty segments of two hundred keys, all of them written twice, and an empty active one."""
    for number in range(20):
        log.append([(b"k%d" % (number % 10 * 10 + key), bytes(500)) for key in range(10)])
        log.roll()


def running_threads(dirs: LogDirs) -> list[int]:
    """The numbers of the threads that clean something."""
    return sorted(one.thread for one in dirs.cleaner.running)


def run_in_time(step: Callable[[], object]) -> None:
    """Do it in a thread, which has to come to its end."""
    thread = in_thread(step)
    wait_until(lambda: not thread.is_alive())


def test_threads_come_and_go_while_they_clean(tmp_path: Path, stuck: None) -> None:
    """CLN-43: one more is one more; a surplus one releases its log in the middle, and does not come back."""
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_threads=1, **QUICK) as dirs:
        dirs.create_topic("t", 3, settings=COMPACT)
        for number in range(3):
            fill(dirs["t", number])
        wait_until(lambda: running_threads(dirs) == [0])
        dirs.alter({"log.cleaner.threads": 2})
        wait_until(lambda: running_threads(dirs) == [0, 1])
        run_in_time(lambda: dirs.alter({"log.cleaner.threads": 1}))
        assert running_threads(dirs) == [0]
        assert dirs.cleaner.totals.aborted == 1


class Asked:
    """A store with a compacted log, in which something else happens when it is looked at for the first time."""

    moving_logs: Mapping[TopicPartition, UnifiedLog] = {}
    online = ()

    def __init__(self, logs: Mapping[TopicPartition, UnifiedLog]) -> None:
        self._logs = logs
        self.meanwhile: Callable[[], object] = lambda: None

    @property
    def current_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return self._logs

    def note_failure(self, directory: object, error: BaseException) -> None: ...


def test_settings_that_change_while_jobs_start_stay(tmp_path: Path) -> None:
    """CLN-43: who starts jobs, or takes up a log, takes up the settings that count, not those of a moment before."""
    pool = Pool(tmp_path)
    log = pool.log(0)
    store = Asked(pool.current_logs)
    jobs = CleanerJobs(pool.cleaner(Passes()), store, BrokerConfig(), pool.clock)
    changed = BrokerConfig(log_cleaner_threads=2)
    thread = threading.Thread(target=lambda: jobs.apply(changed))

    def change() -> None:
        thread.start()
        thread.join(0.2)  # it may have to wait for us

    store.meanwhile = change
    jobs.start(MockScheduler(pool.clock))
    thread.join()
    assert (jobs.config, len(jobs.jobs)) == (changed, 2)
    jobs.stop()
    log.close()


def truncate(dirs: LogDirs) -> None:
    dirs["t", 0].truncate_to(150)


def alter(dirs: LogDirs) -> None:
    dirs.alter_topic("t", {"cleanup.policy": "delete"})


def delete(dirs: LogDirs) -> None:
    dirs.delete_topic("t")


@pytest.mark.parametrize("step", [truncate, alter, delete, LogDirs.close])
def test_a_clean_lets_go_of_what_somebody_needs(tmp_path: Path, step: Callable[[LogDirs], object]) -> None:
    """CLN-33, CLN-35, CLN-36: the pass itself, at a check in the middle of its rewriting; no record is lost."""
    with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False, log_cleaner_io_buffer_size=4096) as dirs:
        dirs.create_topic("t", settings=COMPACT)
        log = dirs["t", 0]
        fill(log)
        states = dirs._store._manager.cleaner.manager.states
        begun, waiting = threading.Event(), threading.Event()
        raised: list[CleaningAborted] = []

        def wait_for_the_step(stats: CleanerStats) -> None:
            if stats.bytes_read:
                begun.set()
                while str(states.of(T0)) == "in progress" and not states.stopped:
                    waiting.wait(0.001)

        def clean() -> None:
            try:
                log.compact(progress=wait_for_the_step)
            except CleaningAborted as error:
                raised.append(error)

        in_thread(clean)
        begun.wait()
        run_in_time(lambda: step(dirs))
        wait_until(lambda: len(raised) == 1)
    if step is not delete:
        with kafkalog.open_dirs(tmp_path, "a", log_cleaner_enable=False) as dirs:
            assert [record.offset for record in dirs["t", 0]] == list(range(150 if step is truncate else 200))
