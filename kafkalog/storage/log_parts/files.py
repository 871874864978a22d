"""Renaming a log's directory and closing its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog.errors import StorageError
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.reader import LogReader
from kafkalog.storage.log_parts.roller import LogRoller
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.os_errors import os_errors


class LogFiles:
    """Renames and closes a log."""

    __slots__ = ("_core", "_flusher", "_reader", "_roller")

    def __init__(self, core: LogCore, flusher: LogFlusher, roller: LogRoller, reader: LogReader) -> None:
        self._core = core
        self._flusher = flusher
        self._roller = roller
        self._reader = reader

    def rename_dir(self, name: str, *, sync: bool = True) -> None:
        """Rename the partition directory and set the new path of all its files (LOG-72).

        After a StorageError it has its old name, or, if the entry could not be synced, the new one until a power
        loss. Without `sync` the caller syncs the entry.
        """
        core = self._core
        parent = os.path.dirname(core.path)
        target = os.path.join(parent, name)
        with core.lock, core.cutting_locked():  # readers and flushes that miss a file retry
            for segment in core.state.segments:
                segment.will_be_in(target)
            try:
                core.fs.rename(core.path, target)
            except BaseException as error:
                self._relocate_locked(core.path)
                if isinstance(error, OSError):
                    raise StorageError.from_os(error, f"rename to {name}", path=core.path) from error
                raise
            self._relocate_locked(target)
        with os_errors("sync the data directory", parent):
            if sync:
                core.fs.fsync_dir(parent)

    def _relocate_locked(self, directory: str) -> None:
        core = self._core
        core.path = core.health.path = directory
        core.name = core.health.name = os.path.basename(directory)
        for segment in core.state.segments:
            segment.relocate(directory)
        core.producers.snapshots.directory = directory
        core.epochs.relocate(directory)
        self._reader.transactions.relocate(directory)

    @contextmanager
    def finished_files(self) -> Iterator[None]:
        """Keep the files as `close` leaves them for the block, but open; appends wait. StorageError."""
        core = self._core
        with core.lock:
            core.ready_locked()
            self._roller.remove_leftovers()
            core.producers.map_end_offset = core.state.log_end_offset
            core.producers.take_snapshot()
            core.epochs.write_if_changed()  # an append writes them after it has released the lock
            with core.active.finished_files():
                yield

    def close(self) -> None:
        """Flush, add the final time entry, trim and close all files. A second call does nothing.

        Every file is closed even if one fails; the first error is then raised, and the shutdown counts as unclean.
        """
        core = self._core
        with deferred_interrupts():
            if core.health.closed:
                return
            failure: BaseException | None = None
            with core.lock:
                try:
                    core.ready_locked()
                    self._roller.remove_leftovers()
                    core.active.add_final_time_entry()  # before the flush, which syncs it
                    core.active.make_indexes()
                    core.active.records.trim()  # before the flush: the recovery point will be behind it
                except BaseException as error:
                    failure = error
                core.health.close()  # before the flush: later appends would not be on disk
            try:
                if failure is None:
                    self._flusher.flush_files(is_closing=True)
                    core.producers.map_end_offset = core.state.log_end_offset
                    core.producers.take_snapshot()
            except BaseException as error:
                failure = error
            with core.lock:
                for segment in core.state.segments:
                    try:
                        segment.close() if failure is None else segment.close_handlers()
                    except BaseException as error:
                        failure = failure or error
            core.emit("close", log_end_offset=core.state.log_end_offset)
            if failure is not None:
                raise failure

    def close_handlers(self) -> None:
        """Close all files without writing anything, as a crash would leave them. The log is closed afterwards."""
        core = self._core
        with core.lock:
            core.health.close()
            for segment in core.state.segments:
                segment.close_handlers()

    def abandon(self, cause: BaseException) -> None:
        """Close all files as `close_handlers` does; every later use raises StorageError with this cause."""
        core = self._core
        with core.lock:
            core.health.abandon(cause)
            for segment in core.state.segments:
                segment.close_handlers()
