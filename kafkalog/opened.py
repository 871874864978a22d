"""A partition that is open for writing, until it is closed, dropped or forked away."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from kafkalog._core.scan import scan
from kafkalog.config_keys import MAX_LONG
from kafkalog.durability import BackgroundFlush, GroupSync, Sync
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
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import LogAppendInfo, TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.guards import finish
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from kafkalog._core.store import Block
    from kafkalog.accumulator import Accumulator
    from kafkalog.cleaner.cleaner import LogCleaner
    from kafkalog.cleaner.types import CleanResult
    from kafkalog.compacting import Progress


class OpenedLog:
    """A partition open for writing, with its data directory's lock.

    `append_as_leader`, `append_as_follower` and `append_batches` are the log's own methods, until `close` or
    a fork puts functions in their place that refuse: so an append pays for no check. `after_append` is None,
    or what `sync` or `flush.ms` asks for after each append.

    Threads: all attributes may be read, and `close` called, from any thread.
    """

    belongs_to_store: ClassVar[bool] = False
    """True where the log outlives the object that shows it."""

    __slots__ = (
        "__weakref__", "_fs", "after_append", "append_as_follower", "append_as_leader", "append_batches",
        "being_compacted", "clock", "closed", "flusher", "group", "log",
        "log_dir", "milliseconds", "path", "refuse", "sync", "topic_partition", "writers",
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
    ) -> None:
        self.log = log
        self.log_dir = log_dir
        self.path = path
        self.topic_partition = topic_partition
        self.clock = clock
        self._fs = fs
        self.milliseconds: Callable[[], int] = clock.milliseconds
        self.closed = False
        self.being_compacted = threading.RLock()  # held by a clean; `close` waits for it
        self.writers: set[Accumulator] = set()
        self.append_as_leader: Callable[..., LogAppendInfo] = log.append_as_leader
        self.append_as_follower: Callable[..., LogAppendInfo] = log.append_as_follower
        self.append_batches: Callable[..., LogAppendInfo] = log.append_batches
        self.refuse: Callable[..., NoReturn] = _not_closed
        self.after_append: Callable[[], object] | None = None
        self.sync = sync
        self.group = GroupSync(log.commit)
        self.flusher: BackgroundFlush | None = None
        if sync is True:
            self.after_append = self.group.sync
        else:
            delay_ms = self._flush_delay_ms(sync)
            if delay_ms < MAX_LONG:
                self.flusher = BackgroundFlush(log.flush, delay_ms, str(topic_partition))
                self.after_append = self.flusher.touch
        _opened.add(self)

    def _flush_delay_ms(self, sync: int | float) -> int | float:
        """The longest that an append may wait for the disk, by `sync` (False: does not say) and `flush.ms`."""
        return min(self.log.config.flush_ms, MAX_LONG if sync is False else sync)

    def pack(self, batches: bytearray, compression: Compression, *, check_records: bool = False) -> bytearray | Block:
        """What goes into the log for uncompressed batches, back to back: compressed where `compression` says so.

        The records of a compacted topic need keys; with `check_records` their times are looked at as well. Errors as
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
        """Appends what `pack` gave, each batch as an append of its own, and syncs as asked."""
        info = self.append_batches(batches, check_records=False)
        if self.after_append is not None:
            self.after_append()
        return info

    def compact(
        self, from_start: bool, roll: bool, dry_run: bool, offset_map_bytes: int, progress: Progress | None
    ) -> CleanResult:
        """One clean of the log, with the data directory's cleaner checkpoint; as `CompactMixin.compact` says."""
        from kafkalog.compacting import compact

        return compact(self, from_start, roll, dry_run, offset_map_bytes, progress)

    def record_log_start(self) -> None:
        """Puts the log start on disk, in the data directory's checkpoint of log starts."""
        record_log_start(os.path.dirname(self.path), self.log, fs=self._fs)

    def left_alone(self) -> AbstractContextManager[None]:
        """A block in which no cleaner in the background touches the log."""
        return nullcontext()

    def announce_cut(self, offset: int) -> None:
        """Puts on disk that nothing from `offset` on was cleaned, before a cut: a crash in between leaves that."""
        lower_cleaner_offsets(os.path.dirname(self.path), {self.topic_partition: max(offset, 0)}, fs=self._fs)

    def record_cut(self) -> None:
        """Puts on disk where a log that was cut starts, is on disk and is clean to: what comes now is neither yet."""
        self.record_log_start()
        point = min(self.log.recovery_point, self.log.data_end_offset)
        directory, end = os.path.dirname(self.path), self.log.data_end_offset
        lower_recovery_point(directory, self.topic_partition, point, fs=self._fs)
        lower_cleaner_offsets(directory, {self.topic_partition: end}, fs=self._fs)

    def keep(self) -> None:
        """Stay until closed, for an owner who closes it when dropped.

        Else both were one piece of garbage where the owner is in a cycle, and the files might go before the log.
        """
        _kept.add(self)

    def close(self) -> None:
        """Writes and syncs everything, closes the files and gives the lock back; harmless the second time.

        Writers that are still open are closed first. Only a close without error lets the data directory
        have its clean-shutdown marker back. A Ctrl-C waits until the close is complete.
        """
        with deferred_interrupts():
            if self.closed:
                return
            self._close()

    def __del__(self) -> None:
        # reached unclosed only where a Ctrl-C came between opening and handing over: a Log closes its own
        if getattr(self, "closed", True):
            return
        try:
            finish(self.close)
        except KeyboardInterrupt:
            finish(self.close)
            raise

    def _close(self) -> None:
        clean = False
        try:
            self._end_writing()
            with self.being_compacted:  # its files are in the way of whoever opens the log next
                self.log.close()
            end = self.log.data_end_offset
            point, mark = min(self.log.recovery_point, end), min(self.log.high_watermark, end)
            record_close(os.path.dirname(self.path), self.topic_partition, point, mark, fs=self._fs)
            self.record_log_start()
            clean = True
        finally:
            self.closed = True
            _opened.discard(self)
            _kept.discard(self)
            try:
                self.log_dir.partition_closed(os.path.basename(self.path), clean)
            finally:
                self.log_dir.release()

    def _end_writing(self) -> None:
        """Writes what writers still hold, then refuses every append."""
        try:
            for writer in tuple(self.writers):
                writer.close()
        finally:
            if self.flusher is not None:
                self.flusher.close()
            self.closed = True
            self._refuse(lambda: LogClosed(f"log {self.topic_partition} is closed"))

    def _refuse(self, error: Callable[[], Exception]) -> None:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise error()

        self.append_as_leader = self.append_as_follower = self.append_batches = self.refuse = refuse
        self.after_append = None

    def disown(self) -> None:
        """Makes every write fail: this is a forked child, and the log belongs to its parent."""
        for writer in tuple(self.writers):
            writer.disown()
        self.closed = True
        _opened.discard(self)
        _kept.discard(self)
        self._refuse(
            lambda: IllegalState(
                f"log {self.topic_partition} belongs to the process that opened it",
                hint="open the log in the child process instead of before the fork",
            )
        )


class StoreLog(OpenedLog):
    """A partition of a store of several directories: the store flushes it by its job, and closes it.

    `close` does nothing, so that `with store["orders", 0] as log:` leaves the store's log open. `cleaner` is the
    store's.
    """

    __slots__ = ("cleaner",)
    belongs_to_store = True

    def __init__(self, *args: Any, cleaner: LogCleaner, **more: Any) -> None:
        self.cleaner = cleaner
        super().__init__(*args, **more)

    def left_alone(self) -> AbstractContextManager[None]:
        """A block in which the store's cleaner does not touch the log."""
        return self.cleaner.manager.left_alone(self.topic_partition)

    def _flush_delay_ms(self, sync: int | float) -> int | float:
        return MAX_LONG if sync is False else sync

    def close(self) -> None:
        """Nothing: the store closes its logs."""

    def compact(
        self, from_start: bool, roll: bool, dry_run: bool, offset_map_bytes: int, progress: Progress | None
    ) -> CleanResult:
        """One clean of the log by the store's cleaner, once that lets go of it; its rate counts, and its checkpoint."""
        if roll and self.log.active_segment.size:
            self.log.roll()
        return self.cleaner.clean(
            self.log, from_start=from_start, dry_run=dry_run, map_bytes=offset_map_bytes, progress=progress
        ).result

    def retire(self) -> None:
        """Writes what writers still hold, then refuses every append: the store closes the log, or has lost it."""
        with deferred_interrupts():
            if not self.closed:
                try:
                    self._end_writing()
                finally:
                    _opened.discard(self)


def _not_closed() -> NoReturn:
    raise IllegalState("the log is open")


def is_open(path: str) -> bool:
    """Whether this process has the partition at the real path `path` open for writing."""
    return any(opened.path == path and not opened.closed for opened in tuple(_opened))


_opened: weakref.WeakSet[OpenedLog] = weakref.WeakSet()
_kept: set[OpenedLog] = set()


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
