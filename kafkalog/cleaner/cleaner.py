"""The cleaner of a store: what each of its threads does, with the memory and the rate that they share.

    grab the dirtiest log -> clean it -> say so in the checkpoint -> retention of compacted logs -> again, or back off
Threads are their owner's business: `run` is what each of them calls, again and again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from kafkalog._core.offset_map import SkimpyOffsetMap
from kafkalog.broker_config import BrokerConfig
from kafkalog.cleaner.manager import CleanerOffsets, Failed, LogCleanerManager, Pool
from kafkalog.cleaner.splits import after_splits
from kafkalog.cleaner.stats import Clean, CleanerBook, CleanerReport
from kafkalog.cleaner.throttle import Throttle
from kafkalog.cleaner.types import CheckDone, CleanerStats, CleanResult, LogToClean, Throttled, check_map_bytes
from kafkalog.config_keys import MAX_INT
from kafkalog.errors import CleaningAborted, IllegalState
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.clock import Clock
from kafkalog.util.guards import ends_elsewhere
from kafkalog.util.interrupts import deferred_interrupts

_LOG: Final = logging.getLogger(__name__)
ASKED_FOR: Final = -1
"""The number of a thread that is none of the cleaner's."""


class Pass(Protocol):
    """One clean of one log, as `pass_.clean` does it."""

    def __call__(
        self,
        to_clean: LogToClean,
        offset_map: SkimpyOffsetMap,
        *,
        now_ms: int,
        load_factor: float,
        io_buffer_bytes: int,
        check_done: CheckDone,
        throttled: Throttled,
        stats: CleanerStats | None = None,
        dry_run: bool = False,
    ) -> CleanResult: ...


class Share(NamedTuple):
    """What one thread may use: bytes of its offset map, how full that may be, bytes of each of its two buffers."""

    map_bytes: int
    load_factor: float
    io_buffer_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> Share:
        """The memory of all threads, divided (CLN-43): at most 2 GiB of map for each, more is told and not used.

        """
        threads = config.log_cleaner_threads
        map_bytes = config.log_cleaner_dedupe_buffer_size // threads
        if map_bytes > MAX_INT:
            _LOG.warning("log.cleaner.dedupe.buffer.size: more than 2 GiB for each thread are not used")
            map_bytes = MAX_INT
        load_factor = min(config.log_cleaner_io_buffer_load_factor, 1.0)
        return cls(map_bytes, load_factor, config.log_cleaner_io_buffer_size // threads // 2)


class _One(NamedTuple):
    """One clean: of which log, by which thread, as long as `is_wanted`, with what memory."""

    found: LogToClean
    thread: int
    is_wanted: Callable[[], bool]
    share: Share
    dry_run: bool = False
    progress: Callable[[CleanerStats], object] | None = None


class LogCleaner:
    """Cleans the logs of a store, in the threads that call `run`.

    `manager` has the account of the logs, `book` that of the cleans, `throttle` the rate that all threads share.
    `age_ms` is the time by which records are old. Threads: all methods, from any.
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
        self.share = Share.of(config)
        self._config = config
        self._clean = clean
        self._clock = clock
        self._age_ms = age_ms
        self._aged_ms = clock.monotonic_ms()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take up other settings: the rate at once, memory with the next clean of each thread (CLN-42, CLN-43)."""
        self.share = Share.of(config)
        self._config = config
        self.throttle.bytes_per_s = config.log_cleaner_io_max_bytes_per_second

    # A thread

    def run(self, thread: int = 0, is_wanted: Callable[[], bool] = lambda: True) -> int:
        """How many logs were cleaned: one after the other until none is worth it, or the thread is not wanted.

        Then, and now and again meanwhile, compacted logs have their retention (CLN-36, CLN-37). What fails concerns one
        log, is logged, and stops no other (CLN-39); anything else is counted and raised: the thread is to call again
        after its back-off. A Ctrl-C ends it between logs, and at the next check of a clean.
        """
        interrupts = deferred_interrupts()

        def goes_on() -> bool:
            interrupts.let_through()
            return is_wanted()

        cleaned = 0
        try:
            with interrupts, ends_elsewhere():  # a Ctrl-C is let through where it leaves no log in progress
                while goes_on() and not self.manager.states.stopped:
                    found = self.manager.grab(self._age_ms())
                    if found is None:
                        self._age_all(after_ms=0)
                        break
                    cleaned += self._clean_found(found, thread, goes_on)
                    self._age_all(after_ms=self._config.log_cleaner_backoff_ms)
        except Exception:
            self.book.thread_failed()
            raise
        return cleaned

    def _clean_found(self, found: LogToClean, thread: int, is_wanted: Callable[[], bool]) -> bool:
        """False where the clean was aborted, or came to nothing. Whatever it came to, others have their turn at once.

        MemoryError is raised: it is no log's fault. The log is put off beyond the back-off, lest it comes first again.
        """
        backoff_ms = max(self._config.log_cleaner_backoff_ms, 1)
        try:
            return self._cleaned(found, thread, is_wanted) is not None
        except MemoryError as error:
            self.manager.note_error(found.log, error, 2 * backoff_ms)
            raise
        except Exception as error:
            if not found.log.closed:
                self.manager.note_error(found.log, error, backoff_ms)
            return True

    def _age_all(self, after_ms: int) -> None:
        """Retention of all compacted logs, unless that was less than `after_ms` ago."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._aged_ms >= after_ms:
            self._aged_ms = now_ms
            self.manager.work_on_each(self._age)

    def _age(self, log: UnifiedLog) -> None:
        """Retention of a compacted log: below its start, and by age and size where delete is in its policy too."""
        try:
            deleted = log.delete_old_segments(self._age_ms())
        except Exception as error:
            if not log.closed:
                self.manager.note_error(log, error)
            return
        if deleted:
            _LOG.info("%s: retention deleted %d segments; it starts at %d", log.name, deleted, log.log_start_offset)

    # One log

    def clean(
        self,
        log: UnifiedLog,
        *,
        from_start: bool = False,
        dry_run: bool = False,
        map_bytes: int = MAX_INT,
        progress: Callable[[CleanerStats], object] | None = None,
    ) -> Clean:
        """Clean a log now, in this thread, however little of it is dirty; one that was set aside has another chance.

        With `from_start` all of it is dirty; with `dry_run` it is only counted what would be done. The map has the
        share of a thread, and no more than `map_bytes`; `progress` is called with the counters between chunks.

        IllegalArgument for a map too small for any key; IllegalState where the log is not compacted, is paused, or not
        here any more; CleaningAborted where somebody else needed it; otherwise what was wrong with it.
        """
        if not log.config.compact:
            raise IllegalState(
                f"{log.topic_partition} is not compacted: its cleanup.policy has no compact",
                path=log.path,
                hint='alter_topic(name, {"cleanup.policy": "compact"}) first, if records without a key may go',
            )
        if not dry_run:
            self.manager.take_back(log)
        interrupts = deferred_interrupts()

        def look_up() -> bool:
            interrupts.let_through()
            return True

        share = self.share._replace(map_bytes=min(map_bytes, self.share.map_bytes))
        check_map_bytes(share.map_bytes, share.load_factor)

        def clean_once() -> Clean:
            found = self.manager.grab_one(log, self._age_ms(), look_up, from_start=from_start, dry_run=dry_run)
            try:
                return self._clean_grabbed(_One(found, ASKED_FOR, look_up, share, dry_run, progress))
            except OSError as error:
                self.manager.note_error(log, error)
                raise

        with interrupts, ends_elsewhere():  # a Ctrl-C is let through where it leaves nobody with the log in progress
            return after_splits(clean_once)

    def _cleaned(self, found: LogToClean, thread: int, is_wanted: Callable[[], bool]) -> Clean | None:
        """The clean; None where it was aborted, or came to nothing: the log is put off then (KAFKA-8764)."""
        try:
            clean = self._clean_grabbed(_One(found, thread, is_wanted, self.share))
        except CleaningAborted as error:
            _LOG.info("%s", error.message)
            return None
        if clean.end_offset is None or clean.end_offset <= clean.start_offset:
            self.manager.put_off(found.log, max(self._config.log_cleaner_backoff_ms, 1))
            return None
        return clean

    def _clean_grabbed(self, one: _One) -> Clean:
        """Clean a log that is in progress, and let go of it, whatever happens."""
        log = one.found.log
        end_offset: int | None = None
        is_over, is_aborted = False, False
        try:
            stats = CleanerStats(perf_counter())
            clean = Clean.of(one.found, os.path.dirname(log.path), one.thread, self._clock.milliseconds(), stats)
            self.book.began(clean)
            result = self._pass(one, stats)
            end_offset = max(result.end_offset, clean.start_offset)  # 0 where nothing was dirty
            clean = clean._replace(end_offset=end_offset, stats=result.stats)
            is_over = True
        except (CleaningAborted, KeyboardInterrupt):
            is_aborted = True
            raise
        finally:
            try:
                self.manager.done_cleaning(log, None if one.dry_run else end_offset)
            finally:
                if is_over and not one.dry_run:
                    self.book.ended(clean)
                else:
                    self.book.gave_up(aborted=is_aborted, failed=not (is_over or is_aborted))
        if not one.dry_run:
            self._tell(clean)
        return clean

    def _pass(self, one: _One, stats: CleanerStats) -> CleanResult:
        found, share = one.found, one.share

        def check() -> None:
            if not one.is_wanted():
                raise CleaningAborted(f"the cleaning of {found.topic_partition} ends with its thread")
            self.manager.check(found.log)
            if one.progress is not None:
                one.progress(stats)

        return self._clean(
            found,
            SkimpyOffsetMap(share.map_bytes),  # none of it is touched before keys come
            now_ms=self._age_ms(),
            load_factor=share.load_factor,
            io_buffer_bytes=share.io_buffer_bytes,
            check_done=check,
            throttled=lambda count: self.throttle.throttle(count, check),
            stats=stats,
            dry_run=one.dry_run,
        )

    def _tell(self, clean: Clean) -> None:
        _LOG.info("cleaner thread %d %s", clean.thread, clean.report())
        choice = self.manager.choice
        if choice.delayed:
            _LOG.info("%d logs should have been cleaned before, by %d ms", choice.delayed, choice.longest_delay_ms)
        if clean.stats.invalid_messages_read:
            _LOG.warning(
                "%s: %d records without a key were dropped", clean.topic_partition, clean.stats.invalid_messages_read
            )

    def report(self, threads: int) -> CleanerReport:
        """What it does, has done, and leaves alone."""
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
        """Return when nothing is being cleaned, and nothing will be."""
        self.manager.states.stop()
