"""One partition's log: opening, closing, properties, and the parts that do its work.

    append   scan and check outside the lock -> assign offsets -> plan -> one write -> index entries -> new state
    read     one state, no lock -> bound -> segment -> index -> header walk -> a slice (no record byte is read)

Pure functions make the decisions (`append`, `read`, `roll`, `truncate`, `lookup`, `log_state`). Each part in
`log_parts` has one duty, and all share one core: state, lock, health.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING

from kafkalog._core.log.append_engine import AppendEngine
from kafkalog._core.log.producer_state import ProducerState
from kafkalog.config.topic import LogConfig
from kafkalog.records.validate import ValidatorMetrics
from kafkalog.storage.damage import MisplacedBatch
from kafkalog.storage.directory import list_directory
from kafkalog.storage.failure import Report
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_counters import LOGS, LogCounters
from kafkalog.storage.log_parts.appender import LogAppender
from kafkalog.storage.log_parts.batch_writer import BatchWriter
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.cutter import LogCutter
from kafkalog.storage.log_parts.files import LogFiles
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.reader import LogReader
from kafkalog.storage.log_parts.remover import LogRemover
from kafkalog.storage.log_parts.replacer import LogReplacer
from kafkalog.storage.log_parts.roller import LogRoller
from kafkalog.storage.log_parts.watermark import HighWatermark
from kafkalog.storage.log_state import started
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.storage.producer_state import EXPIRATION_MS, ProducerStateManager, VerificationGuard
from kafkalog.storage.recovery.loader import Loaded, LogLoader, begin_log
from kafkalog.storage.recovery.rebuild_epochs import rebuild_epochs
from kafkalog.storage.recovery.recover_log import Progress
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import LogSegments
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.events import HOOKS
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.scheduler import Schedules

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State


class UnifiedLog:
    """The log in one partition directory, open for reading and writing; the caller holds the directory's lock.

    Methods of the parts are attributes here, so that a call reaches them directly. `append_ready` belongs to the
    compiled engine (`_core/log/append_engine.pyx`); the rest is in `log_parts`, by the duties that `__init__` names.
    `replacer` is for the log cleaner. Threads: any thread may call any method. Writers take one lock; readers take
    one state and no lock.
    """

    __slots__ = (
        "__weakref__", "_appender", "_core", "_flusher", "_reader", "abandon", "aborted_ranges",
        "append_as_follower", "append_as_leader", "append_batches", "append_ready", "begin_epoch",
        "being_cleaned", "check_unchanged", "close", "close_handlers", "commit",
        "convert_to_offset_metadata", "delete_before",
        "delete_old_segments", "extent", "fence", "fetch_high_watermark", "finished_files", "flush",
        "maybe_increment_high_watermark", "maybe_increment_log_start_offset", "maybe_update_high_watermark",
        "offset_for_time", "read", "readable_end", "rename_dir", "replacer", "resume_writes", "roll", "rows_to_roll",
        "segment_of", "stop_writes", "truncate_fully_and_start_at", "truncate_to", "truncation_count_when_idle",
        "undecided", "undecided_at_end", "update_high_watermark",
    )  # fmt: skip

    def __init__(self, core: LogCore, loaded: Loaded) -> None:
        """Build the log from `core` and the loaded segments; `open` and `begin` create both."""
        flusher, remover, watermark = LogFlusher(core), LogRemover(core), HighWatermark(core)
        roller = LogRoller(core, flusher, remover)
        cutter = LogCutter(core, flusher, remover, roller)
        reader = LogReader(core, watermark, loaded.misplaced_end)
        writer = BatchWriter(core, flusher, roller)
        engine = AppendEngine(core, HOOKS, writer.append_ready, flusher.flush_if_due)
        appender = LogAppender(core, flusher, writer, engine)
        files = LogFiles(core, flusher, roller, reader)
        self._core, self._flusher, self._reader, self._appender = core, flusher, reader, appender
        self.replacer = LogReplacer(core, flusher, remover)
        self.append_ready = engine.append_ready
        self.append_as_follower = appender.append_as_follower
        self.append_as_leader = appender.append_as_leader
        self.append_batches = appender.append_batches
        self.begin_epoch = appender.begin_epoch
        self.rows_to_roll = appender.rows_to_roll
        self.delete_before = cutter.delete_before
        self.delete_old_segments = cutter.delete_old_segments
        self.maybe_increment_log_start_offset = cutter.maybe_increment_log_start_offset
        self.truncate_fully_and_start_at = cutter.truncate_fully_and_start_at
        self.truncate_to = cutter.truncate_to
        self.commit = flusher.commit
        self.flush = flusher.flush
        self.aborted_ranges = reader.aborted_ranges
        self.convert_to_offset_metadata = reader.convert_to_offset_metadata
        self.extent = reader.extent
        self.offset_for_time = reader.offset_for_time
        self.read = reader.read
        self.readable_end = reader.readable_end
        self.segment_of = reader.segment_of
        self.undecided = reader.undecided
        self.undecided_at_end = reader.undecided_at_end
        self.fetch_high_watermark = watermark.fetch_high_watermark
        self.maybe_increment_high_watermark = watermark.maybe_increment_high_watermark
        self.maybe_update_high_watermark = watermark.maybe_update_high_watermark
        self.update_high_watermark = watermark.update_high_watermark
        self.roll = roller.roll
        self.being_cleaned = self.replacer.being_cleaned
        self.check_unchanged = self.replacer.check_unchanged
        self.abandon = files.abandon
        self.close = files.close
        self.close_handlers = files.close_handlers
        self.finished_files = files.finished_files
        self.rename_dir = files.rename_dir
        self.fence = core.fence
        self.resume_writes = core.resume_writes
        self.truncation_count_when_idle = core.truncation_count_when_idle
        self.stop_writes = core.stop_writes
        LOGS.add(self)
        with core.lock:
            core.high_watermark_moved_locked()
            if loaded.is_untouched:
                core.unsynced.synced(core.unsynced.pending_sync())
            if loaded.removed or loaded.removed_files:
                core.after_unlock.append(lambda: remover.delete_later(loaded.removed, loaded.removed_files))
        core.run_after_unlock()
        state, metrics = core.state, core.metrics
        ends = {"log_start_offset": state.log_start_offset, "log_end_offset": state.log_end_offset}
        core.emit("open", duration_ms=metrics.load_s * 1000, recovered=metrics.recovered, **ends)

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
        leader_epoch: int | None = None,
        high_watermark_follows_end: bool = True,
        producer_expiration_ms: int = EXPIRATION_MS,
        verify_transactions: bool = False,
        progress: Progress | None = None,
        on_disk_failure: Report | None = None,
        recovery_threads: int | None = None,
        keeps_begun_epochs: bool = False,
        refuses_loss: bool = False,
    ) -> UnifiedLog:
        """Open the log of an existing directory; create the first segment if it has none.

        If `had_clean_shutdown` is false, the log is recovered from `recovery_point` on (None: from its beginning),
        in `recovery_threads` threads (None: one per core), which call `progress` one at a time. If `scheduler` is
        None, rolled segments are synced by the next `flush`, and files are deleted at once. Appends that specify no
        leader epoch get `leader_epoch` (None: the log's latest one, or 0). If
        `high_watermark_follows_end` is false, the high watermark moves only by explicit calls.
        `producer_expiration_ms` is the time after which idle producers expire. With `verify_transactions` a
        transaction begins only with the guard of a coordinator's answer (LOG-64). A leader epoch that begins at the
        log's end is dropped (LOAD-14) unless `keeps_begun_epochs` is true: it shows that a replica has agreed with a
        leader without appends. `on_disk_failure` is called with errors caused by the disk. With `refuses_loss`, an
        opening that would remove sound batches raises CorruptRecord and cuts nothing; otherwise the batches are kept
        (docs/recovery.md). StorageError, NotAPartition; CorruptCheckpoint for the epochs, CorruptRecord for an end
        that no crash leaves.
        """
        folder = os.fspath(directory)
        found = list_directory(folder, fs)
        has_epochs = LEADER_EPOCH_CHECKPOINT in found.names
        epochs = LeaderEpochCache.read(folder, fs=fs)  # a missing file is created last: an empty one would be believed
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
            if not has_epochs:
                rebuild_epochs(epochs, loaded.segments, loaded.log_start_offset)
            if leader_epoch is None:
                leader_epoch = max(epochs.latest_epoch, 0)
            core = LogCore(
                folder, config, _first_state(loaded, epochs.latest_epoch, high_watermark_follows_end), epochs,
                producers, fs=fs, clock=clock, scheduler=scheduler, leader_epoch=leader_epoch,
                high_watermark_follows_end=high_watermark_follows_end, on_disk_failure=on_disk_failure,
            )  # fmt: skip
            core.metrics.load_s = perf_counter() - began
            core.metrics.recovered = not had_clean_shutdown
            return cls(core, loaded)
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
        """Create the log of a newly created directory and return it; it begins at offset 0 with the given epoch.

        Nothing is synced before the first flush. The first append creates the indexes, and no file is kept open
        until then. Parameters as for `open`. A StorageError leaves files behind.
        """
        began = perf_counter()
        epochs = LeaderEpochCache.begin(directory, epoch, fs=fs)
        loaded = begin_log(directory, config, fs=fs, clock=clock)
        core = LogCore(
            directory, config, _first_state(loaded, epoch, True), epochs,
            ProducerStateManager(directory, fs=fs, expiration_ms=producer_expiration_ms, names=()),
            fs=fs, clock=clock, scheduler=scheduler, leader_epoch=0, high_watermark_follows_end=True,
            on_disk_failure=on_disk_failure,
        )  # fmt: skip
        core.metrics.load_s = perf_counter() - began
        return cls(core, loaded)

    # Properties

    @property
    def path(self) -> str:
        """The partition directory."""
        return self._core.path

    @property
    def name(self) -> str:
        """Name of the partition directory."""
        return self._core.name

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return self._core.topic_partition

    @property
    def fs(self) -> FileSystem:
        """The file layer."""
        return self._core.fs

    @property
    def closed(self) -> bool:
        """True after `close` or `abandon`."""
        return self._core.health.closed

    @property
    def failed(self) -> bool:
        """True if the log rejects writes because of an earlier failure."""
        return self._core.health.cause is not None and not self._core.health.closed

    @property
    def is_stopped(self) -> bool:
        """True if its owner stopped the writes: the log was deleted, or is moving to another directory."""
        return self._core.health.is_stopped

    @property
    def metrics(self) -> LogCounters:
        """Counters of this log."""
        return self._core.metrics

    @property
    def state(self) -> State:
        """Immutable snapshot of all offsets and segments."""
        return self._core.state

    @property
    def fields(self) -> LogCore:
        """State and health, with the fields that compiled code reads; for reading only."""
        return self._core

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self._core.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record to be appended."""
        return self._core.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offset below which every record is known to be safe."""
        return self._core.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which every transaction is decided; at most the high watermark (LOG-30, LOG-32)."""
        return self._core.state.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """Offset below which everything is on disk."""
        return self._core.state.recovery_point

    @property
    def segments(self) -> LogSegments[LogSegment]:
        """Segments as an immutable map by base offset, oldest first."""
        segments: LogSegments[LogSegment] = self._core.state.segments
        return segments

    @property
    def active_segment(self) -> LogSegment:
        """The segment that receives appends."""
        return self._core.active

    @property
    def data_end_offset(self) -> int:
        """Log end that the next opening will find: after the last batch, or the base offset of an empty segment.

        It is below `log_end_offset` after a truncation inside a batch, which removes the whole batch.
        """
        return self._core.active.end_offset

    @property
    def size(self) -> int:
        """Bytes of record data in all segments."""
        size: int = self._core.state.segments.size_in_bytes
        return size

    @property
    def truncation_count(self) -> int:
        """Number that changes when a truncation of the log's end begins and when it ends."""
        return self._core.truncation_count

    @property
    def tail_damage(self) -> MisplacedBatch | None:
        """The last batch, if recovery accepted it although it begins below the end of the previous batch."""
        return self._reader.tail_damage

    @property
    def has_damaged_transactions(self) -> bool:
        """False if every file read so far for the transactions was sound; no transaction is undecided then."""
        return self._reader.has_damaged_transactions

    @property
    def validator_metrics(self) -> ValidatorMetrics:
        """Counts of rejected records, by reason."""
        return self._appender.validator_metrics

    @property
    def last_flush_time(self) -> int:
        """Time of the last flush, ms since 1970."""
        return self._flusher.last_flush_time

    @property
    def last_flush_monotonic_ms(self) -> int:
        """Time of the last flush by the monotonic clock, in ms."""
        return self._flusher.last_flush_monotonic_ms

    @property
    def high_watermark_follows_end(self) -> bool:
        """True if each append moves the high watermark to the log end, as in a log without other replicas."""
        return self._core.follows

    @high_watermark_follows_end.setter
    def high_watermark_follows_end(self, follows: bool) -> None:
        with self._core.lock:
            self._core.follows = follows

    @property
    def leader_epoch(self) -> int:
        """Leader epoch for appends that specify none."""
        return self._core.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, leader_epoch: int) -> None:
        self._core.leader_epoch = leader_epoch

    @property
    def producers(self) -> tuple[ProducerState, ...]:
        """States of the known producers, ordered by producer id."""
        with self._core.lock:
            if self._core.staged is not None:
                self._core.apply_staged_locked()
            return tuple(sorted(self._core.producers.producers, key=lambda state: state.producer_id))

    def expire_producers(self, now_ms: int, expiration_ms: int | None = None) -> int:
        """Remove the producers that are expired at `now_ms` and return their number (PSM-15).

        `expiration_ms` sets the idle time after which producers expire from now on; None keeps it.
        """
        with self._core.lock:
            self._core.ready_locked()
            producers = self._core.producers
            before = len(producers.producers)
            if expiration_ms is not None:
                producers.expiration_ms = expiration_ms
            producers.remove_expired(now_ms)
            return before - len(producers.producers)

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset) of each leader epoch, oldest first."""
        return tuple((entry.epoch, entry.start_offset) for entry in self._core.epochs.entries)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of the newest leader epoch up to `epoch`; None if none is known (EPOCH-3)."""
        found = self._core.epochs.end_offset_for(epoch, self._core.state.log_end_offset)
        return None if found.start_offset < 0 else (found.epoch, found.start_offset)

    def append_waits(self, leader_epoch: int) -> bool:
        """Return True if an append of this epoch would wait: for the log's lock, or for the sync of a new epoch."""
        core = self._core
        return core.lock.locked() or leader_epoch > core.state.leader_epoch

    def maybe_start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """Return the guard to pass with a transaction's first append, after its coordinator has agreed (PSM-27).

        Return None if the transaction is already open; no verification is needed then.
        """
        with self._core.lock:
            self._core.ready_locked()
            return self._core.producers.maybe_start_verification(
                producer_id, sequence, producer_epoch, supports_epoch_bump, self._core.milliseconds()
            )

    @property
    def verifies_transactions(self) -> bool:
        """True if a transaction begins only with the guard of a coordinator's answer (LOG-64)."""
        return self._core.producers.producers.must_verify

    @verifies_transactions.setter
    def verifies_transactions(self, verifies: bool) -> None:
        with self._core.lock:
            self._core.producers.producers.must_verify = verifies

    @property
    def config(self) -> LogConfig:
        """Settings of the log; a new value applies from the next decision on (LOG-76)."""
        return self._core.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._core.lock:
            self._core.set_config_locked(config)

    def __repr__(self) -> str:
        state = self._core.state
        return (
            f"<UnifiedLog {self.name} [{state.log_start_offset}, {state.log_end_offset}) hw {state.high_watermark} "
            f"{len(state.segments)} segments{' closed' if self.closed else ''}>"
        )


def _first_state(loaded: Loaded, latest_epoch: int, high_watermark_follows_end: bool) -> State:
    """Return the state of a newly loaded log; its high watermark is the log end, or else the log start (LOAD-33)."""
    return started(
        loaded.segments,
        log_start_offset=loaded.log_start_offset,
        log_end_offset=loaded.next_offset,
        recovery_point=loaded.recovery_point,
        high_watermark=loaded.next_offset if high_watermark_follows_end else None,
        leader_epoch=latest_epoch,
    )
