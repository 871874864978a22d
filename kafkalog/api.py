"""`kafkalog.open` and `Log`: one partition as a Python object."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, Never, NoReturn, SupportsIndex, overload

from kafkalog._core.record import Record
from kafkalog.appending import AppendMixin
from kafkalog.chunks import batches, records
from kafkalog.columnar import ColumnarLog
from kafkalog.compacting import CompactMixin
from kafkalog.config import key_for
from kafkalog.cursor_face import CursorMixin
from kafkalog.engine import end_of, first_offset, isolation_of, refresh, skipped_of
from kafkalog.errors import IllegalArgument, LogClosed, UnknownConfig
from kafkalog.following import check_timeout, tail
from kafkalog.inspecting import InspectMixin
from kafkalog.keywords import near, unknown_keyword
from kafkalog.point import record_at
from kafkalog.records.batch import RecordBatch
from kafkalog.shown import human_size, shortened
from kafkalog.slices import LogSlice, clamped
from kafkalog.storage.view import LogView
from kafkalog.times import Time, to_ms
from kafkalog.types import Isolation, OffsetAndTimestamp, TopicPartition
from kafkalog.util.guards import finish

if TYPE_CHECKING:
    from kafkalog.durability import Sync
    from kafkalog.engine import Engine
    from kafkalog.errors import KafkalogError
    from kafkalog.opened import OpenedLog
    from kafkalog.opening import OnDamage
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.recovery_run import RecoveryProgress
    from kafkalog.tools.verify import Report

REPR_WIDTH: Final = 100
_RANGE: Final = ("start", "stop", "since", "until", "isolation", "on_damage", "skipped")


def open(
    path: str | bytes | os.PathLike[str],
    mode: Literal["r", "a"] = "r",
    *,
    sync: Sync = False,
    on_damage: OnDamage = "recover",
    progress: Callable[[RecoveryProgress], object] | None = None,
    **settings: Any,
) -> Log:
    """Open the partition directory `path` (`<data directory>/<topic>-<number>`) and return a `Log`.

    Mode "r" reads: it takes no lock, repairs nothing and never writes; it follows a directory that a broker writes to.
    A URL such as `s3://bucket/data/orders-0` is read in place (docs/remote.md).

    Mode "a" creates the partition or opens it for writing and holds the data directory's lock. It recovers a log that
    was not closed cleanly. Topic settings are keywords (`segment_bytes=1 << 20`, `cleanup_policy="compact"`). `sync` is
    when appends are forced to disk: False (as Kafka: the page cache), True (each append), or an interval in
    milliseconds.

    Background jobs belong to `open_dirs`. A log opened by itself removes files at once, regardless of
    `file_delete_delay_ms`, and syncs a rolled segment at the next flush (docs/config.md).

    Mode "a" creates a missing data directory, but not its parent; if the open fails, it removes the directory again.
    `progress` is called while a log is recovered, with segments and bytes done and in total. If recovery cuts the log
    at damage, it saves intact batches that follow it; with `on_damage="refuse"` the call raises CorruptRecord instead
    and changes nothing (docs/recovery.md).

    Raises PartitionNotFound, NotAPartition, StorageError (permissions); in mode "a" also DirectoryLocked, ConfigError,
    CorruptRecord, CorruptCheckpoint. Raises TypeError for a keyword that is no setting, with similar names.

    >>> with kafkalog.open("data/clicks-0", "a", segment_bytes=1 << 20) as clicks:
    ...     info = clicks.append([b"first", b"second"])
    >>> with kafkalog.open("data/clicks-0") as clicks:
    ...     [record.value for record in clicks]
    [b'first', b'second']
    """
    if mode == "r":
        given = ["sync"] * (sync is not False) + ["on_damage"] * (on_damage != "recover")
        given += ["progress"] * (progress is not None)
        if given or settings:
            raise _not_for_reading(given or list(settings))
        return Log(_view(path), None)
    if mode != "a":
        raise IllegalArgument(f"mode is {mode!r}", hint="use 'r' to read, or 'a' to create or append")
    if isinstance(path, str) and "://" in path:
        from kafkalog.remote import refuse_to_write

        refuse_to_write(path)
    from kafkalog.opening import open_for_append

    for name in settings:
        _check_setting(name)
    opened = open_for_append(path, settings, sync=sync, on_damage=on_damage, progress=progress)
    return Log(opened.log, opened)


def _view(path: str | bytes | os.PathLike[str]) -> LogView:
    if isinstance(path, str) and "://" in path:
        from kafkalog.remote import is_url, view_of

        if is_url(path):
            return view_of(path)
    return LogView(path)


def _not_for_reading(names: list[str]) -> TypeError:
    nearest = near(names[0], ("path", "mode"))
    fix = f"did you mean {nearest}?" if nearest else "settings are for mode 'a'"
    return TypeError(f"open() with mode 'r' takes no keyword {names[0]!r}: {fix}")


def _check_setting(name: str) -> None:
    """Raise UnknownConfig (a TypeError) for a keyword that is no topic setting; suggest a similar name."""
    try:
        key_for(name)
    except UnknownConfig as error:
        nearest = near(name, ("path", "mode", "sync", "on_damage", "progress"))
        if nearest is not None:
            error.hint = f"did you mean {nearest}?"
        raise


class Log(AppendMixin, ColumnarLog, CompactMixin, CursorMixin, InspectMixin):
    """One partition's log: an ordered sequence of records, indexed by offset.

    `log[n]` is the record with offset n, `log[a:b]` a lazy half-open slice, iteration yields all records. Negative
    numbers count back from the end. Reading ends at the log end as of the call; `tail()` waits for more. In mode "r"
    each such call refreshes the log from its directory.

    Threads: a log may be used from any thread, an iterator from one.

    >>> log
    <Log orders-0 offsets [0, 2) 1 segment 92 B hw 2 epoch 0 a ...orders-0>
    >>> log[-1].value, [record.key for record in log[:1]]
    (b'second', [b'u-1'])
    >>> log.topic, log.partition, log.name, log.mode, log.path[-8:]
    ('orders', 0, 'orders-0', 'a', 'orders-0')
    >>> log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset, log.size, log.problems
    (0, 2, 2, 2, 92, ())
    >>> log.topic_partition
    TopicPartition(topic='orders', partition=0)
    """

    __slots__ = ("__weakref__", "_engine", "_opened", "path", "topic_partition")

    def __init__(self, engine: Engine, opened: OpenedLog | None) -> None:
        self.path: str = engine.path if opened is None else opened.path
        self.topic_partition: TopicPartition = engine.topic_partition
        self._engine = engine
        self._opened = opened
        if opened is not None and not opened.belongs_to_store:
            opened.keep()  # last: from here on `__del__` closes the log after an interrupt

    # Properties

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    @property
    def name(self) -> str:
        """`<topic>-<partition>`, the directory's name."""
        return str(self.topic_partition)

    @property
    def mode(self) -> Literal["r", "a"]:
        """Mode in which the log was opened."""
        return "r" if self._opened is None else "a"

    @property
    def start_offset(self) -> int:
        """First offset that can be read."""
        return self._looked().log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record to be appended."""
        return self._looked().log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offset up to which records are replicated.

        In mode "r" it comes from the data directory's checkpoint, which a running broker writes every few seconds;
        without an entry there it is the log end.
        """
        return self._looked().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which `isolation="read_committed"` reads: no transaction is open before it."""
        return self._looked().last_stable_offset

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return self._looked().size

    @property
    def problems(self) -> tuple[KafkalogError, ...]:
        """Damage found so far, each an error with file, position and cause; empty in mode "a"."""
        engine = self._looked()
        return engine.problems if isinstance(engine, LogView) else ()

    def _looked(self) -> Engine:
        engine = self._engine
        refresh(engine)
        return engine

    # Records by offset

    @overload
    def __getitem__(self, key: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, key: slice) -> LogSlice: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Record | LogSlice:
        if isinstance(key, slice):
            if key.step not in (None, 1):
                raise IllegalArgument(f"a log has no slice with step {key.step}", hint="leave the step out")
            return self.slice(key.start, key.stop)
        return record_at(self._engine, operator.index(key))

    def slice(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: str | None = None,
        **unknown: Never,
    ) -> LogSlice:
        """Return the records with offsets in [start, stop) as a lazy slice; `isolation` as for `records`.

        Bounds work as in Python: None is the log's start or end, a negative number counts back from the end (the one of
        `isolation`), and bounds outside the log are clamped to it.

        >>> log.slice(-1, isolation="read_committed")
        <LogSlice orders-0 [1, 2) read_committed>
        """
        if unknown:
            raise unknown_keyword("slice", unknown, ("start", "stop", "isolation"))
        level = isolation_of(isolation)
        engine = self._looked()
        first = engine.log_start_offset
        end = max(first, end_of(engine, level))
        return LogSlice(self, clamped(start, first, first, end), clamped(stop, end, first, end), isolation)

    def records(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        isolation: str | None = None,
        on_damage: str = "raise",
        skipped: list[Skipped] | None = None,
        **unknown: Never,
    ) -> Iterator[Record]:
        """Yield the records with offsets in [start, stop), in order; default: from the log start to the log end.

        `since` and `until` are bounds by time instead: reading starts at the first record at or after `since`, and ends
        before the first one at or after `until`. Control records are left out, as for a consumer.

        `isolation` sets the end of reading: the log end for None, "log_end" and "read_uncommitted"; the high watermark
        for "high_watermark"; the last stable offset for "read_committed", which also leaves out records of aborted
        transactions. Negative offsets count back from that end.

        Every record of every intact batch is yielded, or an error is raised. `on_damage="skip"` skips bytes that are no
        intact batch and continues behind them; each skipped range is logged as a warning and appended to the list
        `skipped`.

        Raises OffsetOutOfRange for a start outside the log. Iteration raises CorruptRecord at damage, after all records
        before it; InvalidRecord for damage inside a batch whose checksum is right; IllegalArgument for an unknown
        codec; OffsetOutOfRange when the log is truncated or deleted below the reader.

        >>> [record.value for record in log.records(start=1)]
        [b'second']
        >>> list(log.records(since="2100-01-01"))
        []
        """
        if unknown:
            raise unknown_keyword("records", unknown, _RANGE)
        level = isolation_of(isolation)
        left_out = skipped_of(on_damage, skipped)
        bounds = self._range(start, stop, since, until, level, left_out is not None)
        return records(self._engine, *bounds, owner=self, committed=level == "committed", skipped=left_out)

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        isolation: str | None = None,
        on_damage: str = "raise",
        skipped: list[Skipped] | None = None,
        **unknown: Never,
    ) -> Iterator[RecordBatch]:
        """Yield the whole batches, control batches too, with offsets in [start, stop); arguments as for `records`.

        Isolation "read_committed" leaves out batches of aborted transactions and control batches.

        >>> list(log.batches())
        [<RecordBatch v2 [0, 2) 2 records 92 B>]
        """
        if unknown:
            raise unknown_keyword("batches", unknown, _RANGE)
        level = isolation_of(isolation)
        left_out = skipped_of(on_damage, skipped)
        bounds = self._range(start, stop, since, until, level, left_out is not None)
        return batches(self._engine, *bounds, owner=self, committed=level == "committed", skipped=left_out)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def tail(
        self,
        timeout: float | None = None,
        start: int | None = None,
        *,
        isolation: str | None = None,
        on_damage: str = "raise",
        skipped: list[Skipped] | None = None,
        **unknown: Never,
    ) -> Iterator[Record]:
        """Yield records from `start` (default: the current end) and wait for new ones; keywords as for `records`.

        Ends after `timeout` seconds without a new record; None waits for ever. Raises OffsetOutOfRange for a start
        outside the log, and when the log is truncated below the reader.

        >>> [record.offset for record in log.tail(timeout=0, start=0)]
        [0, 1]
        """
        if unknown:
            raise unknown_keyword("tail", unknown, ("timeout", "start", "isolation", "on_damage", "skipped"))
        level = isolation_of(isolation)
        check_timeout(timeout)
        engine = self._looked()
        end = end_of(engine, level)
        left_out = skipped_of(on_damage, skipped)
        first = end if start is None else first_offset(engine, start, end, left_out is not None)
        return tail(engine, first, timeout, owner=self, isolation=level, skipped=left_out)

    def _range(
        self,
        start: int | None,
        stop: int | None,
        since: Time | None,
        until: Time | None,
        isolation: Isolation,
        skips: bool = False,
    ) -> tuple[int, int]:
        """Return the offsets to read, [first, last); raise IllegalArgument for bounds that contradict each other."""
        if (start is not None and since is not None) or (stop is not None and until is not None):
            raise IllegalArgument(
                "both an offset and a time are given for one bound", hint="give start or since, stop or until"
            )
        engine = self._looked()
        end = end_of(engine, isolation)
        if since is not None:
            start = self._offset_at(since, end)
        if until is not None:
            stop = self._offset_at(until, end)
        first = engine.log_start_offset if start is None else first_offset(engine, start, end, skips)
        if stop is None:
            return first, end
        stop = operator.index(stop)
        return first, min(end, max(stop + end if stop < 0 else stop, 0))

    def _offset_at(self, time: Time, end: int) -> int:
        found = self._found_at(to_ms(time))
        return end if found is None else found.offset

    # Records by time

    def offset_for_time(
        self, time: Time, *, isolation: str | None = None, **unknown: Never
    ) -> OffsetAndTimestamp | None:
        """Find the first record at or after `time`; return its offset, timestamp (ms) and leader epoch, or None.

        `time` is a datetime, ISO-8601 text or ms; without a zone it is UTC. -1 (LATEST) is the log end, -2 (EARLIEST)
        the log start, -3 the record with the largest timestamp. `isolation` is as for `records`: its end of reading is
        LATEST, and later records are not found. Aborted records are found, as by Kafka.

        >>> log.offset_for_time("2020-01-01").offset
        0
        >>> log.offset_for_time(-1).offset, log.offset_for_time("2100-01-01")
        (2, None)
        """
        if unknown:
            raise unknown_keyword("offset_for_time", unknown, ("time", "isolation"))
        return self._found_at(to_ms(time), isolation_of(isolation))

    def _found_at(self, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
        engine = self._engine
        if timestamp < 0:
            if timestamp < -3:
                raise IllegalArgument(
                    f"the time {timestamp} lies before 1970", hint="no record has a negative timestamp"
                )
            refresh(engine)
        found = engine.offset_for_time(timestamp, isolation)
        if found is None:
            refresh(engine)  # the record may be newer than the last refresh
            found = engine.offset_for_time(timestamp, isolation)
        return found

    # Files on disk

    def verify(self, *, deep: bool = False, threads: int | None = None) -> Report:
        """Check the partition's files and return a report: checksums, offsets, indexes, snapshots; `deep`: records too.

        It reads the files as they are, even while they are written, and reports damage instead of raising.

        >>> log.verify().ok
        True
        """
        from kafkalog.tools.verify import verify

        return verify(self.path, deep=deep, threads=threads)

    # The object

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._engine.closed

    def close(self) -> None:
        """Close the files and release the lock; mode "a" syncs everything first. A second call does nothing.

        >>> log.close()
        >>> log.closed
        True
        """
        opened = self._opened
        if opened is not None:
            opened.close()
        else:
            self._engine.close()

    def __enter__(self) -> Log:
        if self.closed:
            raise LogClosed(f"log {self.name} is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed:
            return
        opened = self._opened
        # closed: the log of a parent process, after a fork
        if opened is None or not (opened.closed or opened.belongs_to_store):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            finish(self.close)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> NoReturn:
        raise TypeError(
            "a log has no len(): offsets may have gaps. Use log.end_offset - log.start_offset for their "
            "range, or sum(1 for _ in log) to count records"
        )

    def __repr__(self) -> str:
        """Return one line of at most 100 columns, from memory: the state at the last refresh."""
        engine = self._engine
        if engine.closed:
            return f"<Log {shortened(self.name, REPR_WIDTH - 13)} closed>"
        start, end = engine.log_start_offset, engine.log_end_offset
        count = len(engine.segments)
        parts = [
            f"offsets [{start}, {end})",
            f"{count} segment{'' if count == 1 else 's'}",
            human_size(engine.size),
            f"hw {engine.high_watermark}",
        ]
        if engine.leader_epoch >= 0:
            parts.append(f"epoch {engine.leader_epoch}")
        text = " ".join([*parts, self.mode])
        room = REPR_WIDTH - len(text) - len("<Log   >")
        name = shortened(self.name, max(room // 2, room - len(self.path)))
        return f"<Log {name} {text} {shortened(self.path, room - len(name))}>"
