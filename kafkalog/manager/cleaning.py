"""The cleaner of a store's logs, and the jobs that run it: one for each cleaner thread.

The jobs have threads of their own, so that a long clean keeps no other job waiting; there are none of either as long as
no log is compacted.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from kafkalog._core.offset_map import SkimpyOffsetMap
from kafkalog.broker_config import BrokerConfig
from kafkalog.cleaner.cleaner import LogCleaner
from kafkalog.cleaner.manager import Offsets
from kafkalog.cleaner.types import CleanResult, LogToClean
from kafkalog.manager.checkpoints import read_cleaner_offsets, record_cleaner_offset
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.job import Job
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.clock import AgeClock, Clock
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Scheduler, Schedules

_LOG: Final = logging.getLogger(__name__)


class Store(Protocol):
    """What the cleaner needs of a LogManager; nothing of it takes a lock."""

    @property
    def current_logs(self) -> Mapping[TopicPartition, UnifiedLog]: ...
    @property
    def moving_logs(self) -> Mapping[TopicPartition, UnifiedLog]: ...
    @property
    def online(self) -> Iterable[DataDirectory]: ...
    def note_failure(self, directory: DataDirectory, error: BaseException) -> object: ...


class CheckpointFiles:
    """The cleaner checkpoints in the data directories of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self) -> Mapping[str, Offsets]:
        """Up to where the logs of each directory are clean; one that cannot be read is told of and left out."""
        found: dict[str, Offsets] = {}
        for directory in self._store.online:
            try:
                found[directory.path] = read_cleaner_offsets(directory.path, fs=directory.fs)
            except OSError as error:
                _LOG.warning("%s: its logs are not cleaned: %s", directory.path, error)
                note_disk_failure(self._store, directory.path, error)
        return found

    def record(self, log: UnifiedLog, offset: int) -> None:
        """Return when it is on disk that a log is clean up to `offset`. StorageError, which is told of."""
        path = os.path.dirname(log.path)
        for directory in self._store.online:
            if directory.path == path:
                try:
                    record_cleaner_offset(path, log.topic_partition, offset, fs=directory.fs)
                except OSError as error:
                    note_disk_failure(self._store, path, error)
                    raise


def note_disk_failure(store: Store, path: str, error: Exception) -> None:
    """Have a data directory taken offline, a moment later, where its disk is to blame for an error."""
    if is_disk_failure(error):
        for directory in store.online:
            if directory.path == path:
                store.note_failure(directory, error)


def clean(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
    """`pass_.clean`, imported at the first clean: most stores are opened without one."""
    from kafkalog.cleaner.pass_ import clean

    return clean(to_clean, offset_map, **given)


def cleaner_of(store: Store, config: BrokerConfig, clock: Clock, ages: AgeClock) -> LogCleaner:
    """The cleaner of a store."""
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
    """A job that cleans until nothing is dirty, then backs off; not wanted any more it lets go of what it cleans."""

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

    def __init__(self, cleaner: LogCleaner, store: Store, config: BrokerConfig, clock: Clock) -> None:
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
        """The jobs there are."""
        return tuple(thread.job for thread in self._threads)

    def start(self, scheduler: Schedules) -> None:
        """From now on there are jobs where there are compacted logs, on threads of their own if `scheduler` has any."""
        with self._lock:
            self._scheduler = scheduler
        self.follow()

    def follow_log(self, log: UnifiedLog) -> None:
        """Take up that a log was made, or has other settings."""
        if log.config.compact and not self._threads:
            self.follow()

    def follow_deleted(self, log: UnifiedLog) -> None:
        """Take up that a log is here no more: without a compacted one there is no job."""
        if log.config.compact and self._threads and not self._has_work():
            self.follow()

    def follow(self, config: BrokerConfig | None = None) -> None:
        """Take up other settings (None: none), or policies: as many jobs as `log.cleaner.threads`, or none (CLN-43).

        Returns when those that are too many have ended. A Ctrl-C waits for the end; what could not be started, for want
        of a thread, is started with the next call.
        """
        with deferred_interrupts():
            self._follow(config)

    def _follow(self, config: BrokerConfig | None) -> None:
        with self._lock:
            self.config = config = self.config if config is None else config
            if self._scheduler is None:
                return
            wanted = config.log_cleaner_threads if config.log_cleaner_enable and self._has_work() else 0
            before = self._threads
            more = [_CleanerThread(number, self, self._clock) for number in range(len(before), wanted)]
            kept, surplus = before[:wanted], before[wanted:]
            self._threads = (*kept, *more)
            scheduler = self._threads_for(self._scheduler, wanted)
            own = None
            if not wanted:
                own, self._own = self._own, None
        for thread in kept:
            thread.job.follow()
        for thread in (*kept, *more):
            self._start(thread, scheduler)
            if not thread.is_wanted:  # stopped meanwhile, before it had begun
                thread.job.stop()
        _end(surplus)
        if own is not None:
            own.shutdown()

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
        """What the jobs run on: a scheduler of their own beside a real one."""
        if not isinstance(scheduler, Scheduler) or not count and self._own is None:
            return scheduler
        if self._own is None:
            self._own = Scheduler("kafkalog-cleaner", self._clock, max(count, 1))
        self._own.resize(count)
        return self._own

    def stop(self) -> None:
        """Return when nothing is being cleaned, and nothing will be; a second call does nothing."""
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
