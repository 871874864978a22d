"""Opening all logs of the data directories, in several threads each (LOAD-30, LOAD-32, MGR-21).

    prepare     checkpoints and names are read; nothing has changed so far
    begin       the clean-shutdown marker is removed, so that a crash while loading is detected
    load        every log, `num.recovery.threads.per.data.dir` threads a directory; a disk error takes the
                directory offline, any other error of one log takes that log offline, and the others continue
    done        only now may a later close write the marker again
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord, FormatError, IllegalState, KafkalogError
from kafkalog.manager.checkpoints import forget, lower_cleaner_offsets, read_cleaner_offsets
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.inventory import Inventory, PartitionPlace
from kafkalog.manager.partition import Found, open_partition
from kafkalog.manager.stopping import close_log
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.recovery.recover_log import RecoveryProgress
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE, OffsetCheckpoint
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.scheduler import Schedules

_LOG: Final = logging.getLogger(__name__)
_CHECK_INTERVAL_S: Final = 0.05
DIRECTORY_ERRORS: Final = (OSError, FormatError, CorruptRecord)
"""Errors that take one directory offline if they occur in the directory's own files (LOAD-32)."""
LOG_ERRORS: Final = (KafkalogError, ValueError, ArithmeticError)
"""Errors that take one log offline if no disk is the cause; any other exception is a bug and ends the start."""


class LoadProgress(NamedTuple):
    """Progress of loading: logs of one directory; segments and bytes of a log being recovered (0: none is)."""

    directory: str
    logs_done: int
    logs: int
    log: str
    segments_done: int
    segments: int
    bytes_done: int = 0
    bytes: int = 0


class LoadRules(NamedTuple):
    """Rules and resources common to all logs of a manager."""

    config_of: Callable[[str], LogConfig]
    threads: int
    fs: FileSystem
    clock: Clock
    scheduler: Schedules | None
    producer_expiration_ms: int
    progress: Callable[[LoadProgress], object] | None
    on_disk_failure: Callable[[DataDirectory, BaseException], object]
    recovers_damage: bool = False
    """True to recover a damaged log that was closed cleanly: only in a copy, whose records go nowhere else."""
    has_replicas: Callable[[TopicPartition], bool] = lambda _: False
    """Returns True for a partition of which other nodes have copies: it keeps begun epochs."""
    refuses_loss: bool = False
    """True to keep a log closed if opening it would discard sound batches."""


class Configs:
    """The configurations of topics, created by `make(settings)`; topics with the same settings share one.

    It saves a tenth of a clean start. Threads: safe, at worst one is created twice.
    """

    def __init__(
        self, make: Callable[[Mapping[str, object]], LogConfig], settings_of: Callable[[str], Mapping[str, object]]
    ) -> None:
        self._make = make
        self._settings_of = settings_of
        self._made: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def of(self, topic: str) -> LogConfig:
        """Return the configuration of a topic."""
        settings = self._settings_of(topic)
        key = tuple(sorted((name, repr(value)) for name, value in settings.items()))
        config = self._made.get(key)
        if config is None:
            self._made[key] = config = self._make(settings)
        return config


class DirectoryLoader:
    """Loader of one directory: counts and collects logs, stops at the first disk failure.

    Threads: `load_one` from several; the rest before or after them.
    """

    def __init__(self, directory: DataDirectory, inventory: Inventory, rules: LoadRules) -> None:
        self.directory = directory
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.future_logs: dict[TopicPartition, UnifiedLog] = {}
        self.problems: dict[TopicPartition, KafkalogError] = {}
        """Errors of offline partitions, while their directory is in use."""
        self._places = (*inventory.live, *inventory.future)
        self._strays = inventory.stray
        self._future = frozenset(place.path for place in inventory.future)
        self._rules = rules
        self._lock = threading.Lock()
        self._done = 0  # guarded by self._lock
        self.failure: Exception | None = None  # guarded by self._lock
        """The disk error that stopped the loading."""
        self._stopped = False
        log_dir = directory.online_log_dir
        self._log_dir = log_dir
        self._clean = log_dir.marker_found
        self._starts = OffsetCheckpoint(directory.file(LOG_START_FILE), fs=rules.fs).read()
        self._points = OffsetCheckpoint(directory.file(RECOVERY_POINT_FILE), fs=rules.fs).read()

    def begin(self) -> None:
        """Remove the marker, and checkpoint entries left by a delete that a crash interrupted.

        StorageError, CorruptCheckpoint: nothing may be opened.
        """
        self._log_dir.loading_begins()
        existing = {place.topic_partition for place in self._places}
        path, fs = self.directory.path, self._rules.fs
        listed = self._starts.keys() | self._points.keys() | read_cleaner_offsets(path, fs=fs).keys()
        forget(path, listed - existing, fs=fs)
        if self._places:
            state = "cleanly closed: no recovery" if self._clean else "not cleanly closed: recovering them"
            _LOG.info("loading %d logs of %s, %s", len(self._places), self.directory.path, state)
        for place in self._strays:
            _LOG.warning("%s belongs to no topic: kept, but not opened", place.path)

    @property
    def work(self) -> Sequence[PartitionPlace]:
        """Places to pass to `load_one`; after an unclean stop also stray directories, to be recovered and closed."""
        return (*self._places, *(() if self._clean else self._strays))

    def stop(self) -> None:
        """Open no further log."""
        self._stopped = True

    def load_from(self, pending: deque[PartitionPlace]) -> None:
        """Open logs from `pending`, shared with other threads, until none is left or the loading stops."""
        while pending:
            try:
                place = pending.popleft()
            except IndexError:  # another thread took the last one
                return
            self.load_one(place)

    def load_one(self, place: PartitionPlace) -> None:
        """Open a log, unless the directory has failed meanwhile; record its error, or the disk's."""
        if self._stopped or self.failure is not None:
            return
        try:
            began_ms = self._rules.clock.monotonic_ms()
            log = self._open(place)
        except OSError as error:
            with self._lock:
                self.failure = self.failure or error
            return
        except LOG_ERRORS as error:
            self._note_problem(place, error)
            return
        except BaseException:
            self._stopped = True
            raise
        self._register(place, log, self._rules.clock.monotonic_ms() - began_ms)

    def _note_problem(self, place: PartitionPlace, error: Exception) -> None:
        """Leave a partition offline because of its own error; a failed future log only stays on disk."""
        _LOG.error("%s is offline, other partitions are available: %s", place.path, error, exc_info=error)
        if not isinstance(error, KafkalogError):
            error = IllegalState(f"the log cannot be opened: {type(error).__name__}: {error}", path=place.path)
        with self._lock:
            self._done += 1
            if place.path not in self._future and place not in self._strays:
                self.problems[place.topic_partition] = error
        self._report_progress(place.name, None)

    def _open(self, place: PartitionPlace) -> UnifiedLog:
        try:
            return self._open_found(place, self._clean)
        except (FormatError, CorruptRecord) as error:
            if not (self._clean and self._rules.recovers_damage):
                raise
            _LOG.warning("recovering %s in a copy, although it was cleanly closed: %s", place.name, error)
            return self._open_found(place, False)

    def _open_found(self, place: PartitionPlace, is_clean: bool) -> UnifiedLog:
        rules, key = self._rules, place.topic_partition
        return open_partition(
            self._log_dir,
            place.path,
            rules.config_of(key.topic),
            Found(is_clean, self._starts.get(key, 0), self._points.get(key, 0)),
            fs=rules.fs,
            clock=rules.clock,
            scheduler=rules.scheduler,
            producer_expiration_ms=rules.producer_expiration_ms,
            on_disk_failure=lambda error: rules.on_disk_failure(self.directory, error),
            progress=None if is_clean else lambda recovery: self._report_progress(place.name, recovery),
            keeps_begun_epochs=rules.has_replicas(key),
            refuses_loss=rules.refuses_loss,
        )

    def _register(self, place: PartitionPlace, log: UnifiedLog, took_ms: int) -> None:
        if place in self._strays:
            failure = close_log(self._log_dir, log)
            if failure is not None:
                _LOG.warning("%s was recovered, but not closed well: %s", place.path, failure)
            return
        with self._lock:
            logs = self.future_logs if place.path in self._future else self.logs
            logs[place.topic_partition] = log
            self._done += 1
            done = self._done
        state = log.state
        _LOG.log(
            logging.DEBUG if self._clean else logging.INFO,
            "%s: offsets [%d, %d), %d segments, %d ms (%d of %d in %s)",
            log.name, state.log_start_offset, state.log_end_offset, len(state.segments), took_ms,
            done, len(self._places), self.directory.path,
        )  # fmt: skip
        self._report_progress(place.name, None)

    def _report_progress(self, name: str, recovery: RecoveryProgress | None) -> None:
        if self._rules.progress is not None:
            with self._lock:
                logs = (self.directory.path, self._done, len(self._places), name)
                self._rules.progress(LoadProgress(*logs, *(recovery or (0, 0, 0, 0))))

    def end(self) -> None:
        """Finish loading: lower cleaner offsets above the logs' ends and mark the directory as loaded. StorageError."""
        ends = {key: log.log_end_offset for key, log in self.logs.items()}
        lower_cleaner_offsets(self.directory.path, ends, fs=self._rules.fs)
        self._log_dir.loading_done()

    def threads(self, limit: int) -> int:
        """Return the number of loading threads: one after a clean stop, since many short calls delay each other."""
        return 1 if self._clean else limit

    def abandon(self) -> None:
        """Close the opened logs as a crash would leave them; no marker is written."""
        for log in (*self.logs.values(), *self.future_logs.values()):
            try:
                log.close_handlers()
            except (OSError, KafkalogError) as error:
                _LOG.warning("%s: %s", log.path, error)


def load_all(loaders: Sequence[DirectoryLoader], threads: int, check_interrupts: Callable[[], object]) -> None:
    """Run all loaders until each has its logs or its disk failure; any other exception stops all and is raised.

    `check_interrupts` is called from time to time and may raise, as for a Ctrl-C. No thread is left at the end, even
    after an error.
    """
    pools: list[ThreadPoolExecutor] = []
    futures: set[Future[None]] = set()
    try:
        for loader in loaders:
            work = loader.work
            if work:
                count = min(loader.threads(threads), len(work))
                pools.append(ThreadPoolExecutor(count, "kafkalog-load"))
                pending = deque(work)
                futures.update(pools[-1].submit(loader.load_from, pending) for _ in range(count))
        while futures:
            done, futures = wait(futures, _CHECK_INTERVAL_S, FIRST_EXCEPTION)
            check_interrupts()
            for future in done:
                future.result()
    except BaseException:
        for loader in loaders:
            loader.stop()
        raise
    finally:
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)
