"""The cleaner of a store's logs, and its jobs: one for each cleaner thread.

The jobs have threads of their own, so that a long clean does not delay other jobs. Without a compacted log there are
neither jobs nor threads.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.cleaner import LogCleaner
from kafkalog.cleaner.manager import Offsets
from kafkalog.cleaner.types import CleanResult, LogToClean
from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.checkpoints import read_cleaner_offsets, record_cleaner_offset
from kafkalog.manager.job import Job
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import DELETE_DIR_SUFFIX
from kafkalog.util.clock import AgeClock, Clock
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Scheduler, Schedules

if TYPE_CHECKING:
    from kafkalog.manager.log_remover import LogRemover

_LOG: Final = logging.getLogger(__name__)


class CheckpointFiles:
    """The cleaner checkpoints in the data directories of a store."""

    def __init__(self, store: LogRemover) -> None:
        self._store = store

    def read(self) -> Mapping[str, Offsets]:
        """Return the cleaned-up-to offsets of each directory's logs; unreadable directories are logged and left out."""
        found: dict[str, Offsets] = {}
        for directory in self._store.online:
            try:
                found[directory.path] = read_cleaner_offsets(directory.path, fs=directory.fs)
            except OSError as error:
                _LOG.warning("%s: cannot clean its logs: %s", directory.path, error)
                note_disk_failure(self._store, directory.path, error)
        return found

    def record(self, log: UnifiedLog, offset: int) -> None:
        """Write to disk that a log is clean up to `offset`. StorageError; a disk failure is also reported to the store.
        """
        path = os.path.dirname(log.path)
        for directory in self._store.online:
            if directory.path == path:
                try:
                    record_cleaner_offset(
                        path, log.topic_partition, offset, fs=directory.fs,
                        is_still_valid=lambda: not log.name.endswith(DELETE_DIR_SUFFIX),
                    )  # fmt: skip
                except OSError as error:
                    note_disk_failure(self._store, path, error)
                    raise


def note_disk_failure(store: LogRemover, path: str, error: Exception) -> None:
    """Report an error to the store if its disk is the cause; the data directory goes offline shortly after."""
    if is_disk_failure(error):
        for directory in store.online:
            if directory.path == path:
                store.note_failure(directory, error)


def clean(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
    """Call `pass_.clean`, imported at the first clean: most stores never need one."""
    from kafkalog.cleaner.pass_ import clean

    return clean(to_clean, offset_map, **given)


def cleaner_of(store: LogRemover, config: BrokerConfig, clock: Clock, ages: AgeClock) -> LogCleaner:
    """Create the cleaner of a store."""
    return LogCleaner(
        store,
        CheckpointFiles(store),
        config,
        clean=clean,
        clock=clock,
        age_ms=ages.milliseconds,
        failed=lambda log, error: note_disk_failure(store, os.path.dirname(log.path), error),
    )


class _CleanerThread:
    """A job that cleans until nothing is dirty, then backs off; it aborts its clean once `is_wanted` is False."""

    def __init__(self, number: int, jobs: CleanerJobs, clock: Clock) -> None:
        self.number = number
        self.is_wanted = True
        self.is_started = False  # guarded by the lock of `jobs`
        self._jobs = jobs
        self.job = Job(
            f"kafka-log-cleaner-thread-{number}",
            self._run,
            delay_ms=jobs.config.log_initial_task_delay_ms,
            period_ms=lambda: max(1, jobs.config.log_cleaner_backoff_ms),
            clock=clock,
        )

    def _run(self) -> None:
        self._jobs.cleaner.run(self.number, lambda: self.is_wanted)


class CleanerJobs:
    """The jobs of a store's cleaner. Threads: all methods, from any that holds no lock of the store's manager.

    A job that fails is logged by the scheduler and runs again after its back-off (`LogCleaner.run` counts it).
    """

    def __init__(self, cleaner: LogCleaner, store: LogRemover, config: BrokerConfig, clock: Clock) -> None:
        self.cleaner = cleaner
        self.config = config  # replaced under self._lock
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: tuple[_CleanerThread, ...] = ()  # replaced under self._lock
        self._scheduler: Schedules | None = None  # guarded by self._lock; None before `start` and after `stop`
        self._own: Scheduler | None = None  # guarded by self._lock

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The current jobs."""
        return tuple(thread.job for thread in self._threads)

    def start(self, scheduler: Schedules) -> None:
        """Run jobs from now on if there are compacted logs, on separate threads if `scheduler` has any."""
        with self._lock:
            self._scheduler = scheduler
        self.apply()

    def log_added(self, log: UnifiedLog) -> None:
        """Start jobs if a log that was created or altered is the first compacted one."""
        if log.config.compact and not self._threads:
            self.apply()

    def log_deleted(self, log: UnifiedLog) -> None:
        """End the jobs if the deleted log was the last compacted one."""
        if log.config.compact and self._threads and not self._has_work():
            self.apply()

    def apply(self, config: BrokerConfig | None = None) -> None:
        """Apply other settings (None: unchanged) or policies: run `log.cleaner.threads` jobs, or none (CLN-43).

        Waits until surplus jobs have ended. A Ctrl-C waits for the end. A job that could not start for lack of a thread
        is started by the next call.
        """
        with deferred_interrupts():
            self._apply(config)

    def _apply(self, config: BrokerConfig | None) -> None:
        with self._lock:
            self.config = config = self.config if config is None else config
            if self._scheduler is None:
                return
            count = config.log_cleaner_threads if config.log_cleaner_enable and self._has_work() else 0
            before = self._threads
            added = [_CleanerThread(number, self, self._clock) for number in range(len(before), count)]
            remaining, surplus = before[:count], before[count:]
            self._threads = (*remaining, *added)
            scheduler = self._threads_for(self._scheduler, count)
            pool = None
            if not count:
                pool, self._own = self._own, None
        for thread in remaining:
            thread.job.reschedule()
        for thread in (*remaining, *added):
            self._start(thread, scheduler)
            if not thread.is_wanted:  # stopped meanwhile, before it began
                thread.job.stop()
        _end(surplus)
        if pool is not None:
            pool.shutdown()

    def _start(self, thread: _CleanerThread, scheduler: Schedules) -> None:
        with self._lock:
            if thread.is_started:
                return
            thread.is_started = True
        try:
            thread.job.start(scheduler)
        except BaseException:
            thread.is_started = False
            raise

    def _has_work(self) -> bool:
        return any(log.config.compact for log in self._store.current_logs.values())

    def _threads_for(self, scheduler: Schedules, count: int) -> Schedules:
        """Return the scheduler of the jobs: a separate one if the given one is a real scheduler."""
        if not isinstance(scheduler, Scheduler) or not count and self._own is None:
            return scheduler
        if self._own is None:
            self._own = Scheduler("kafkalog-cleaner", self._clock, max(count, 1))
        self._own.resize(count)
        return self._own

    def stop(self) -> None:
        """Wait until nothing is being cleaned, and prevent further cleans; a second call does nothing."""
        with self._lock:
            threads, self._threads = self._threads, ()
            self._scheduler = None
            own, self._own = self._own, None
        for thread in threads:
            thread.is_wanted = False
        self.cleaner.stop()
        _end(threads)
        if own is not None:
            own.shutdown()


def _end(threads: Iterable[_CleanerThread]) -> None:
    ending = tuple(threads)
    for thread in ending:
        thread.is_wanted = False
    for thread in ending:
        thread.job.stop()
