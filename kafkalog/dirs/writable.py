"""The store behind `LogDirs` in mode "a": a log manager with its jobs, and a `Log` for each of its logs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from kafkalog.cleaner.stats import Clean, CleanerReport
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import LogConfig, key_for
from kafkalog.dirs.sidecars import NO_SIDECARS, KeyIndexJob, SidecarJob, Sidecars, TimeRangesJob
from kafkalog.dirs.types import Directory, Topic, missing, unknown_topic
from kafkalog.errors import (
    InvalidPartitions,
    KafkalogError,
    LogClosed,
    PolicyViolation,
    StorageError,
    TopicExists,
)
from kafkalog.log.keyed import forget_keys
from kafkalog.log.log import Log
from kafkalog.log.open_writable import OnDamage, refuses_loss
from kafkalog.log.writable import StoreLog
from kafkalog.manager.checkpoints import write_recovery_points
from kafkalog.manager.job import Job
from kafkalog.manager.jobs import write_each
from kafkalog.manager.log_manager import LoadProgress, LogManager
from kafkalog.manager.opening import OpenedLogs, open_logs, restore_high_watermarks
from kafkalog.manager.retention import each_log
from kafkalog.manager.topics import check_new_partitions
from kafkalog.storage.group_commit import Sync
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import collides_with, validate_topic
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Scheduler, Schedules

_LOG: Final = logging.getLogger(__name__)


class LogStore:
    """All logs of some data directories, open for writing, with their jobs running.

    Threads: all methods may be called from any thread.
    """

    mode: Final[Literal["a"]] = "a"

    def __init__(
        self, manager: LogManager, scheduler: Schedules, sync: Sync, sidecars: Sidecars = NO_SIDECARS
    ) -> None:
        self._manager = manager
        self._scheduler = scheduler
        self._sync = sync
        self._sidecars = sidecars
        self._sidecar_jobs: list[SidecarJob] = []
        if sidecars.key_index is not False:
            self._sidecar_jobs.append(KeyIndexJob(self._all_logs, sidecars.key_index, self._forget_keys))
        if sidecars.time_ranges is not False:
            self._sidecar_jobs.append(TimeRangesJob(self._all_logs, sidecars.time_ranges))
        self._changing = threading.RLock()  # one call at a time creates, deletes or alters topics
        self._lock = threading.Lock()
        self._handles: dict[TopicPartition, Log] = {}  # guarded by self._lock
        self._is_closing = False  # guarded by self._lock

    @classmethod
    def open(
        cls,
        paths: Sequence[str],
        settings: Mapping[str, object],
        *,
        sync: Sync = False,
        on_damage: OnDamage = "recover",
        progress: Callable[[LoadProgress], object] | None = None,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        sidecars: Sidecars = NO_SIDECARS,
    ) -> LogStore:
        """Open these directories and return their store; errors as for `open_dirs`."""
        config = BrokerConfig.from_mapping(settings)  # errors in the arguments are raised before anything is read
        opened = open_logs(
            paths, config, fs=fs, clock=clock, scheduler=scheduler, progress=progress,
            has_replicas=None, refuses_loss=refuses_loss(on_damage),
        )  # fmt: skip
        try:
            _restore_high_watermarks(opened)  # first: a close after an error writes them
            _resume_deletes(opened.manager)
            opened.manager.schedule_jobs()
            store = cls(opened.manager, opened.scheduler, sync, sidecars)
            for one in store._sidecar_jobs:
                one.job.start(opened.scheduler)
            return store
        except BaseException:
            _run_all((opened.close,))
            raise

    # State

    @property
    def config(self) -> BrokerConfig:
        """Settings of the store."""
        return self._manager.config

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Background jobs."""
        return *self._manager.jobs, *(one.job for one in self._sidecar_jobs)

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The data directories, offline ones included."""
        return tuple(
            Directory(one.path, len(one.logs), one.directory_id, one.offline_error)
            for one in self._manager.directories
        )

    @property
    def cached_partitions(self) -> list[TopicPartition]:
        """The partitions, as `partitions` has them, from memory."""
        return self.partitions

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, sorted; those in `problems` too."""
        return sorted({*self._manager.logs, *self._manager.problems})

    @property
    def problems(self) -> Mapping[TopicPartition, KafkalogError]:
        """Errors of the partitions that cannot be opened."""
        return dict(self._manager.problems)

    def topics(self) -> dict[str, Topic]:
        """Return the topics by name."""
        grouped: dict[str, list[int]] = {}
        for key in self.partitions:
            grouped.setdefault(key.topic, []).append(key.partition)
        return {name: self._topic(name, numbers) for name, numbers in grouped.items()}

    def _topic(self, name: str, numbers: list[int]) -> Topic:
        manager = self._manager
        entry = manager.topics.get(name)
        settings = LogConfig.from_stored(manager.topics.settings_of(name)).overrides()
        if entry is not None:
            topic_id: str | None = entry.topic_id
        else:
            topic_id = read_partition_metadata(manager.fs, manager.path_of(name))
        return Topic(name, topic_id, tuple(numbers), settings)

    def contains(self, key: TopicPartition) -> bool:
        """Return True if the partition exists."""
        return key in self._manager.logs or key in self._manager.problems

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition, the same object each time; None if there is none."""
        log = self._manager.get(key)
        if log is None:
            problem = self._manager.problems.get(key)
            if problem is not None:
                raise problem.with_traceback(None)
            return None
        with self._lock:
            if self._is_closing:
                raise LogClosed("the directories are closed")
            handle = self._handles.get(key)
            if handle is None or handle._source is not log:
                with deferred_interrupts():  # with `sync` in milliseconds it has a thread, which the store must end
                    handle = self._handles[key] = self._new_handle(log)
        return handle

    def _new_handle(self, log: UnifiedLog) -> Log:
        manager = self._manager
        log_dir = manager.directory_of(log).online_log_dir
        opened = StoreLog(
            log, log_dir, log.path, log.topic_partition, sync=self._sync, fs=manager.fs, clock=manager.clock,
            cleaner=manager.cleaner, manager=manager,
        )  # fmt: skip
        return self._sidecars.given_to(Log(log, opened))

    def _all_logs(self) -> list[UnifiedLog]:
        return list(self._manager.logs.values())

    def _forget_keys(self, log: UnifiedLog) -> None:
        """Make look-ups in a log look for its key indexes again: some were built."""
        with self._lock:
            handle = self._handles.get(log.topic_partition)
        if handle is not None and handle._source is log:
            forget_keys(handle)

    # Changing

    def create_topic(
        self, name: str, partitions: int | None, settings: Mapping[str, object], directory: str | None
    ) -> Topic:
        """Create a topic and return it; errors as for `LogDirs.create_topic`. A failure removes its partitions."""
        manager = self._manager
        validate_topic(name)
        given = {key_for(one).name: value for one, value in settings.items()}
        manager.config.log_config(given)
        count = manager.config.num_partitions if partitions is None else partitions
        check_new_partitions(count)
        with self._changing:
            for other in {key.topic for key in (*manager.logs, *manager.problems)}:
                if other == name:
                    raise TopicExists(f"topic {name} already exists", hint="use alter_topic to change its settings")
                if collides_with(other, name):
                    raise TopicExists(f"topic {name} collides with {other}: '.' and '_' are the same in metric names")
            self._check_not_offline(name)
            manager.forget_unfinished(name)
            self._create_partitions(name, count, given, directory)
            return self._topic(name, list(range(count)))

    def _check_not_offline(self, name: str) -> None:
        """Raise StorageError if a topic that has no partition here may have some in an offline directory."""
        if self._manager.topics.get(name) is not None:
            error = self.offline(f"topic {name} exists, and its partitions are not available")
            if error is not None:
                raise error

    def _create_partitions(self, name: str, count: int, given: Mapping[str, object], directory: str | None) -> None:
        """Create `count` partitions of a new topic, or none."""
        created: list[TopicPartition] = []
        try:
            for number in range(count):
                key = TopicPartition(name, number)
                with deferred_interrupts():
                    self._manager.get_or_create(key, settings=given, directory=directory)
                    created.append(key)
        except BaseException:
            with deferred_interrupts():
                for key in created:
                    self._manager.delete(key)
                with suppress(StorageError):  # the next creation does it
                    self._manager.forget_unfinished(name)
            raise

    def delete_topic(self, name: str) -> None:
        """Delete a topic: rename its partitions now, remove their files later."""
        if not self.config.delete_topic_enable:
            raise PolicyViolation(f"topic {name} cannot be deleted", hint="delete.topic.enable is false")
        with self._changing, deferred_interrupts():  # all or nothing: no topic is left with some of its partitions
            keys = self._partitions_of(name)
            for key in keys:
                self._retire(key)
            self._manager.delete_topic(name)
            for key in keys:  # for a log requested meanwhile
                self._retire(key)

    def _retire(self, key: TopicPartition) -> None:
        with self._lock:
            handle = self._handles.pop(key, None)
        if handle is not None:
            _retire(handle)

    def alter_topic(self, name: str, settings: Mapping[str, object], partitions: int | None) -> Topic:
        """Change a topic's settings, add partitions until it has `partitions`, and return the topic."""
        with self._changing:
            keys = self._partitions_of(name)
            if partitions is not None:
                check_new_partitions(partitions, len(keys))
            if partitions is not None and partitions < len(keys):
                raise InvalidPartitions(f"cannot reduce topic {name} from {len(keys)} partitions to {partitions}")
            requested = {TopicPartition(name, number) for number in range(partitions or 0)}
            error = self.offline(f"topic {name} may have partitions that are not available")
            if error is not None and requested - {*keys}:
                raise error  # one of those created now may be there
            if settings:
                self._manager.alter_topic(name, settings)
            for key in sorted(requested - self._manager.problems.keys()):
                self._manager.get_or_create(key, is_new=key not in keys)
            self._reschedule_jobs()
            return self._topic(name, [key.partition for key in self._partitions_of(name)])

    def alter(self, settings: Mapping[str, object]) -> None:
        """Change settings of the open store; topics that do not set them follow."""
        self._manager.alter_config(settings)
        if isinstance(self._scheduler, Scheduler):
            self._scheduler.resize(self.config.background_threads)
        self._reschedule_jobs()

    def _reschedule_jobs(self) -> None:
        for job in self.jobs:
            job.reschedule()

    def _partitions_of(self, name: str) -> list[TopicPartition]:
        found = [key for key in self.partitions if key.topic == name]
        if not found:
            raise self.offline(f"topic {name} was not found") or unknown_topic(name, self.partitions)
        return found

    def missing(self, key: TopicPartition) -> KafkalogError:
        """Return the error for a missing partition, which may be in an offline directory."""
        return self.offline(f"{key} was not found") or missing(key, self.partitions)

    def offline(self, what: str) -> StorageError | None:
        """Return the error of an offline directory, which is why `what` is so; None if all are online."""
        for directory in self._manager.directories:
            if not directory.is_online:
                cause = directory.unavailable()
                return StorageError(
                    f"{what}; {cause.message}", errno=cause.errno, path=directory.path, hint=cause.hint
                )
        return None

    def clean(self, key: TopicPartition) -> Clean:
        """Clean a partition in this thread; return the result."""
        log = self._manager.get(key)
        if log is None:
            raise self.missing(key)
        return self._manager.cleaner.clean(log)

    @property
    def cleaner(self) -> CleanerReport:
        """Report on the cleaner: current and past cleans, and partitions that it skips."""
        return self._manager.cleaner_report

    def flush(self) -> None:
        """Sync all logs and write recovery points; a log that fails does not stop the others."""
        each_log(self._manager.logs.values(), _flushed)
        write_each(self._manager, write_recovery_points)

    # Closing

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._manager.closed

    def close(self) -> None:
        """Close writers, jobs and logs, then release the locks; raise the first error at the end."""
        stop = [one.stop for one in self._sidecar_jobs]
        _run_all((*stop, self._retire_all, self._manager.close, self._scheduler.shutdown))

    def _retire_all(self) -> None:
        with self._lock:
            self._is_closing = True
            handles, self._handles = list(self._handles.values()), {}
        _run_all(partial(_retire, handle) for handle in handles)


def _restore_high_watermarks(opened: OpenedLogs) -> None:
    """Keep the checkpointed high watermark of each partition of which other nodes have copies, and warn of them."""
    keys = restore_high_watermarks(opened.manager, opened.known.has_replicas)
    if keys:
        _LOG.warning(
            "other nodes have copies of %d partitions, such as %s: records from their high watermarks on may be "
            "discarded by their leaders, also those appended here; write to the leaders instead", len(keys), min(keys),
        )  # fmt: skip


def _resume_deletes(manager: LogManager) -> None:
    """Complete the deletes of topics that a crash interrupted; a server would delete what is written to them now."""
    for entry in manager.topics.entries():
        if entry.is_deleted:
            _LOG.info("resuming the deletion of topic %s", entry.name)
            for error in manager.delete_topics((entry.name,)).values():
                _LOG.error("topic %s is not deleted yet: %s", entry.name, error)


def _run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Run every step, then raise the first error; a Ctrl-C takes effect at the end, too."""
    errors: list[Exception] = []
    with deferred_interrupts():
        for step in steps:
            try:
                step()
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _retire(handle: Log) -> None:
    opened, keys = handle._opened, handle._keys  # another thread may close the handle
    if keys is not None:
        keys.release()
    if isinstance(opened, StoreLog):
        opened.retire()


def _flushed(log: UnifiedLog) -> int:
    log.flush()
    return 1
