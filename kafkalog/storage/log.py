"""One partition's log: the owner of its segments, its offsets and its lock.

    append   scan and check outside the lock -> assign offsets -> plan -> one write -> index entries -> new state
    read     one state, no lock -> bound -> segment -> index -> header walk -> a slice (no record byte is read)

What is decided is decided by pure functions (`append`, `read`, `roll`, `truncate`, `lookup`, `log_state`); this file
holds the state and the order of the steps. `log_owner.py` has the parts that change segments.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

from kafkalog._core.producer import ProducerState
from kafkalog._core.state import LogState
from kafkalog._core.txns import AbortedRanges
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.storage.damage import MisplacedBatch
from kafkalog.storage.directory import list_directory
from kafkalog.storage.failure import Report
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.loader import Loaded, LogLoader, begin_log
from kafkalog.storage.log_append import LogAppender
from kafkalog.storage.log_state import (
    high_watermark_incremented,
    high_watermark_resolved,
    high_watermark_updated,
    started,
)
from kafkalog.storage.lookup import bounded, offset_for_time
from kafkalog.storage.producer_state import EXPIRATION_MS, ProducerStateManager, VerificationGuard
from kafkalog.storage.read import add_aborted, extent_of, locate_or_offset_only, read_state
from kafkalog.storage.recovery_run import Progress
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.transactions import Transactions
from kafkalog.storage.undecided import Undecided
from kafkalog.types import FetchDataInfo, Isolation, LogOffsetMetadata, OffsetAndTimestamp
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.scheduler import Schedules

T = TypeVar("T")


class UnifiedLog(LogAppender):
    """The log in one partition directory, open for reading and writing; its owner holds the directory's lock.

    Threads: all methods, from any thread. Writers take one lock; readers take one state and no lock.
    """

    __slots__ = ("_transactions",)
    _transactions: Transactions

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        config: LogConfig,
        *,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        log_start_offset: int = 0,
        recovery_point: int | None = None,
        had_clean_shutdown: bool = True,
        leader_epoch: int = 0,
        high_watermark_follows_end: bool = True,
        producer_expiration_ms: int = EXPIRATION_MS,
        verify_transactions: bool = False,
        progress: Progress | None = None,
        on_disk_failure: Report | None = None,
        recovery_threads: int | None = None,
        keeps_begun_epochs: bool = False,
        refuses_loss: bool = False,
    ) -> UnifiedLog:
        """The log of an existing directory; one without segments gets its first.

        Without `had_clean_shutdown` it is recovered from `recovery_point` on (None: from its beginning), in
        `recovery_threads` threads (None: one a core), which tell `progress`, one at a time. `scheduler` None leaves
        rolled segments to the next `flush` and deletes files at once. Without `high_watermark_follows_end` the high
        watermark moves only when it is told to. `producer_expiration_ms` is how long idle producers are remembered;
        with `verify_transactions` a transaction begins only with the guard of a coordinator's answer (LOG-64).
        `keeps_begun_epochs` leaves a leader epoch that begins at the log's end, which is forgotten else (LOAD-14): that
        a replica has agreed with a leader who wrote nothing is known from there. `on_disk_failure` is called with
        errors that the disk is to blame for. With `refuses_loss` an opening that would give sound batches up ends with
        CorruptRecord and cuts nothing; else they are kept (docs/recovery.md).
        StorageError, NotAPartition; CorruptCheckpoint for the epochs, CorruptRecord for an end that no crash leaves.
        """
        folder = os.fspath(directory)
        found = list_directory(folder, fs)
        epochs = LeaderEpochCache.open(folder, fs=fs)
        producers = ProducerStateManager(
            folder, fs=fs, expiration_ms=producer_expiration_ms, verify_transactions=verify_transactions,
            names=found.names,
        )  # fmt: skip
        began = perf_counter()
        loaded = LogLoader(
            folder, config, epochs, producers, fs=fs, clock=clock, log_start_offset=log_start_offset,
            recovery_point=0 if recovery_point is None else recovery_point, had_clean_shutdown=had_clean_shutdown,
            progress=progress, threads=recovery_threads, listed=found,
            keeps_begun_epochs=keeps_begun_epochs, refuses_loss=refuses_loss,
        ).load()  # fmt: skip
        try:
            log = cls(
                folder, config, _first_state(loaded, epochs.latest_epoch, high_watermark_follows_end), epochs,
                producers, fs=fs, clock=clock, scheduler=scheduler, leader_epoch=leader_epoch,
                high_watermark_follows_end=high_watermark_follows_end, on_disk_failure=on_disk_failure,
            )  # fmt: skip
            log.metrics.load_s = perf_counter() - began
            log.metrics.recovered = not had_clean_shutdown
            return log._begun(loaded)
        except BaseException:
            for segment in loaded.segments:
                segment.close_handlers()
            raise

    @classmethod
    def begin(
        cls,
        directory: str,
        config: LogConfig,
        epoch: int,
        *,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        producer_expiration_ms: int = EXPIRATION_MS,
        on_disk_failure: Report | None = None,
    ) -> UnifiedLog:
        """Make the log of a directory that was made just now, and return it: it begins at offset 0 with that epoch.

        Nothing is synced before its first flush. The indexes are made with the first append, and no file is kept open
        until then. Arguments as for `open`. StorageError leaves files.
        """
        began = perf_counter()
        epochs = LeaderEpochCache.begin(directory, epoch, fs=fs)
        loaded = begin_log(directory, config, fs=fs, clock=clock)
        log = cls(
            directory, config, _first_state(loaded, epoch, True), epochs,
            ProducerStateManager(directory, fs=fs, expiration_ms=producer_expiration_ms, names=()),
            fs=fs, clock=clock, scheduler=scheduler, leader_epoch=0, high_watermark_follows_end=True,
            on_disk_failure=on_disk_failure,
        )  # fmt: skip
        log.metrics.load_s = perf_counter() - began
        return log._begun(loaded)

    def _begun(self, loaded: Loaded) -> UnifiedLog:
        """This log, once what an opening leaves to do is done: last stable offset, epochs, what was given up."""
        self._transactions = Transactions(self.path, fs=self._fs)
        self._misplaced_end = loaded.misplaced_end
        with self._lock:
            self._high_watermark_moved_locked()
            if loaded.is_untouched:
                self._unsynced.synced(self._unsynced.taken())
            if loaded.given_up or loaded.given_up_files:
                self._chores.append(lambda: self._delete_later(loaded.given_up, loaded.given_up_files))
        self._do_chores()
        state, metrics = self._state, self.metrics
        ends = {"log_start_offset": state.log_start_offset, "log_end_offset": state.log_end_offset}
        self._tell("open", duration_ms=metrics.load_s * 1000, recovered=metrics.recovered, **ends)
        return self

    # Reading

    @property
    def tail_damage(self) -> MisplacedBatch | None:
        """The last batch where recovery took it though it begins below the end of the one before it."""
        found, state = self._misplaced_end, self._state
        if found is None or self._cuts or state.log_end_offset != found.last_offset + 1:
            return None
        return found if state.log_start_offset <= found.last_offset else None

    def extent(self, offset: int) -> Extent:
        """Return the segment in which a walk to `offset` begins, up to the log end; OffsetOutOfRange, LogClosed."""
        return self._settled(lambda: extent_of(self._state, offset, self.path))

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """The data from `start_offset` on, from one segment, at most `max_length` bytes (LOG-20 to LOG-25).

        With `min_one_message` the first batch comes whole, whatever its size. `isolation` bounds what is seen: the
        log end, the high watermark, or the last stable offset. OffsetOutOfRange outside log start ... log end,
        IllegalArgument for a negative length, LogClosed.
        """
        return self._settled(lambda: self._read(start_offset, max_length, isolation, min_one_message))

    def _read(self, start_offset: int, max_length: int, isolation: Isolation, min_one_message: bool) -> FetchDataInfo:
        if isolation == "log_end":
            state = self._state
            return read_state(state, start_offset, max_length, state.end_metadata, min_one_message)
        bound = self.readable_end(isolation)
        state = self._state
        found = read_state(state, start_offset, max_length, bound, min_one_message)
        if isolation == "committed":
            add_aborted(state, start_offset, found)
        return found

    def _settled(self, ask: Callable[[], T]) -> T:
        """What `ask` finds; asked again where the end went back, or segments went away, meanwhile."""
        while True:
            cuts, segments = self._cuts, self._state.segments
            try:
                found = ask()
            except KafkalogError as error:
                self._check_readable()
                if not self._has_cut(cuts) and self._state.segments is segments:
                    self._health.notice(error)
                    raise
                continue
            self._check_readable()
            if cuts == self._cuts and not cuts & 1 or not self._has_cut(cuts):
                return found

    def _check_readable(self) -> None:
        """LogClosed after `close`: asked after a read, for a file of it may have been closed while it went on."""
        if self._health.cause is not None and self._health.closed:
            self._health.check()

    def _has_cut(self, before: int) -> bool:
        """True when the end went back since `cuts` was `before`: what a reader found may be of two logs."""
        return self.settled_cuts() != before

    def readable_end(self, isolation: Isolation) -> LogOffsetMetadata:
        """The offset below which a reader sees records, with its place: the log end, the high watermark, or the last
        stable offset (LOG-30)."""
        if isolation == "log_end":
            return self._state.end_metadata
        if isolation not in ("high_watermark", "committed"):
            raise IllegalArgument(
                f"unknown isolation {isolation!r}", hint='"log_end", "high_watermark" or "committed"'
            )
        mark = self.fetch_high_watermark()
        state = self._state
        if isolation == "committed" and 0 <= state.first_unstable_offset < mark.message_offset:
            return locate_or_offset_only(state, state.first_unstable_offset)
        return mark

    @property
    def has_damaged_transactions(self) -> bool:
        """False where no file that was read so far for the transactions was damaged: then none is undecided."""
        return self._transactions.is_damaged

    def undecided(self, first_offset: int, next_offset: int) -> Undecided | None:
        """The first of the records with these offsets that belongs to a transaction whose end damage may hide."""
        state = self._state
        asked = state.segments, state.log_end_offset, state.end_position, first_offset, next_offset
        return self._transactions.undecided(*asked)

    def undecided_at_end(self) -> Undecided | None:
        """The transaction at the last stable offset, where damage may hide its end."""
        state = self._state
        return self._transactions.undecided_at_end(state.segments, state.log_end_offset, state.end_position)

    def aborted_ranges(self, first_offset: int, next_offset: int) -> AbortedRanges:
        """The aborted transactions that records with these offsets, below the last stable one, may belong to."""
        state = self._state
        asked = state.segments, state.log_end_offset, state.end_position, first_offset, next_offset
        return self._transactions.aborted_ranges(*asked)

    def offset_for_time(self, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
        """The first record at or after `timestamp` ms, or what a negative code stands for (LOG-57); None: no such.

        With another `isolation` its bound stands for the log end, and what lies at or after it is not found (PART-8).
        """
        found = self._settled(lambda: self._offset_for_time(self._state, timestamp))
        if isolation == "log_end":
            return found
        return bounded(found, timestamp, self.readable_end(isolation).message_offset)

    def _offset_for_time(self, state: LogState, timestamp: int) -> OffsetAndTimestamp | None:
        if timestamp >= 0:
            return offset_for_time(state, timestamp, -1, -1)
        epochs = self._epochs
        return offset_for_time(state, timestamp, epochs.epoch_for(state.log_start_offset), epochs.latest_epoch)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """The place of the batch that holds `offset`, or the offset alone where it is not in the log (LOG-85)."""
        return locate_or_offset_only(self._state, offset)

    # High watermark

    def fetch_high_watermark(self) -> LogOffsetMetadata:
        """The high watermark with its place; one without is looked up, and replaced by what is found (LOG-29)."""
        state = self._state
        if state.high_watermark_base < 0:
            with self._lock:
                state = self._state
                if state.high_watermark_base < 0:
                    mark = locate_or_offset_only(state, state.high_watermark)
                    self._state = state = high_watermark_resolved(state, mark)
        return state.high_watermark_metadata

    @property
    def high_watermark_follows_end(self) -> bool:
        """Whether each append moves the high watermark to the log end: true where there is no other replica."""
        return self._follows

    @high_watermark_follows_end.setter
    def high_watermark_follows_end(self, follows: bool) -> None:
        with self._lock:
            self._follows = follows

    def update_high_watermark(self, mark: int | LogOffsetMetadata) -> int:
        """The high watermark, moved to `mark` within log start ... log end; it may go down (LOG-27)."""
        place = mark if isinstance(mark, LogOffsetMetadata) else LogOffsetMetadata(mark)
        with self._lock:
            self._state = state = high_watermark_updated(self._state, place)
            self._high_watermark_moved_locked()
        return state.high_watermark

    def maybe_update_high_watermark(self, mark: int | LogOffsetMetadata) -> int | None:
        """The high watermark after `update_high_watermark`, or None where that changed nothing (LOG-83)."""
        before = self._state.high_watermark
        after = self.update_high_watermark(mark)
        return None if after == before else after

    def maybe_increment_high_watermark(self, mark: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """The old high watermark when it grew, or moved to a newer segment, else None (LOG-27).

        IllegalArgument above the log end.
        """
        old = self.fetch_high_watermark()
        with self._lock:
            state = high_watermark_incremented(self._state, mark)
            if state is None:
                return None
            self._state = state
            self._high_watermark_moved_locked()
        return old

    def _relocate_locked(self, directory: str) -> None:
        super()._relocate_locked(directory)
        self._transactions.relocate(directory)

    # What it is

    @property
    def state(self) -> LogState:
        """All offsets and segments at this moment, immutable."""
        return self._state

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record gets."""
        return self._state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which every record is known to be safe."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: at most the high watermark (LOG-30, LOG-32)."""
        return self._state.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._state.recovery_point

    @property
    def segments(self) -> Any:
        """The segments, oldest first, as an immutable map by base offset."""
        return self._state.segments

    def segment_of(self, offset: int) -> LogSegment | None:
        """The segment where the record with this offset is, if there is one; None outside the log, and once closed."""
        state = self._state
        if self._health.closed or not state.log_start_offset <= offset < state.log_end_offset:
            return None
        found: LogSegment | None = state.segments.floor(offset)
        return found

    @property
    def active_segment(self) -> LogSegment:
        """The segment that takes the appends."""
        return self._active

    @property
    def data_end_offset(self) -> int:
        """The log end that the next opening will find: behind the last batch, or where an empty segment begins.

        It is below `log_end_offset` after a cut inside a batch, which takes the batch whole.
        """
        return self._active.end_offset

    @property
    def size(self) -> int:
        """Bytes of record data in all segments."""
        size: int = self._state.segments.size_in_bytes
        return size

    @property
    def producers(self) -> tuple[ProducerState, ...]:
        """Who is known to have written, by producer id."""
        with self._lock:
            if self._staged is not None:
                self._apply_staged_locked()
            return tuple(sorted(self._producers.producers, key=lambda state: state.producer_id))

    def expire_producers(self, now_ms: int, expiration_ms: int | None = None) -> int:
        """How many producers that were idle up to `now_ms` are forgotten (PSM-15).

        Idle for `expiration_ms`, which counts from now on; None: as before.
        """
        with self._lock:
            self._ready_locked()
            producers = self._producers
            before = len(producers.producers)
            if expiration_ms is not None:
                producers.expiration_ms = expiration_ms
            producers.remove_expired(now_ms)
            return before - len(producers.producers)

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset) of each leader epoch, oldest first."""
        return tuple((entry.epoch, entry.start_offset) for entry in self._epochs.entries)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the newest leader epoch up to `epoch`, None where none is known (EPOCH-3)."""
        found = self._epochs.end_offset_for(epoch, self._state.log_end_offset)
        return None if found.start_offset < 0 else (found.epoch, found.start_offset)

    def maybe_start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """The guard to bring with the first append of a transaction, once its coordinator has said yes (PSM-27).

        None where the transaction is open already, and nothing is to be asked.
        """
        with self._lock:
            self._ready_locked()
            return self._producers.maybe_start_verification(
                producer_id, sequence, producer_epoch, supports_epoch_bump, self._milliseconds()
            )

    @property
    def verifies_transactions(self) -> bool:
        """Whether a transaction begins only with the guard of a coordinator's answer (LOG-64)."""
        return self._producers.producers.must_verify

    @verifies_transactions.setter
    def verifies_transactions(self, verifies: bool) -> None:
        with self._lock:
            self._producers.producers.must_verify = verifies

    @property
    def config(self) -> LogConfig:
        """The settings; a new value counts from the next decision on (LOG-76)."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._lock:
            self._set_config_locked(config)

    def __repr__(self) -> str:
        state = self._state
        return (
            f"<UnifiedLog {self.name} [{state.log_start_offset}, {state.log_end_offset}) hw {state.high_watermark} "
            f"{len(state.segments)} segments{' closed' if self.closed else ''}>"
        )


def _first_state(loaded: Loaded, latest_epoch: int, high_watermark_follows_end: bool) -> LogState:
    """The state of a log that was just loaded; its high watermark is the log end, or else the log start (LOAD-33)."""
    return started(
        loaded.segments,
        log_start_offset=loaded.log_start_offset,
        log_end_offset=loaded.next_offset,
        recovery_point=loaded.recovery_point,
        high_watermark=loaded.next_offset if high_watermark_follows_end else None,
        leader_epoch=latest_epoch,
    )
