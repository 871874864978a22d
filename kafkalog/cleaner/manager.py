"""The cleaner's book of the logs: which one is next, which are set aside, and what their checkpoints say.

What is decided is decided by `choosing`; who may work on what is in `states`.
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
_NOTHING: Final = Choice((), 0.0, 0, 0)
PUT_OFF_MS: Final = 15_000
_LOOKS: Final = 8  # at all logs, before a thread goes away with none for its back-off


class Pool(Protocol):
    """The logs there are. Neither of the maps changes, nor does asking for one take a lock."""

    @property
    def current_logs(self) -> Mapping[TopicPartition, UnifiedLog]: ...
    @property
    def moving_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Those that are to take the place of current ones, which are not cleaned meanwhile."""


Offsets = Mapping[TopicPartition, int]


class CleanerOffsets(Protocol):
    """The cleaner checkpoints of the data directories. Neither waits for the owner of the directories."""

    def read(self) -> Mapping[str, Offsets]:
        """Up to where the partitions of each directory are clean; a directory that cannot be read is left out."""

    def record(self, log: UnifiedLog, offset: int) -> None:
        """Return when it is on disk that a log is clean up to `offset`. StorageError."""


Failed = Callable[[UnifiedLog, Exception], object]
"""Told of an error that a log's disk may be to blame for; it waits for nothing."""


class LogCleanerManager:
    """Choosing logs, and keeping account of what becomes of them.

    `choice` is what the last look at all logs came to, `last_look_ms` when that was (wall clock; None: never).
    Threads: all methods, from any.
    """

    def __init__(
        self, pool: Pool, offsets: CleanerOffsets, clock: Clock = SYSTEM_CLOCK, failed: Failed | None = None
    ) -> None:
        self.states = CleaningStates()
        self.choice = _NOTHING
        self.last_look_ms: int | None = None
        self._pool = pool
        self._offsets = offsets
        self._clock = clock
        self._failed = failed
        self._choosing = threading.Lock()  # one look at all logs at a time
        # each step on these is one of the interpreter: they need no lock
        self._uncleanable: dict[tuple[str, TopicPartition], str] = {}
        self._put_off: dict[TopicPartition, int] = {}  # until this monotonic time in ms

    # Choosing

    def grab(self, now_ms: int) -> LogToClean | None:
        """The dirtiest log that is worth a clean, in progress by this thread; None where there is none (CLN-29).

        `done_cleaning` follows. A log that cannot even be looked at is set aside. Where somebody worked on a log while
        it was looked at, and does not any more, there is another look: retention by another thread touches each log.
        """
        with self._choosing:
            for _ in range(_LOOKS):
                choice = self._look(now_ms)
                for log in choice.cleanable:
                    if self._begin(log.log, watched=True):
                        return log
                if not any(self._is_idle(log.log) for log in choice.cleanable):
                    break
        return None

    def _look(self, now_ms: int) -> Choice:
        """What all logs come to that nobody works on; from now on it is noted who works on any."""
        busy = self.states.watch()
        self.last_look_ms = self._clock.milliseconds()
        self.forget_gone()
        read = self._offsets.read()
        logs = (log for log in self._compacted() if log.topic_partition not in busy and not self._is_put_off(log))
        found = [self._candidate(log, read, now_ms) for log in logs]
        self.choice = choose(one for one in found if one is not None)
        return self.choice

    def _is_idle(self, log: UnifiedLog) -> bool:
        return not self.states.stopped and self.states.of(log.topic_partition) is None and self._is_there(log)

    def _candidate(self, log: UnifiedLog, read: Mapping[str, Offsets], now_ms: int) -> Candidate | None:
        """A log as it would be cleaned; None where nobody knows how far it was, and where it cannot be looked at."""
        offsets = read.get(os.path.dirname(log.path))
        if offsets is None:
            return None
        try:
            return self._looked_at(log, offsets, now_ms)
        except Exception as error:
            if not (log.closed or log.failed):
                self.note_error(log, error)
            return None

    def _looked_at(self, log: UnifiedLog, offsets: Offsets, now_ms: int, *, dry_run: bool = False) -> Candidate:
        found, range_ = candidate(log, offsets.get(log.topic_partition), now_ms)
        if range_.is_repaired and not dry_run:
            self._offsets.record(log, range_.first_dirty_offset)
        return found

    def grab_one(
        self,
        log: UnifiedLog,
        now_ms: int,
        look_up: Callable[[], object] = lambda: None,
        *,
        from_start: bool = False,
        dry_run: bool = False,
    ) -> LogToClean:
        """A log as it would be cleaned now, however little is dirty, in progress by this thread.

        With `from_start` all of it is dirty, whatever the checkpoint says; with `dry_run` a useless one stays. Waits
        while somebody works on it, and calls `look_up`, which may raise; `done_cleaning` follows. IllegalState where it
        is paused, or gone; StorageError where its directory's checkpoint cannot be read.
        """
        partition = log.topic_partition
        while self._is_there(log) and not self.states.stopped:
            self.states.wait_for(partition, look_up)
            with self._choosing:
                self.states.watch()
                offsets = self._offsets.read().get(os.path.dirname(log.path))
                if offsets is None:
                    raise StorageError("the cleaner's checkpoint cannot be read", path=os.path.dirname(log.path))
                found = self._looked_at(log, {} if from_start else offsets, now_ms, dry_run=dry_run).log
                if self._begin(log, watched=True):
                    return found._replace(reason=ASKED)
            state = self.states.of(partition)
            if state is not None and state.kind == "paused":
                break
        raise IllegalState(
            f"{partition} cannot be cleaned now",
            path=log.path,
            hint="it is being deleted, cut or moved, or the store is being closed",
        )

    def _begin(self, log: UnifiedLog, *, watched: bool = False) -> bool:
        return self.states.begin(log.topic_partition, lambda: self._is_there(log), watched=watched)

    def _is_there(self, log: UnifiedLog) -> bool:
        key = log.topic_partition
        return self._pool.current_logs.get(key) is log and key not in self._pool.moving_logs

    def _compacted(self) -> Iterator[UnifiedLog]:
        """The logs with compact in their policy that are neither set aside nor being moved or closed."""
        moving = self._pool.moving_logs
        for key, log in self._pool.current_logs.items():
            if log.config.compact and key not in moving and not (log.closed or log.failed):
                if self.why_uncleanable(log) is None:
                    yield log

    # What became of it

    def check(self, log: UnifiedLog) -> None:
        """CleaningAborted where the cleaner is to let go of the log; LogClosed, StorageError where it has lost it."""
        self.states.check(log.topic_partition)
        if log.closed or log.failed:
            raise StorageError(f"log {log.name} takes no writes any more", path=log.path)

    def done_cleaning(self, log: UnifiedLog, end_offset: int | None) -> None:
        """The cleaner lets go of a log, which is clean up to `end_offset` (None: nobody knows).

        The checkpoint says so, unless the clean was aborted (CLN-35). StorageError.
        """
        partition = log.topic_partition
        try:
            # an abort that comes in between waits: it is as if it had come when the clean was over
            if end_offset is not None and not self.states.is_aborted(partition):
                self._offsets.record(log, end_offset)
        finally:
            self.states.done(partition)

    def work_on_each(self, step: Callable[[UnifiedLog], object]) -> None:
        """Call `step` of each compacted log that nobody works on, in progress by this thread meanwhile (CLN-36, 37)."""
        for log in tuple(self._compacted()):
            if self._begin(log):
                try:
                    step(log)
                finally:
                    self.states.done(log.topic_partition)

    @contextmanager
    def retention_of(self, logs: Iterable[UnifiedLog]) -> Iterator[list[UnifiedLog]]:
        """Those of the logs that are not compacted and that nobody works on, paused for the block (CLN-38).

        A Ctrl-C waits for the end of the block.
        """
        others = [log for log in logs if not log.config.compact]
        with deferred_interrupts():
            idle = self.states.pause_idle({log.topic_partition for log in others})
            try:
                yield [log for log in others if log.topic_partition in idle]
            finally:
                for key in idle:
                    self.states.resume(key)

    @contextmanager
    def left_alone(self, partition: TopicPartition) -> Iterator[None]:
        """A block in which the cleaner does not touch a partition: it is deleted, cut or moved.

        A Ctrl-C waits for the end of the block.
        """
        with deferred_interrupts():
            self.states.abort_and_pause(partition)
            try:
                yield
            finally:
                self.states.resume(partition)

    # Set aside

    def note_error(self, log: UnifiedLog, error: Exception, put_off_ms: int = PUT_OFF_MS) -> None:
        """Judge what went wrong with a log: one whose disk failed is put off, any other is set aside (CLN-28, CLN-39).

        A full disk is no reason to give a log up, nor is memory that others have, nor somebody else who cleans it: it
        is tried again later. What was removed by somebody who is none of us does not come back by itself.
        """
        if isinstance(error, MemoryError):
            _LOG.warning("%s could not be cleaned: there was not enough memory", log.path)
            self.put_off(log, put_off_ms)
            return
        if not _is_of_lost_segment(error, log) and (isinstance(error, OSError) or type(error) is IllegalState):
            _LOG.warning("%s could not be cleaned: %s", log.path, error)
            self.put_off(log, put_off_ms)
            if self._failed is not None:
                self._failed(log, error)
        else:
            self.set_aside(log, error)

    def set_aside(self, log: UnifiedLog, error: BaseException) -> None:
        """Leave a log alone from now on, for what went wrong with it; others are cleaned (CLN-39)."""
        _LOG.warning("%s is not cleaned any more: %s", log.path, error, exc_info=error)
        self._uncleanable[os.path.dirname(log.path), log.topic_partition] = f"{type(error).__name__}: {error}"

    def take_back(self, log: UnifiedLog) -> None:
        """Clean a log again that was set aside, or put off."""
        self._uncleanable.pop((os.path.dirname(log.path), log.topic_partition), None)
        self._put_off.pop(log.topic_partition, None)

    def put_off(self, log: UnifiedLog, ms: int) -> None:
        """Do not choose a log for so long: another may have its turn."""
        self._put_off[log.topic_partition] = self._clock.monotonic_ms() + ms

    def _is_put_off(self, log: UnifiedLog) -> bool:
        return self._put_off.get(log.topic_partition, 0) > self._clock.monotonic_ms()

    def why_uncleanable(self, log: UnifiedLog) -> str | None:
        """Why a log was set aside; None: it was not."""
        return self._uncleanable.get((os.path.dirname(log.path), log.topic_partition))

    @property
    def uncleanable(self) -> list[Uncleanable]:
        """What is set aside, of the partitions that are here (CLN-39: none of a directory that failed)."""
        aside = dict(self._uncleanable).items()
        return [Uncleanable(key, directory, why) for (directory, key), why in aside if self._lies_in(directory, key)]

    def _lies_in(self, directory: str, key: TopicPartition) -> bool:
        log = self._pool.current_logs.get(key)
        return log is not None and os.path.dirname(log.path) == directory

    def uncleanable_bytes(self, directory: str, now_ms: int) -> int:
        """Dirty bytes that the partitions of a data directory have which are set aside."""
        aside = [one for one in self.uncleanable if one.directory == directory]
        offsets = self._offsets.read().get(directory, {}) if aside else {}
        total = 0
        for one in aside:
            log = self._pool.current_logs.get(one.topic_partition)
            if log is not None:
                total += dirty_bytes(log, offsets.get(one.topic_partition), now_ms)
        return total

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """A partition lies in another data directory now: what is set aside stays so (CLN-33)."""
        why = self._uncleanable.pop((source, partition), None)
        if why is not None:
            self._uncleanable[target, partition] = why

    def forget_gone(self) -> None:
        """Forget what was set aside of partitions that are not here any more."""
        logs = self._pool.current_logs
        for directory, key in tuple(self._uncleanable):
            if not self._lies_in(directory, key):
                self._uncleanable.pop((directory, key), None)
        for key in tuple(self._put_off):
            if key not in logs:
                self._put_off.pop(key, None)


def _is_of_lost_segment(error: Exception, log: UnifiedLog) -> bool:
    """Whether a file is missing that the log still counts on: retention beside a look takes files it does not."""
    if not isinstance(error, KafkalogError) or not isinstance(error, OSError) or error.errno != errno.ENOENT:
        return False
    return any(segment.path == error.path for segment in log.segments)
