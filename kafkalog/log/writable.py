"""A partition open for writing, until it is closed, garbage-collected or forked."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from kafkalog._core.batch.scan import scan
from kafkalog.config.keys import MAX_LONG
from kafkalog.errors import IllegalState, KafkalogError, LogClosed
from kafkalog.manager.checkpoints import (
    lower_cleaner_offsets,
    lower_recovery_point,
    record_close,
    record_log_start,
)
from kafkalog.manager.log_dir import LogDir
from kafkalog.records.packing import Compression, pack
from kafkalog.records.validate import ValidationRules, check_batches
from kafkalog.storage.group_commit import BackgroundFlush, GroupSync, Sync
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import LogAppendInfo, TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.guards import run_finalizer
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from kafkalog._core.bytes.store import Block
    from kafkalog.cleaner.cleaner import LogCleaner
    from kafkalog.cleaner.types import CleanResult
    from kafkalog.log.accumulator import Accumulator
    from kafkalog.log.background import LogTasks
    from kafkalog.log.compact import CompactOptions
    from kafkalog.manager.log_manager import LogManager


class WritableLog:
    """A partition open for writing, with its data directory's lock.

    `append_ready`, `append_as_leader`, `append_as_follower` and `append_batches` are the log's methods; `close` or a
    fork replaces them with functions that raise, so an append needs no check. `after_append` is None, or the call that
    `sync` or `flush.ms` requires after each append; `commit` is None, or makes an append and syncs it.

    Threads: any thread may read the attributes and call `close`.
    """

    belongs_to_store: ClassVar[bool] = False
    """True if a store closes the log, not its `Log`."""

    __slots__ = (
        "__weakref__", "_fs", "after_append", "append_as_follower", "append_as_leader", "append_batches",
        "append_ready",
        "being_compacted", "clock", "closed", "commit", "flusher", "group", "log",
        "log_dir", "milliseconds", "path", "refuse", "sync", "tasks", "topic_partition", "writers",
    )  # fmt: skip

    def __init__(
        self,
        log: UnifiedLog,
        log_dir: LogDir,
        path: str,
        topic_partition: TopicPartition,
        *,
        sync: Sync,
        fs: FileSystem,
        clock: Clock,
        tasks: LogTasks | None = None,
    ) -> None:
        self.log = log
        self.log_dir = log_dir
        self.path = path
        self.topic_partition = topic_partition
        self.clock = clock
        self.tasks = tasks
        self._fs = fs
        self.milliseconds: Callable[[], int] = clock.milliseconds
        self.closed = False
        self.being_compacted = threading.RLock()  # held by a clean; `close` waits for it
        self.writers: set[Accumulator] = set()
        self.append_as_leader: Callable[..., LogAppendInfo] = log.append_as_leader
        self.append_as_follower: Callable[..., LogAppendInfo] = log.append_as_follower
        self.append_batches: Callable[..., LogAppendInfo] = log.append_batches
        self.append_ready: Callable[..., LogAppendInfo | None] = log.append_ready
        self.refuse: Callable[..., NoReturn] = _not_closed
        self.after_append: Callable[[], object] | None = None
        self.sync = sync
        self.group = GroupSync(log.commit)
        self.flusher: BackgroundFlush | None = None
        self.commit: Callable[[Callable[[], LogAppendInfo | None]], LogAppendInfo | None] | None = None
        if sync is True:
            self.after_append = self.group.sync
            self.commit = self.group.commit
        else:
            delay_ms = self._flush_delay_ms(sync)
            if delay_ms < MAX_LONG:
                self.flusher = BackgroundFlush(log.flush, delay_ms, str(topic_partition))
                self.after_append = self.flusher.touch
        _opened.add(self)

    def _flush_delay_ms(self, sync: int | float) -> int | float:
        """Return the longest delay of a sync after an append, by `sync` (False: no limit) and `flush.ms`."""
        return min(self.log.config.flush_ms, MAX_LONG if sync is False else sync)

    def pack(self, batches: bytearray, compression: Compression, *, check_records: bool = False) -> bytearray | Block:
        """Compress uncompressed `batches`, back to back, by `compression` and return the bytes to append.

        Checks that records of a compacted topic have keys, and with `check_records` their timestamps as well. Errors as
        for an append: InvalidRecord, InvalidTimestamp. Threads: any.
        """
        config = self.log.config
        if check_records or config.compact:
            try:
                check_batches(batches, scan(batches), ValidationRules.of(config), self.milliseconds())
            except KafkalogError as error:
                error.path = error.path or self.path
                raise
        return pack(batches, compression, limit_bytes=min(config.max_message_bytes, config.segment_size))

    def append_packed(self, batches: bytearray | Block) -> LogAppendInfo:
        """Append the result of `pack`, each batch as a separate append, and sync as `sync` requires."""
        after = self.after_append  # before the append: a concurrent `close` removes it
        info = self.append_batches(batches, check_records=False)
        if after is not None:
            after()
        return info

    def compact(self, options: CompactOptions) -> CleanResult:
        """Clean the log once, with the data directory's cleaner checkpoint; see `Log.compact`."""
        from kafkalog.log.compact import compact_writable

        return compact_writable(self, options)

    def record_log_start(self) -> None:
        """Write the log start offset to the data directory's checkpoint of log starts."""
        record_log_start(os.path.dirname(self.path), self.log, fs=self._fs)

    def cleaning_paused(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps a background cleaner off the log."""
        return nullcontext()

    def announce_cut(self, offset: int) -> None:
        """Lower the cleaner checkpoint to `offset` on disk before a truncation, so that a crash leaves it valid."""
        lower_cleaner_offsets(os.path.dirname(self.path), {self.topic_partition: max(offset, 0)}, fs=self._fs)

    def record_cut(self) -> None:
        """Write log start, recovery point and cleaner offset of a truncated log; new records count as dirty."""
        self.record_log_start()
        directory, end = os.path.dirname(self.path), self.log.data_end_offset
        lower_recovery_point(directory, self.topic_partition, min(self.log.recovery_point, end), fs=self._fs)
        lower_cleaner_offsets(directory, {self.topic_partition: end}, fs=self._fs)

    def delete_now(self) -> bool:
        """Delete files that wait for file.delete.delay.ms, to free their space; return False if there were none."""
        return self.tasks is not None and self.tasks.delete_now()

    def keep_alive(self) -> None:
        """Keep a reference until `close`, for an owner that closes the log in its finalizer.

        Otherwise, with the owner in a reference cycle, the files might be finalized before the log.
        """
        _kept_alive.add(self)

    def close(self) -> None:
        """Write and sync everything, close the files and release the lock. A second call does nothing.

        Open writers are closed first. Only a close without an error restores the data directory's clean-shutdown
        marker. A Ctrl-C waits until the close is complete.
        """
        with deferred_interrupts():
            if self.closed:
                return
            self._close()

    def __del__(self) -> None:
        # unclosed only if a Ctrl-C came between opening and the creation of the Log, which closes it
        if getattr(self, "closed", True):
            return
        try:
            run_finalizer(self.close)
        except KeyboardInterrupt:
            run_finalizer(self.close)
            raise

    def _close(self) -> None:
        clean = False
        try:
            self._end_writing()
            with self.being_compacted:  # a clean's files would disturb the next opening
                self.log.close()
            end = self.log.data_end_offset
            point, mark = min(self.log.recovery_point, end), min(self.log.high_watermark, end)
            record_close(os.path.dirname(self.path), self.topic_partition, point, mark, fs=self._fs)
            self.record_log_start()
            clean = True
        finally:
            self.closed = True
            _opened.discard(self)
            _kept_alive.discard(self)
            try:
                self.log_dir.partition_closed(os.path.basename(self.path), clean)
            finally:
                self.log_dir.release()

    def _end_writing(self) -> None:
        """Write the pending records of writers, then make every append fail."""
        try:
            for writer in list(self.writers):  # one step of the interpreter, also without the GIL
                writer.close()
        finally:
            if self.flusher is not None:
                self.flusher.close()
            if self.tasks is not None:
                self.tasks.shutdown()
            self.closed = True
            self._refuse(lambda: LogClosed(f"log {self.topic_partition} is closed"))

    def _refuse(self, error: Callable[[], Exception]) -> None:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise error()

        self.append_as_leader = self.append_as_follower = self.append_batches = self.refuse = refuse
        self.append_ready = refuse
        self.after_append = self.commit = None

    def disown(self) -> None:
        """Make every write fail: in a forked child, whose parent owns the log."""
        for writer in list(self.writers):
            writer.disown()
        self.closed = True
        _opened.discard(self)
        _kept_alive.discard(self)
        self._refuse(
            lambda: IllegalState(
                f"log {self.topic_partition} belongs to the process that opened it",
                hint="open the log in the child process instead of before the fork",
            )
        )


class StoreLog(WritableLog):
    """A partition of a store, which flushes it in a job and closes it.

    `close` does nothing, so that `with store["orders", 0] as log:` leaves the store's log open. `cleaner` is the
    store's cleaner, `manager` has the store's logs.
    """

    __slots__ = ("cleaner", "manager")
    belongs_to_store = True

    def __init__(self, *args: Any, cleaner: LogCleaner, manager: LogManager, **more: Any) -> None:
        self.cleaner = cleaner
        self.manager = manager
        super().__init__(*args, **more)

    def cleaning_paused(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the store's cleaner off the log."""
        return self.cleaner.manager.cleaning_paused(self.topic_partition)

    def _flush_delay_ms(self, sync: int | float) -> int | float:
        return MAX_LONG if sync is False else sync

    def close(self) -> None:
        """Do nothing: the store closes its logs."""

    def compact(self, options: CompactOptions) -> CleanResult:
        """Clean the log once with the store's cleaner, its rate limit and checkpoint, after a clean in progress."""
        if options.roll and self.log.active_segment.size:
            self.log.roll()
        return self.cleaner.clean(
            self.log, from_start=options.from_start, dry_run=options.dry_run, map_bytes=options.offset_map_bytes,
            progress=options.progress,
        ).result  # fmt: skip

    def retire(self) -> None:
        """Write the pending records of writers, then make every append fail: the store closes or has lost the log."""
        with deferred_interrupts():
            if not self.closed:
                try:
                    self._end_writing()
                finally:
                    _opened.discard(self)


def _not_closed() -> NoReturn:
    raise IllegalState("the log is open")


_opened: weakref.WeakSet[WritableLog] = weakref.WeakSet()
_kept_alive: set[WritableLog] = set()


def _close_at_exit() -> None:
    for opened in [one for one in tuple(_opened) if not one.belongs_to_store]:
        warnings.warn(
            f"log {opened.topic_partition} was still open when the interpreter ended", ResourceWarning, stacklevel=2
        )
        opened.close()


def _disown_in_child() -> None:
    for opened in tuple(_opened):
        opened.disown()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)
