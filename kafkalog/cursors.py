"""Named cursors: each reader's own position in a log, kept from one run to the next."""

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

from kafkalog._core.record import Record
from kafkalog.chunks import check_tail, records
from kafkalog.cursor_place import Options, lag_of, out_of_log, place_of, record_mark, why_lost
from kafkalog.cursor_store import CursorFile, CursorState, CursorStore
from kafkalog.engine import end_of, isolation_of, refresh
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError, OffsetOutOfRange
from kafkalog.following import Waiting, check_timeout
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from kafkalog.util.living import Living

if TYPE_CHECKING:
    from kafkalog.engine import Engine
    from kafkalog.types import TopicPartition

__all__ = ["Cursor", "CursorInfo", "Options", "cursors_of", "open_cursor"]

_LOG: Final = logging.getLogger(__name__)
POLL_RECORDS: Final = 500
_LOST_HINT: Final = (
    "open the cursor with reset='earliest' or 'latest', or move it: `kafkalog offsets reset --execute`"
)


CURSORS: Final[Living[Cursor]] = Living()
"""The cursors of this process."""


class Cursor:
    """One reader's position in a log, by name; made by `Log.cursor`.

    A record counts as processed when the next one is asked for, at `commit()`, and at the end of a `with` block that
    raises nothing. What is processed is committed each `auto_commit_ms` while reading goes on, and at the end. So every
    record is seen at least once: after a crash those since the last commit come again.

    The name is held until `close()`. Threads: one at a time. A forked child cannot commit.

    >>> with log.cursor("billing") as cursor:
    ...     [record.value for record in cursor], cursor.lag, cursor.committed
    ([b'first', b'second'], 0, 0)
    >>> log.cursors()
    (CursorInfo(name='billing', position=2, lag=0, committed_ms=...),)
    """

    def __init__(self, engine: Engine, file: CursorFile, options: Options, owner: object = None) -> None:
        self._engine = engine
        self._owner = owner  # whose log is read: it stays open as long as this stands
        self._file = file
        self._options = options
        self._isolation = isolation_of(options.isolation)
        self._closed = True  # until all below is done: a cursor that fails to open warns of nothing
        self._lock = threading.Lock()
        self._moves = 0
        self._failed_at = -1
        self._topic_id = _topic_id(engine)
        self.name = file.name
        self.lost: str | None = None
        """Why the position was given up the last time, where it was; None otherwise."""
        refresh(engine)
        kept = file.read()
        self._committed = -1 if kept is None else kept.position
        self._next = self._done = self._first(kept)
        if kept is None or (self._next != kept.position and options.auto_commit_ms is not None):
            self._write(self._next)
        self._put_off()
        self._closed = False
        CURSORS.add(self)

    # Where it is

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it reads."""
        return self._engine.topic_partition

    @property
    def position(self) -> int:
        """The offset from which the next record will come."""
        return self._next

    @property
    def engine(self) -> Engine:
        """What it reads through: the log's own state, or a view."""
        return self._engine

    @property
    def committed(self) -> int:
        """The position that is kept: another run goes on from there."""
        return self._committed

    @property
    def lag(self) -> int:
        """How many offsets lie between the position and where reading ends now."""
        refresh(self._engine)
        return max(0, end_of(self._engine, self._isolation) - self._next)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def moves(self) -> int:
        """A number that changes when the position is moved otherwise than by reading."""
        return self._moves

    # Reading

    def __iter__(self) -> Iterator[Record]:
        """The records from the position up to the present end; errors as for `Log.records`."""
        return self._run(self._end(), 0)

    def tail(self, timeout: float | None = None) -> Iterator[Record]:
        """The records from the position on, waiting for new ones; it ends after `timeout` seconds without any.

        >>> with log.cursor("billing") as cursor:
        ...     [record.value for record in cursor.tail(timeout=0.01)]
        [b'first', b'second']
        """
        check_timeout(timeout)
        self._check_open()
        return self._run(None, timeout)

    def poll(self, max_records: int = POLL_RECORDS, timeout: float | None = 0) -> list[Record]:
        """The next records, at most `max_records`; waits up to `timeout` seconds (None: for ever) for the first one.

        Those of the call before count as processed. Errors as for `Log.records`; what lies before damage comes first.

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
        """What `poll` would give without waiting, and the position behind it; `position` stays where it is.

        All that was handed out before counts as processed.

        >>> with log.cursor("billing") as cursor:
        ...     found, position = cursor.fetch(10)
        ...     len(found), position, cursor.position
        (2, 2, 0)
        """
        if operator.index(max_records) < 1:
            raise IllegalArgument(f"max_records is {max_records}", hint="ask for at least one record")
        self.processed()
        end = self._end()
        found: list[Record] = []
        if self._next >= end:
            check_tail(self._engine, end)
            return found, self._next
        try:
            found.extend(islice(self._records(end), max_records))
        except KafkalogError as error:
            if not found:
                self._go_on_after(error)
                return found, self._next
            return found, found[-1].offset + 1
        return found, found[-1].offset + 1 if len(found) == max_records else end

    def _records(self, end: int) -> Iterator[Record]:
        return records(self._engine, self._next, end, committed=self._isolation == "committed")

    def _run(self, stop: int | None, timeout: float | None) -> Iterator[Record]:
        waiting = Waiting(timeout)
        while True:
            end = self._end()
            end = end if stop is None else min(end, stop)
            if self._next < end:
                yield from self._until(end)
                waiting.begin()
                continue
            check_tail(self._engine, end)
            if stop is not None or not waiting.wait():
                self.processed()
                return

    def _until(self, end: int) -> Iterator[Record]:
        """The records below `end`; it stops early where the position is moved meanwhile."""
        moves = self._moves
        try:
            for record in self._records(end):
                self._next = record.offset + 1
                yield record
                if self._moves != moves or self._closed:
                    return
                self._done = self._next
                if time.monotonic() >= self._due:
                    self.processed()
        except OffsetOutOfRange as error:
            self._go_on_after(error)
            return
        self._next = self._done = end

    def _end(self) -> int:
        """Where reading ends now; a position that the log does not have any more is reset, or OffsetOutOfRange."""
        self._check_open()
        refresh(self._engine)
        lost = out_of_log(self._engine, self._next)
        if lost is not None:
            check_tail(self._engine, self._next)
            self._place(self._reset(lost, self._next))
        return end_of(self._engine, self._isolation)

    def _go_on_after(self, error: KafkalogError) -> None:
        """Returns where reading may go on though the log was cut or deleted under it; raises `error` otherwise."""
        if isinstance(error, OffsetOutOfRange):
            at = self._next
            self._end()  # says what happened, where the position is lost
            if self._options.reset != "error" and (self._next != at or self._failed_at != at):
                self._failed_at = at
                return
        raise error

    # Moving

    def seek(self, offset: int | str) -> int:
        """The new position: an offset, "earliest" or "latest"; a negative offset counts back from the end.

        It is kept at the next commit. OffsetOutOfRange outside the log.

        >>> with log.cursor("billing") as cursor:
        ...     cursor.seek("latest"), cursor.seek(-1), cursor.moves
        (2, 1, 2)
        """
        self._check_open()
        refresh(self._engine)
        self._place(place_of(self._engine, offset, end_of(self._engine, self._isolation)))
        return self._next

    def _place(self, offset: int) -> None:
        self._moves += 1
        self._next = self._done = offset

    def _first(self, kept: CursorState | None) -> int:
        """The position to begin at: the one that is kept, where the log still has it."""
        if kept is None:
            return place_of(self._engine, self._options.start, end_of(self._engine, self._isolation))
        lost = why_lost(self._engine, self._topic_id, kept)
        return kept.position if lost is None else self._reset(lost, kept.position)

    def _reset(self, lost: str, position: int) -> int:
        """The position after one that was lost; OffsetOutOfRange where the reader wants to be told."""
        engine, reset = self._engine, self._options.reset
        if reset == "error":
            raise OffsetOutOfRange(
                f"cursor {self.name} of {engine.name} has lost its place: {lost}",
                path=self._file.path, offset=position, hint=_LOST_HINT,
            )  # fmt: skip
        self.lost = lost
        found = place_of(engine, reset, end_of(engine, self._isolation))
        told = (self.name, engine.name, position, found, reset, lost)
        _LOG.warning("cursor %s of %s goes from %d to %d (%s): %s", *told)
        return found

    # Keeping

    def commit(self, offset: int | None = None) -> int:
        """The position that is kept now: behind all that was handed out, or `offset`, which is at most that.

        StorageError: what was kept before stays.

        >>> with log.cursor("billing", auto_commit_ms=None) as cursor:
        ...     found = cursor.poll()
        ...     cursor.commit(), cursor.committed
        (2, 2)
        """
        self._check_open()
        if offset is None:
            self._done = self._next
            return self._write(self._next)
        if not 0 <= operator.index(offset) <= self._next:
            raise IllegalArgument(f"cannot commit {offset}, the cursor is at {self._next}", hint="seek there first")
        return self._write(operator.index(offset))

    def advance(self, position: int) -> None:
        """Notes that all before `position` was handed out, and what was handed out before is processed.

        For a caller that reads in its own way. Nothing is kept of it until `processed()` or `commit()`.

        >>> with log.cursor("billing") as cursor:
        ...     cursor.advance(cursor.engine.log_end_offset)
        ...     cursor.position, cursor.committed
        (2, 0)
        """
        self._done, self._next = self._next, position

    def processed(self) -> None:
        """Notes that all that was handed out is processed; commits it where that is due.

        >>> with log.cursor("billing", auto_commit_ms=0) as cursor:
        ...     found = cursor.poll()
        ...     cursor.processed()
        ...     cursor.committed
        2
        """
        self._check_open()
        self._done = self._next
        if time.monotonic() >= self._due:
            if self._done != self._committed:
                self._write(self._done)
            self._put_off()

    def _write(self, position: int) -> int:
        self._file.check_held()  # before our lock, which a thread of a forked child's parent may have had
        mark, now = record_mark(self._engine, position), SYSTEM_CLOCK.milliseconds()
        state = CursorState(self.name, self.topic_partition, position, mark, self._topic_id, now)
        with self._lock:  # a cancelled call of an event loop may still go on in its thread
            self._file.write(state, sync=self._options.sync)
        self._committed = position
        self._put_off()
        return position

    def _put_off(self) -> None:
        period = self._options.auto_commit_ms
        self._due = float("inf") if period is None else time.monotonic() + period / 1000

    def close(self) -> None:
        """Commits what was processed, unless `auto_commit_ms` is None, and gives the name back; harmless twice.

        >>> cursor = log.cursor("billing")
        >>> cursor.close()
        >>> cursor.closed, str(cursor.topic_partition)
        (True, 'orders-0')
        """
        if self._closed:
            return
        try:
            if self._options.auto_commit_ms is not None and self._done != self._committed:
                self._write(self._done)
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
            self._done = self._next
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self._closed = True
            self._file.release()

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"at {self._next}"
        return f"<Cursor {self.name} of {self._engine.name} {where} committed {self._committed}>"


def _topic_id(engine: Engine) -> str | None:
    """The id of the log's topic; None where there is none, or it cannot be read, which stops no reader."""
    try:
        return read_partition_metadata(OS, engine.path)
    except KafkalogError as error:
        _LOG.warning("a cursor goes without the topic's id: %s", error)
        return None


class CursorInfo(NamedTuple):
    """A cursor as it is kept; `lag` is how far behind the log end it is, None where the log does not have it."""

    name: str
    position: int
    lag: int | None
    committed_ms: int


def open_cursor(
    engine: Engine,
    name: str,
    options: Options,
    *,
    store: str | os.PathLike[str] | None = None,
    owner: object = None,
) -> Cursor:
    """The cursor `name` of a log, held by the caller; see `Log.cursor`."""
    options.check()
    file = CursorStore(store).acquire(engine.path, name)
    try:
        return Cursor(engine, file, options, owner)
    except BaseException:
        file.release()
        raise


def cursors_of(engine: Engine, store: str | os.PathLike[str] | None = None) -> tuple[CursorInfo, ...]:
    """The cursors of a log, by name, as they are kept; those that are open go on meanwhile. CorruptCheckpoint."""
    kept = CursorStore(store)
    refresh(engine)
    states = (kept.read(engine.path, name) for name in kept.names(engine.path))
    return tuple(
        CursorInfo(state.name, state.position, lag_of(engine, state.position), state.committed_ms)
        for state in states
        if state is not None
    )
