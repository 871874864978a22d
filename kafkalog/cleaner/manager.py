"""The cleaner's record of the logs: which to clean next, which are set aside, and their checkpoints.

`choosing` holds the selection rules; `states` holds which thread may work on which partition.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from kafkalog.cleaner.choosing import Candidate, Choice, candidate, choose, dirty_bytes
from kafkalog.cleaner.states import CleaningStates
from kafkalog.cleaner.stats import Uncleanable
from kafkalog.cleaner.types import ASKED, LogToClean
from kafkalog.errors import IllegalState, KafkalogError, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.interrupts import deferred_interrupts

_LOG: Final = logging.getLogger(__name__)
POSTPONE_MS: Final = 15_000
_MAX_SCANS: Final = 8  # scans of all logs before a thread backs off without one


class Pool(Protocol):
    """The current logs. Reading either map takes no lock, and a map that was returned never changes."""

    @property
    def current_logs(self) -> Mapping[TopicPartition, UnifiedLog]: ...
    @property
    def moving_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Logs that will replace current ones; their partitions are not cleaned meanwhile."""


Offsets = Mapping[TopicPartition, int]


class CleanerOffsets(Protocol):
    """The cleaner checkpoints of the data directories. No method waits for the owner of the directories."""

    def read(self) -> Mapping[str, Offsets]:
        """Return the cleaned-up-to offsets of each directory's partitions, without unreadable directories."""

    def record(self, log: UnifiedLog, offset: int) -> None:
        """Write to disk that a log is clean up to `offset`, and return once it is there. StorageError."""


Failed = Callable[[UnifiedLog, Exception], object]
"""Callback for an error that a log's disk may have caused; it must not block."""


class LogCleanerManager:
    """Chooses logs to clean and records the outcome of each clean.

    `choice` is the result of the last scan of all logs, `last_look_ms` its wall-clock time (None: never). Threads: all
    methods, from any.
    """

    def __init__(
        self, pool: Pool, offsets: CleanerOffsets, clock: Clock = SYSTEM_CLOCK, failed: Failed | None = None
    ) -> None:
        self.states = CleaningStates()
        self.choice = choose(())
        self.last_look_ms: int | None = None
        self._pool = pool
        self._offsets = offsets
        self._clock = clock
        self._failed = failed
        self._choosing = threading.Lock()  # one scan of all logs at a time
        # each operation on these is atomic in the interpreter: they need no lock
        self._uncleanable: dict[tuple[str, TopicPartition], str] = {}
        self._postponed: dict[TopicPartition, int] = {}  # until this monotonic time in ms

    # Choosing

    def grab(self, now_ms: int) -> LogToClean | None:
        """Return the dirtiest log worth cleaning, marked as in progress by this thread; None if there is none (CLN-29).

        The caller calls `done_cleaning` afterwards. A log that cannot be examined is set aside. If another thread
        worked on a log during the scan and has finished, the scan is repeated: retention by another thread touches each
        log.
        """
        with self._choosing:
            for _ in range(_MAX_SCANS):
                choice = self._scan(now_ms)
                for log in choice.cleanable:
                    if self._begin(log.log, watched=True):
                        return log
                if not any(self._is_idle(log.log) for log in choice.cleanable):
                    break
        return None

    def _scan(self, now_ms: int) -> Choice:
        """Examine all logs that no thread works on; from now on `states` records which ones are touched."""
        busy = self.states.watch()
        self.last_look_ms = self._clock.milliseconds()
        self.forget_removed()
        read = self._offsets.read()
        logs = (log for log in self._compacted() if log.topic_partition not in busy and not self._is_postponed(log))
        found = [self._candidate(log, read, now_ms) for log in logs]
        self.choice = choose(one for one in found if one is not None)
        return self.choice

    def _is_idle(self, log: UnifiedLog) -> bool:
        return not self.states.stopped and self.states.of(log.topic_partition) is None and self._is_current(log)

    def _candidate(self, log: UnifiedLog, read: Mapping[str, Offsets], now_ms: int) -> Candidate | None:
        """Return a log as it would be cleaned; None if its checkpoint is unreadable or it cannot be examined."""
        offsets = read.get(os.path.dirname(log.path))
        if offsets is None:
            return None
        try:
            return self._examine(log, offsets, now_ms)
        except Exception as error:
            if not (log.closed or log.failed):
                self.note_error(log, error)
            return None

    def _examine(self, log: UnifiedLog, offsets: Offsets, now_ms: int, *, dry_run: bool = False) -> Candidate:
        found, range_ = candidate(log, offsets.get(log.topic_partition), now_ms)
        if range_.is_repaired and not dry_run:
            self._offsets.record(log, range_.first_dirty_offset)
        return found

    def grab_one(
        self,
        log: UnifiedLog,
        now_ms: int,
        check_interrupts: Callable[[], object] = lambda: None,
        *,
        from_start: bool = False,
        dry_run: bool = False,
    ) -> LogToClean:
        """Return a log as it would be cleaned now, however little is dirty, marked as in progress by this thread.

        With `from_start` all of it is dirty, whatever the checkpoint says; with `dry_run` an unusable checkpoint is not
        repaired. While another thread works on the log this waits and calls `check_interrupts`, which may raise. The
        caller calls `done_cleaning` afterwards. IllegalState if the log is paused or gone; StorageError if its
        directory's checkpoint cannot be read.
        """
        partition = log.topic_partition
        while self._is_current(log) and not self.states.stopped:
            self.states.wait_for(partition, check_interrupts)
            with self._choosing:
                self.states.watch()
                offsets = self._offsets.read().get(os.path.dirname(log.path))
                if offsets is None:
                    raise StorageError("the cleaner's checkpoint cannot be read", path=os.path.dirname(log.path))
                found = self._examine(log, {} if from_start else offsets, now_ms, dry_run=dry_run).log
                if self._begin(log, watched=True):
                    return found._replace(reason=ASKED)
            state = self.states.of(partition)
            if state is not None and state.kind == "paused":
                break
        raise IllegalState(
            f"{partition} cannot be cleaned now",
            path=log.path,
            hint="it is being deleted, truncated or moved, or the store is being closed",
        )

    def _begin(self, log: UnifiedLog, *, watched: bool = False) -> bool:
        return self.states.begin(log.topic_partition, lambda: self._is_current(log), watched=watched)

    def _is_current(self, log: UnifiedLog) -> bool:
        key = log.topic_partition
        return self._pool.current_logs.get(key) is log and key not in self._pool.moving_logs

    def _compacted(self) -> Iterator[UnifiedLog]:
        """Yield the logs with compact in their policy that are not set aside, moving, closed or failed."""
        moving = self._pool.moving_logs
        for key, log in self._pool.current_logs.items():
            if log.config.compact and key not in moving and not (log.closed or log.failed):
                if self.uncleanable_reason(log) is None:
                    yield log

    # Outcomes
    def check(self, log: UnifiedLog) -> None:
        """Raise CleaningAborted if the clean must stop; StorageError if the log was closed or failed."""
        self.states.check(log.topic_partition)
        if log.closed or log.failed:
            raise StorageError(f"log {log.name} no longer accepts writes", path=log.path)

    def done_cleaning(self, log: UnifiedLog, end_offset: int | None) -> None:
        """End the work on a log that is clean up to `end_offset` (None: unknown).

        The offset is written to the checkpoint unless the clean was aborted (CLN-35). StorageError.
        """
        partition = log.topic_partition
        try:
            # an abort that comes in between waits, as if it had come after the clean
            if end_offset is not None and not self.states.is_aborted(partition):
                self._offsets.record(log, end_offset)
        finally:
            self.states.done(partition)

    def for_each_idle(self, step: Callable[[UnifiedLog], object]) -> None:
        """Call `step` on each idle compacted log, marked as in progress by this thread meanwhile (CLN-36, 37)."""
        for log in tuple(self._compacted()):
            if self._begin(log):
                try:
                    step(log)
                finally:
                    self.states.done(log.topic_partition)

    @contextmanager
    def retention_of(self, logs: Iterable[UnifiedLog]) -> Iterator[list[UnifiedLog]]:
        """Pause the idle logs among those that are not compacted, and yield them for the block (CLN-38).

        A Ctrl-C waits for the end of the block.
        """
        candidates = [log for log in logs if not log.config.compact]
        with deferred_interrupts():
            idle = self.states.pause_idle({log.topic_partition for log in candidates})
            try:
                yield [log for log in candidates if log.topic_partition in idle]
            finally:
                for key in idle:
                    self.states.resume(key)

    @contextmanager
    def cleaning_paused(self, partition: TopicPartition) -> Iterator[None]:
        """Keep the cleaner off a partition for the block, which deletes, truncates or moves it.

        A Ctrl-C waits for the end of the block.
        """
        with deferred_interrupts():
            self.states.abort_and_pause(partition)
            try:
                yield
            finally:
                self.states.resume(partition)

    # Set aside

    def note_error(self, log: UnifiedLog, error: Exception, postpone_ms: int = POSTPONE_MS) -> None:
        """Handle an error of a log: put the log off after a disk error, else set it aside (CLN-28, CLN-39).

        A full disk, missing memory, or another thread that cleans the log only puts it off: the clean is retried later.
        A segment file removed by another process does not come back, so its log is set aside.
        """
        if isinstance(error, MemoryError):
            _LOG.warning("cannot clean %s: not enough memory", log.path)
            self.postpone(log, postpone_ms)
            return
        if not _is_of_lost_segment(error, log) and (isinstance(error, OSError) or type(error) is IllegalState):
            _LOG.warning("cannot clean %s: %s", log.path, error)
            self.postpone(log, postpone_ms)
            if self._failed is not None:
                self._failed(log, error)
        else:
            self.set_aside(log, error)

    def set_aside(self, log: UnifiedLog, error: BaseException) -> None:
        """Stop cleaning a log because of an error; other logs are still cleaned (CLN-39)."""
        _LOG.warning("%s is no longer cleaned: %s", log.path, error, exc_info=error)
        self._uncleanable[os.path.dirname(log.path), log.topic_partition] = f"{type(error).__name__}: {error}"

    def reinstate(self, log: UnifiedLog) -> None:
        """Make a log that was set aside or put off eligible for cleaning again."""
        self._uncleanable.pop((os.path.dirname(log.path), log.topic_partition), None)
        self._postponed.pop(log.topic_partition, None)

    def postpone(self, log: UnifiedLog, ms: int) -> None:
        """Do not choose a log for `ms` milliseconds, so that others have their turn."""
        self._postponed[log.topic_partition] = self._clock.monotonic_ms() + ms

    def _is_postponed(self, log: UnifiedLog) -> bool:
        return self._postponed.get(log.topic_partition, 0) > self._clock.monotonic_ms()

    def uncleanable_reason(self, log: UnifiedLog) -> str | None:
        """Return the reason why a log was set aside; None if it was not."""
        return self._uncleanable.get((os.path.dirname(log.path), log.topic_partition))

    @property
    def uncleanable(self) -> list[Uncleanable]:
        """The partitions that are set aside, without those of failed directories (CLN-39)."""
        return [
            Uncleanable(key, directory, reason)
            for (directory, key), reason in dict(self._uncleanable).items()
            if self._is_in(directory, key)
        ]

    def _is_in(self, directory: str, key: TopicPartition) -> bool:
        log = self._pool.current_logs.get(key)
        return log is not None and os.path.dirname(log.path) == directory

    def uncleanable_bytes(self, directory: str, now_ms: int) -> int:
        """Return the dirty bytes of the partitions of a data directory that are set aside."""
        skipped = [one for one in self.uncleanable if one.directory == directory]
        offsets = self._offsets.read().get(directory, {}) if skipped else {}
        total = 0
        for one in skipped:
            log = self._pool.current_logs.get(one.topic_partition)
            if log is not None:
                total += dirty_bytes(log, offsets.get(one.topic_partition), now_ms)
        return total

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record that a partition moved to another data directory; if set aside, it remains so (CLN-33)."""
        reason = self._uncleanable.pop((source, partition), None)
        if reason is not None:
            self._uncleanable[target, partition] = reason

    def forget_removed(self) -> None:
        """Forget partitions that were set aside or put off and no longer exist."""
        logs = self._pool.current_logs
        for directory, key in list(self._uncleanable):  # one step of the interpreter, also without the GIL
            if not self._is_in(directory, key):
                self._uncleanable.pop((directory, key), None)
        for key in list(self._postponed):
            if key not in logs:
                self._postponed.pop(key, None)


def _is_of_lost_segment(error: Exception, log: UnifiedLog) -> bool:
    """Return True if a file of a current segment is missing; a scan may also miss files that retention deletes."""
    if not isinstance(error, KafkalogError) or not isinstance(error, OSError) or error.errno != errno.ENOENT:
        return False
    return any(segment.path == error.path for segment in log.segments)
