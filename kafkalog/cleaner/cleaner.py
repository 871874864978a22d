"""The cleaner of a store: the work of each of its threads, with their shared memory and rate.

    grab the dirtiest log -> clean it -> write the checkpoint -> retention of compacted logs -> again, or back off
The owner creates the threads; each of them calls `run` repeatedly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.manager import CleanerOffsets, Failed, LogCleanerManager, Pool
from kafkalog.cleaner.splits import after_splits
from kafkalog.cleaner.stats import Clean, CleanerBook, CleanerReport
from kafkalog.cleaner.throttle import Throttle
from kafkalog.cleaner.types import CleanerStats, CleanResult, LogToClean, Progress, check_map_bytes
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.keys import MAX_INT
from kafkalog.errors import CleaningAborted, IllegalState
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.clock import Clock
from kafkalog.util.guards import finalize_off_thread
from kafkalog.util.interrupts import deferred_interrupts

_LOG: Final = logging.getLogger(__name__)
REQUESTED_THREAD: Final = -1
"""Thread number of a clean that a caller requested."""
Pass = Callable[..., CleanResult]
"""One clean of one log, with the arguments of `pass_.clean`."""


class MemoryShare(NamedTuple):
    """One thread's memory: bytes of its offset map, the map's load factor, bytes of each of its two buffers."""

    map_bytes: int
    load_factor: float
    io_buffer_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> MemoryShare:
        """Divide the memory among the threads (CLN-43): at most 2 GiB of map for each; any excess is logged."""
        threads = config.log_cleaner_threads
        map_bytes = config.log_cleaner_dedupe_buffer_size // threads
        if map_bytes > MAX_INT:
            _LOG.warning("log.cleaner.dedupe.buffer.size: a thread uses at most 2 GiB of it")
            map_bytes = MAX_INT
        load_factor = min(config.log_cleaner_io_buffer_load_factor, 1.0)
        return cls(map_bytes, load_factor, config.log_cleaner_io_buffer_size // threads // 2)


class _CleanTask(NamedTuple):
    """One clean: its log, its thread, its memory; it stops when `is_wanted` returns False."""

    found: LogToClean
    thread: int
    is_wanted: Callable[[], bool]
    share: MemoryShare
    dry_run: bool = False
    progress: Progress | None = None


class LogCleaner:
    """Cleans the logs of a store, in the threads that call `run`.

    `manager` records the logs, `book` the cleans; `throttle` is the rate that all threads share. `age_ms` returns the
    time that retention measures ages from. Threads: all methods, from any.
    """

    def __init__(
        self,
        pool: Pool,
        offsets: CleanerOffsets,
        config: BrokerConfig,
        *,
        clean: Pass,
        clock: Clock,
        age_ms: Callable[[], int],
        failed: Failed,
    ) -> None:
        self.manager = LogCleanerManager(pool, offsets, clock, failed)
        self.throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, clock)
        self.book = CleanerBook()
        self.share = MemoryShare.of(config)
        self._config = config
        self._clean = clean
        self._clock = clock
        self._age_ms = age_ms
        self._last_retention_ms = clock.monotonic_ms()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply other settings: the rate at once, memory with the next clean of each thread (CLN-42, CLN-43)."""
        self.share = MemoryShare.of(config)
        self._config = config
        self.throttle.bytes_per_s = config.log_cleaner_io_max_bytes_per_second

    # A thread

    def run(self, thread: int = 0, is_wanted: Callable[[], bool] = lambda: True) -> int:
        """Clean logs until none is worth it or `is_wanted` returns False; return the number of cleaned logs.

        At the end, and from time to time before, apply retention to compacted logs (CLN-36, CLN-37). An error of one
        log is logged and does not stop the others (CLN-39). Any other error is counted and raised: the thread should
        call again after its back-off. A Ctrl-C ends the run between logs, and at the next check of a clean.
        """
        interrupts = deferred_interrupts()

        def should_continue() -> bool:
            interrupts.run_pending()
            return is_wanted()

        cleaned = 0
        try:
            with interrupts, finalize_off_thread():  # a Ctrl-C is let through when no log is left in progress
                while should_continue() and not self.manager.states.stopped:
                    found = self.manager.grab(self._age_ms())
                    if found is None:
                        self._apply_retention_to_all(after_ms=0)
                        break
                    cleaned += self._clean_found(found, thread, should_continue)
                    self._apply_retention_to_all(after_ms=self._config.log_cleaner_backoff_ms)
        except Exception:
            self.book.record_thread_failure()
            raise
        return cleaned

    def _clean_found(self, found: LogToClean, thread: int, is_wanted: Callable[[], bool]) -> bool:
        """Clean a log; return False if the clean was aborted or made no progress. The next log follows at once.

        A log without progress is postponed (KAFKA-8764). MemoryError is raised: no log caused it. The log is postponed
        beyond the back-off, so that it is not the first again.
        """
        backoff_ms = max(self._config.log_cleaner_backoff_ms, 1)
        try:
            clean = self._clean_grabbed(_CleanTask(found, thread, is_wanted, self.share))
        except CleaningAborted as error:
            _LOG.info("%s", error.message)
            return False
        except MemoryError as error:
            self.manager.note_error(found.log, error, 2 * backoff_ms)
            raise
        except Exception as error:
            if not found.log.closed:
                self.manager.note_error(found.log, error, backoff_ms)
            return True
        if clean.end_offset is None or clean.end_offset <= clean.start_offset:
            self.manager.postpone(found.log, backoff_ms)
            return False
        return True

    def _apply_retention_to_all(self, after_ms: int) -> None:
        """Apply retention to all compacted logs unless that was done less than `after_ms` ago."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_retention_ms >= after_ms:
            self._last_retention_ms = now_ms
            self.manager.for_each_idle(self._apply_retention)

    def _apply_retention(self, log: UnifiedLog) -> None:
        """Apply retention to a compacted log: by its start, and by age and size if its policy includes delete."""
        try:
            deleted = log.delete_old_segments(self._age_ms())
        except Exception as error:
            if not log.closed:
                self.manager.note_error(log, error)
            return
        if deleted:
            _LOG.info("%s: retention deleted %d segments up to offset %d", log.name, deleted, log.log_start_offset)

    # One log

    def clean(
        self,
        log: UnifiedLog,
        *,
        from_start: bool = False,
        dry_run: bool = False,
        map_bytes: int = MAX_INT,
        progress: Progress | None = None,
    ) -> Clean:
        """Clean a log now, in this thread, however little of it is dirty; one that was set aside is tried again.

        With `from_start` all of it is dirty; with `dry_run` the clean is only counted. The map has the size of a
        thread's share, and at most `map_bytes`; `progress` is called with the counters between chunks.

        IllegalArgument for a map too small for any key; IllegalState if the log is not compacted, is paused, or was
        removed; CleaningAborted if another thread needed it; otherwise the error of the log.
        """
        if not log.config.compact:
            raise IllegalState(
                f"{log.topic_partition} is not compacted: its cleanup.policy does not include compact",
                path=log.path,
                hint='alter_topic(name, {"cleanup.policy": "compact"}) first, if records without a key may be deleted',
            )
        if not dry_run:
            self.manager.reinstate(log)
        interrupts = deferred_interrupts()

        def check_interrupts() -> bool:
            interrupts.run_pending()
            return True

        share = self.share._replace(map_bytes=min(map_bytes, self.share.map_bytes))
        check_map_bytes(share.map_bytes, share.load_factor)

        def clean_once() -> Clean:
            found = self.manager.grab_one(log, self._age_ms(), check_interrupts, from_start=from_start, dry_run=dry_run)
            try:
                task = _CleanTask(found, REQUESTED_THREAD, check_interrupts, share, dry_run, progress)
                return self._clean_grabbed(task)
            except OSError as error:
                self.manager.note_error(log, error)
                raise

        with interrupts, finalize_off_thread():  # a Ctrl-C is let through when the log is not left in progress
            return after_splits(clean_once)

    def _clean_grabbed(self, task: _CleanTask) -> Clean:
        """Clean a log that is in progress, and end the work on it even after an error."""
        log = task.found.log
        end_offset: int | None = None
        is_over, is_aborted = False, False
        try:
            stats = CleanerStats(perf_counter())
            clean = Clean.of(task.found, os.path.dirname(log.path), task.thread, self._clock.milliseconds(), stats)
            self.book.record_start(clean)
            result = self._pass(task, stats)
            end_offset = result.end_offset
            clean = clean._replace(end_offset=end_offset, stats=result.stats)
            is_over = True
        except (CleaningAborted, KeyboardInterrupt):
            is_aborted = True
            raise
        finally:
            try:
                self.manager.done_cleaning(log, None if task.dry_run else end_offset)
            finally:
                if is_over and not task.dry_run:
                    self.book.record_end(clean)
                else:
                    self.book.record_incomplete(aborted=is_aborted, failed=not (is_over or is_aborted))
        if not task.dry_run:
            self._log_result(clean)
        return clean

    def _pass(self, task: _CleanTask, stats: CleanerStats) -> CleanResult:
        found, share = task.found, task.share

        def check() -> None:
            if not task.is_wanted():
                raise CleaningAborted(f"the clean of {found.topic_partition} was aborted: its thread ends")
            self.manager.check(found.log)

        return self._clean(
            found,
            # SipHash with a secret, not the reference's MD5: no one can choose keys that erase each other.
            # Its memory is touched only as keys are added
            SkimpyOffsetMap(share.map_bytes),
            now_ms=self._age_ms(),
            load_factor=share.load_factor,
            io_buffer_bytes=share.io_buffer_bytes,
            check_done=check,
            throttled=lambda count: self.throttle.throttle(count, check),
            stats=stats,
            progress=task.progress,
            dry_run=task.dry_run,
        )

    def _log_result(self, clean: Clean) -> None:
        _LOG.info("cleaner thread %d %s", clean.thread, clean.report())
        choice = self.manager.choice
        if choice.delayed:
            _LOG.info("%d logs are overdue for cleaning, by up to %d ms", choice.delayed, choice.longest_delay_ms)
        if clean.stats.invalid_messages_read:
            _LOG.warning(
                "%s: %d records without a key were dropped", clean.topic_partition, clean.stats.invalid_messages_read
            )

    def report(self, threads: int) -> CleanerReport:
        """Return the cleaner's state: its current and finished cleans, and the partitions it skips."""
        book, manager = self.book, self.manager
        return CleanerReport(
            threads,
            book.running,
            book.last,
            book.totals,
            tuple(manager.uncleanable),
            manager.choice.dirtiest_ratio,
            manager.last_look_ms,
            self.throttle.slept_ms,
        )

    # Ending

    def stop(self) -> None:
        """Wait until nothing is being cleaned, and prevent further cleans."""
        self.manager.states.stop()
