"""Named cursors: positions of readers in a log, stored between runs."""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.record import Record
from kafkalog.cursors.place import (
    Options,
    checksum_of,
    difference,
    lag_of,
    loss_reason,
    out_of_log,
    record_checksum,
    resolve_position,
)
from kafkalog.cursors.store import MAX_OFFSET, CursorFile, CursorState, CursorStore
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError, OffsetOutOfRange
from kafkalog.reading.chunks import check_end, check_tail, records
from kafkalog.reading.source import end_of, isolation_of, refresh
from kafkalog.reading.tail import Waiting, check_timeout
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from kafkalog.util.weak_registry import WeakRegistry

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.readonly.watch import ViewState
    from kafkalog.types import TopicPartition

__all__ = ["Cursor", "CursorInfo", "Options", "cursors_of", "open_cursor"]

_LOG: Final = logging.getLogger(__name__)
POLL_RECORDS: Final = 500
_LOST_HINT: Final = (
    "open the cursor with reset='earliest' or 'latest', or move it: `kafkalog offsets reset --execute`"
)


CURSORS: Final[WeakRegistry[Cursor]] = WeakRegistry()
"""Cursors of this process."""


class Cursor:
    """A reader's named position in a log; created by `Log.cursor`.

    A record counts as processed when the next one is requested, at `commit()`, and at the end of a `with` block without
    an error. The processed position is committed every `auto_commit_ms` while reading, and at the end. So every record
    is delivered at least once: after a crash, records since the last commit are delivered again.

    The name is locked until `close()`. Threads: one at a time. A forked child cannot commit.

    >>> with log.cursor("billing") as cursor:
    ...     [record.value for record in cursor], cursor.lag, cursor.committed
    ([b'first', b'second'], 0, 0)
    >>> log.cursors()
    (CursorInfo(name='billing', position=2, lag=0, committed_ms=...),)
    """

    def __init__(self, source: LogSource, file: CursorFile, options: Options, owner: object = None) -> None:
        self._source = source
        self._owner = owner  # a reference that keeps the log open while the cursor exists
        self._file = file
        self._options = options
        self._isolation = isolation_of(options.isolation)
        self._closed = True  # until opening is complete: a cursor that fails to open gives no warning
        self._lock = threading.Lock()
        self._moves = 0
        self._failed_at = -1
        self._last: tuple[int, int] | None = None  # the offset after the last record that was read, and its checksum
        self.name = file.name
        self.lost: str | None = None
        """Reason for the last reset of the position; None if there was none."""
        refresh(source)
        self._accept()
        stored = file.read()
        self._committed = -1 if stored is None else stored.position
        self._next = self._processed_to = self._initial_position(stored)
        if stored is None or (self._next != stored.position and options.auto_commit_ms is not None):
            self._write(self._next)
        elif self._next == stored.position and stored.record_crc is not None:
            self._last = stored.position, stored.record_crc
        self._schedule_commit()
        self._closed = False
        CURSORS.add(self)

    # Position

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it reads."""
        return self._source.topic_partition

    @property
    def position(self) -> int:
        """Offset from which the next record is read."""
        return self._next

    @property
    def engine(self) -> LogSource:
        """The log that it reads: an open log or a view."""
        return self._source

    @property
    def committed(self) -> int:
        """The committed position: the next run continues there."""
        return self._committed

    @property
    def lag(self) -> int:
        """Number of offsets between the position and the current end of reading."""
        refresh(self._source)
        return max(0, end_of(self._source, self._isolation) - self._next)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def moves(self) -> int:
        """A counter of position changes other than by reading."""
        return self._moves

    # Reading

    def __iter__(self) -> Iterator[Record]:
        """Yield the records from the position to the current end; errors as for `Log.records`."""
        return self._run(self._end(), 0)

    def tail(self, timeout: float | None = None) -> Iterator[Record]:
        """Yield records from the position and wait for new ones; end after `timeout` seconds without any.

        >>> with log.cursor("billing") as cursor:
        ...     [record.value for record in cursor.tail(timeout=0.01)]
        [b'first', b'second']
        """
        check_timeout(timeout)
        self._check_open()
        return self._run(None, timeout)

    def poll(self, max_records: int = POLL_RECORDS, timeout: float | None = 0) -> list[Record]:
        """Return at most `max_records` records; wait up to `timeout` seconds (None: forever) for the first one.

        Records of the previous call count as processed. Errors as for `Log.records`; records before damage come first.

        >>> with log.cursor("billing") as cursor:
        ...     [record.value for record in cursor.poll(1)], cursor.position, cursor.lag
        ([b'first'], 1, 1)
        """
        check_timeout(timeout)
        waiting = Waiting(timeout)
        while True:
            before = self._next
            found, self._next = self.fetch(max_records)
            if found:
                return found
            if self._next == before and not waiting.wait():
                return []

    def fetch(self, max_records: int) -> tuple[list[Record], int]:
        """Return the records of a `poll` without waiting, and the position after them; `position` does not change.

        All records returned before count as processed.

        >>> with log.cursor("billing") as cursor:
        ...     found, position = cursor.fetch(10)
        ...     len(found), position, cursor.position
        (2, 2, 0)
        """
        if operator.index(max_records) < 1:
            raise IllegalArgument(f"max_records is {max_records}", hint="give at least 1")
        max_records = min(max_records, MAX_OFFSET)
        self.processed()
        end = self._end()
        found: list[Record] = []
        if self._next >= end:
            check_end(self._source, end, self._isolation == "committed", None)
            return found, self._next
        try:
            found.extend(islice(self._records(end), max_records))
        except KafkalogError as error:
            if not found:
                self._continue_after(error)
                return found, self._next
            end = found[-1].offset + 1
        if found:
            self._note(found[-1])
        return found, found[-1].offset + 1 if len(found) == max_records else end

    def _records(self, end: int) -> Iterator[Record]:
        return records(self._source, self._next, end, committed=self._isolation == "committed")

    def _run(self, stop: int | None, timeout: float | None) -> Iterator[Record]:
        waiting = Waiting(timeout)
        while True:
            end = self._end()
            end = end if stop is None else min(end, stop)
            if self._next < end:
                yield from self._until(end)
                waiting.restart()
                continue
            check_end(self._source, end, self._isolation == "committed", None)
            if stop is not None or not waiting.wait():
                self.processed()
                return

    def _until(self, end: int) -> Iterator[Record]:
        """Yield the records below `end`; stop early if the position is moved meanwhile."""
        moves, record = self._moves, None
        try:
            for record in self._records(end):
                self._next = record.offset + 1
                yield record
                if self._moves != moves or self._closed:
                    return
                self._processed_to = self._next
                if time.monotonic() >= self._due:
                    self.processed()
        except OffsetOutOfRange as error:
            self._continue_after(error)
            return
        finally:
            if record is not None and self._moves == moves:
                self._note(record)
        self._next = self._processed_to = end

    def _note(self, record: Record) -> None:
        """Remember the last record that was read: if the log has another one in its place, it was written again."""
        self._last = record.offset + 1, checksum_of(record)

    def _end(self) -> int:
        """Return where reading ends now; reset a position that is no longer in the log, or raise OffsetOutOfRange."""
        self._check_open()
        source = self._source
        refresh(source)
        version = _version(source)
        lost = out_of_log(source, self._next) or self._difference(version)
        if lost is not None:
            check_tail(source, self._next)
            self._move_to(self._reset(lost, self._next))
        else:
            self._version = version
        return end_of(source, self._isolation)

    def _difference(self, version: ViewState | int) -> str | None:
        """Return the reason why this version of the log does not continue the one that was read; None if it does."""
        before = self._version
        if version is before:
            return None
        is_listed = not isinstance(version, int) and not isinstance(before, int) and version.segments != before.segments
        topic_id = _topic_id(self._source) if is_listed else self._topic_id
        position, checksum = self._last or (0, None)
        if position > self._next:  # a cancelled call has read ahead
            checksum = None
        return difference(self._source, self._topic_id, topic_id, position, checksum)

    def _accept(self) -> None:
        """Take the log to be the one that is read from now on."""
        self._version, self._last, self._topic_id = _version(self._source), None, _topic_id(self._source)

    def _continue_after(self, error: KafkalogError) -> None:
        """Return if reading may continue after the log was truncated or deleted at the position; else raise `error`."""
        if isinstance(error, OffsetOutOfRange):
            position = self._next
            self._end()  # resets a lost position, or raises the reason
            if self._options.reset != "error" and (self._next != position or self._failed_at != position):
                self._failed_at = position
                return
        raise error

    # Moving

    def seek(self, offset: int | str) -> int:
        """Move to an offset, "earliest" or "latest" and return the position; a negative offset counts from the end.

        It is stored at the next commit. Raises OffsetOutOfRange outside the log.

        >>> with log.cursor("billing") as cursor:
        ...     cursor.seek("latest"), cursor.seek(-1), cursor.moves
        (2, 1, 2)
        """
        self._check_open()
        refresh(self._source)
        self._move_to(resolve_position(self._source, offset, end_of(self._source, self._isolation)))
        return self._next

    def _move_to(self, offset: int) -> None:
        self._moves += 1
        self._next = self._processed_to = offset
        self._accept()

    def _initial_position(self, stored: CursorState | None) -> int:
        """Return the initial position: the stored one, if the log still has it."""
        if stored is None:
            return resolve_position(self._source, self._options.start, end_of(self._source, self._isolation))
        lost = loss_reason(self._source, self._topic_id, stored)
        if lost is None:
            return stored.position
        check_tail(self._source, stored.position)
        return self._reset(lost, stored.position)

    def _reset(self, lost: str, position: int) -> int:
        """Return the position after a lost one; raise OffsetOutOfRange if `reset` is "error"."""
        source, reset = self._source, self._options.reset
        if reset == "error":
            raise OffsetOutOfRange(
                f"cursor {self.name} of {source.name} lost its position: {lost}",
                path=self._file.path, offset=position, hint=_LOST_HINT,
            )  # fmt: skip
        self.lost = lost
        found = resolve_position(source, reset, end_of(source, self._isolation))
        _LOG.warning(
            "cursor %s of %s was reset from %d to %d (%s): %s", self.name, source.name, position, found, reset, lost
        )
        return found

    # Committing

    def commit(self, offset: int | None = None) -> int:
        """Commit the position after all returned records, or `offset`, which is at most that; return it.

        Raises StorageError; the last committed position then stays.

        >>> with log.cursor("billing", auto_commit_ms=None) as cursor:
        ...     found = cursor.poll()
        ...     cursor.commit(), cursor.committed
        (2, 2)
        """
        self._check_open()
        if offset is None:
            self._processed_to = self._next
            return self._write(self._next)
        if not 0 <= operator.index(offset) <= self._next:
            raise IllegalArgument(f"cannot commit {offset}, the cursor is at {self._next}", hint="seek there first")
        return self._write(operator.index(offset))

    def advance(self, position: int, checksum: int | None = None) -> None:
        """Set the position to `position` and mark records before the old one as processed.

        For a caller that reads the log itself; `checksum` is that of the record before `position` as it was read.
        Nothing is stored until `processed()` or `commit()`.

        >>> with log.cursor("billing") as cursor:
        ...     cursor.advance(cursor.engine.log_end_offset)
        ...     cursor.position, cursor.committed
        (2, 0)
        """
        self._processed_to, self._next = self._next, position
        if checksum is not None:
            self._last = position, checksum

    def processed(self) -> None:
        """Mark all returned records as processed; commit the position if a commit is due.

        >>> with log.cursor("billing", auto_commit_ms=0) as cursor:
        ...     found = cursor.poll()
        ...     cursor.processed()
        ...     cursor.committed
        2
        """
        self._check_open()
        self._processed_to = self._next
        if self._is_commit_due():
            if self._processed_to != self._committed:
                self._write(self._processed_to)
            self._schedule_commit()

    def _write(self, position: int) -> int:
        self._file.check_held()  # before the lock: at a fork, a thread of the parent may have held it
        known, checksum = self._last or (-1, None)
        if known != position:
            checksum = record_checksum(self._source, position)
        now = SYSTEM_CLOCK.milliseconds()
        state = CursorState(self.name, self.topic_partition, position, checksum, self._topic_id, now)
        with self._lock:  # a cancelled call of an event loop may still run in its thread
            self._file.write(state, sync=self._options.sync)
        self._committed = position
        self._schedule_commit()
        return position

    def _is_commit_due(self) -> bool:
        """Return True if `processed` would commit a position."""
        return time.monotonic() >= self._due

    def _schedule_commit(self) -> None:
        period = self._options.auto_commit_ms
        self._due = float("inf") if period is None else time.monotonic() + period / 1000

    def close(self) -> None:
        """Commit the processed position, unless `auto_commit_ms` is None, and release the name; harmless twice.

        >>> cursor = log.cursor("billing")
        >>> cursor.close()
        >>> cursor.closed, str(cursor.topic_partition)
        (True, 'orders-0')
        """
        if self._closed:
            return
        try:
            if self._options.auto_commit_ms is not None and self._processed_to != self._committed:
                self._write(self._processed_to)
        finally:
            self._closed = True
            self._file.release()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState(f"cursor {self.name} is closed")

    def __enter__(self) -> Cursor:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._processed_to = self._next
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self._closed = True
            self._file.release()

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"at {self._next}"
        return f"<Cursor {self.name} of {self._source.name} {where} committed {self._committed}>"


def _version(source: LogSource) -> ViewState | int:
    """Return what stays the same object while no record of the log is replaced."""
    return source.state if isinstance(source, LogView) else source.truncation_count


def _topic_id(source: LogSource) -> str | None:
    """Return the id of the log's topic; None if it is missing or cannot be read."""
    try:
        return read_partition_metadata(OS, source.path)
    except KafkalogError as error:
        _LOG.warning("cannot read the topic's id, the cursor continues without it: %s", error)
        return None


class CursorInfo(NamedTuple):
    """A cursor as stored; `lag` is its distance from the log end, None if the position is not in the log."""

    name: str
    position: int
    lag: int | None
    committed_ms: int


def open_cursor(
    source: LogSource,
    name: str,
    options: Options,
    *,
    store: str | os.PathLike[str] | None = None,
    owner: object = None,
) -> Cursor:
    """Open the cursor `name` of a log for the caller; see `Log.cursor`."""
    options.check()
    file = CursorStore(store).acquire(source.path, name)
    try:
        return Cursor(source, file, options, owner)
    except BaseException:
        file.release()
        raise


def cursors_of(source: LogSource, store: str | os.PathLike[str] | None = None) -> tuple[CursorInfo, ...]:
    """Return the stored state of a log's cursors, by name, open cursors included. Raises CorruptCheckpoint."""
    stored = CursorStore(store)
    refresh(source)
    states = (stored.read(source.path, name) for name in stored.names(source.path))
    return tuple(
        CursorInfo(state.name, state.position, lag_of(source, state.position), state.committed_ms)
        for state in states
        if state is not None
    )
