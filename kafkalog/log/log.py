"""`Log`: one partition as a Python object. Its methods lie beside this file, each in the file of its duty."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NoReturn, SupportsIndex, overload

from kafkalog._core.batch.record import Record
from kafkalog.errors import IllegalArgument, LogClosed, ReadOnlyLog
from kafkalog.log import append as writing
from kafkalog.log import columns, inspection, keyed, queues, timed
from kafkalog.log import compact as compacting
from kafkalog.log import cursors as positions
from kafkalog.log import cut as cutting
from kafkalog.log import read as reading
from kafkalog.reading.lookup import record_at
from kafkalog.reading.source import refreshed
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.util.guards import run_finalizer
from kafkalog.util.text import human_size, shortened

if TYPE_CHECKING:
    from kafkalog._core.log.producer_state import ProducerState
    from kafkalog.errors import KafkalogError
    from kafkalog.inspect.parts import Epoch, IndexSummary
    from kafkalog.inspect.rows import Rows
    from kafkalog.inspect.segment import Segment
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.log.slice import LogSlice
    from kafkalog.log.writable import WritableLog
    from kafkalog.reading.source import LogSource
    from kafkalog.sidecars.background import SidecarBuilder
    from kafkalog.storage.index.aborted_txns import AbortedTxn
    from kafkalog.time_ranges.ranges import TimeRanges
    from kafkalog.tools.verify.directories import Report

REPR_WIDTH: Final = 100


class Log:
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

    __slots__ = (
        "__weakref__", "_builders", "_key_memory_bytes", "_key_store", "_keys", "_opened", "_source", "_time_ranges",
        "path", "topic_partition",
    )  # fmt: skip

    def __init__(self, source: LogSource, opened: WritableLog | None) -> None:
        self.path: str = source.path if opened is None else opened.path
        self.topic_partition: TopicPartition = source.topic_partition
        self._source = source
        self._opened = opened
        self._builders: list[SidecarBuilder] = []
        self._key_memory_bytes: int | None = None
        self._key_store: keyed.KeyStore = None
        self._keys: KeyLookup | None = None
        self._time_ranges: TimeRanges | None = None
        if opened is not None and not opened.belongs_to_store:
            opened.keep_alive()  # last: from here on `__del__` closes the log after an interrupt

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
        return refreshed(self._source).log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record to be appended."""
        return refreshed(self._source).log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offset up to which records are replicated.

        In mode "r" it comes from the data directory's checkpoint, which a running broker writes every few seconds;
        without an entry there it is the log end.
        """
        return refreshed(self._source).high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which `isolation="read_committed"` reads: no transaction is open before it."""
        return refreshed(self._source).last_stable_offset

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return refreshed(self._source).size

    @property
    def problems(self) -> tuple[KafkalogError, ...]:
        """Damage found so far, each an error with file, position and cause; empty in mode "a"."""
        source = refreshed(self._source)
        return source.problems if isinstance(source, LogView) else ()

    # Reading

    @overload
    def __getitem__(self, key: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, key: slice) -> LogSlice: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Record | LogSlice:
        if isinstance(key, slice):
            if key.step not in (None, 1):
                raise IllegalArgument(f"a slice of a log cannot have step {key.step}", hint="omit the step")
            return reading.slice(self, key.start, key.stop)
        return record_at(self._source, operator.index(key))

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    slice = reading.slice
    records = reading.records
    batches = reading.batches
    tail = reading.tail
    offset_for_time = reading.offset_for_time
    cursor = positions.cursor
    cursors = positions.cursors
    queue = queues.queue

    get = keyed.get
    get_many = keyed.get_many
    get_table = keyed.get_table
    history = keyed.history
    latest = keyed.latest
    __contains__ = keyed.contains
    build_key_index = keyed.build_key_index
    drop_key_index = keyed.drop_key_index
    key_index = keyed.key_index
    build_time_ranges = timed.build_time_ranges

    scan = columns.scan
    table = columns.table
    to_pandas = columns.to_pandas
    to_polars = columns.to_polars
    __arrow_c_schema__ = columns.arrow_c_schema
    __arrow_c_stream__ = columns.arrow_c_stream

    # Writing, in mode "a"

    def opened_for_append(self) -> WritableLog:
        """Return the open log; raise ReadOnlyLog in mode "r", LogClosed after `close`, IllegalState in a fork.

        >>> log.opened_for_append().path == log.path
        True
        """
        opened = self._opened
        if opened is None:
            raise ReadOnlyLog(f"{self!r} was opened for reading")
        if opened.closed:
            opened.refuse()
        return opened

    append = writing.append
    append_bytes = writing.append_bytes
    append_arrow = writing.append_arrow
    replicate = writing.replicate
    writer = writing.writer
    flush = cutting.flush
    roll = cutting.roll
    truncate_to = cutting.truncate_to
    truncate_fully_and_start_at = cutting.truncate_fully_and_start_at
    delete_before = cutting.delete_before
    compact = compacting.compact

    @property
    def settings(self) -> dict[str, str]:
        """Topic settings that differ from the defaults, by their dotted names.

        >>> with kafkalog.open("data/clicks-0", "a", retention_ms=86_400_000) as clicks:
        ...     clicks.settings
        {'retention.ms': '86400000'}
        """
        return dict(self.opened_for_append().log.config.overrides())

    # Inspection

    @property
    def segments(self) -> Rows[Segment]:
        """Segments, lowest offset first.

        >>> log.segments[0].base_offset, log.segments["base offset"]
        (0, [0])
        """
        return inspection.segments(self)

    @property
    def index(self) -> Rows[IndexSummary]:
        """Indexes of each segment: number of entries, density, last offset, and problems.

        >>> log.index[0].offset_entries
        0
        """
        return inspection.index(self)

    @property
    def producers(self) -> Rows[ProducerState]:
        """Producers with a producer id, as of the log end: last sequence, offset, open transaction.

        In mode "r" they come from the newest producer snapshot and the batches after it.

        >>> len(log.producers)
        0
        """
        return inspection.producers(self)

    @property
    def epochs(self) -> Rows[Epoch]:
        """Leader epochs and the offsets written in each.

        >>> log.epochs[0].epoch
        0
        """
        return inspection.epochs(self)

    @property
    def aborted_txns(self) -> Rows[AbortedTxn]:
        """Aborted transactions in the segments' transaction indexes, in the order of their markers.

        >>> list(log.aborted_txns)
        []
        """
        return inspection.aborted_txns(self)

    stats = inspection.stats
    count_by = inspection.count_by
    plot = inspection.plot
    browse = inspection.browse
    _repr_html_ = inspection.repr_html

    def verify(self, *, deep: bool = False, threads: int | None = None) -> Report:
        """Check the partition's files and return a report: checksums, offsets, indexes, snapshots; `deep`: records too.

        It reads the files as they are, even while they are written, and reports damage instead of raising.

        >>> log.verify().ok
        True
        """
        from kafkalog.tools.verify.directories import verify

        return verify(self.path, deep=deep, threads=threads)

    # The object

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._source.closed

    def close(self) -> None:
        """Close the files and release the lock; mode "a" syncs everything first. A second call does nothing.

        >>> log.close()
        >>> log.closed
        True
        """
        opened = self._opened
        keys, self._keys = self._keys, None
        if keys is not None:
            keys.release()
        for builder in self._builders:
            builder.stop()
        if opened is not None:
            opened.close()
        else:
            self._source.close()

    def __enter__(self) -> Log:
        if self.closed:
            raise LogClosed(f"log {self.name} is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if source is None or source.closed:
            return
        opened = self._opened
        # closed: the log of a parent process, after a fork
        if opened is None or not (opened.closed or opened.belongs_to_store):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            run_finalizer(self.close)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> NoReturn:
        raise TypeError(
            "a log has no len(): offsets may have gaps. Use log.end_offset - log.start_offset for their "
            "range, or sum(1 for _ in log) to count records"
        )

    def __repr__(self) -> str:
        """Return one line of at most 100 columns, from memory: the state at the last refresh."""
        source = self._source
        if source.closed:
            return f"<Log {shortened(self.name, REPR_WIDTH - 13)} closed>"
        start, end = source.log_start_offset, source.log_end_offset
        count = len(source.segments)
        parts = [
            f"offsets [{start}, {end})",
            f"{count} segment{'' if count == 1 else 's'}",
            human_size(source.size),
            f"hw {source.high_watermark}",
        ]
        if source.leader_epoch >= 0:
            parts.append(f"epoch {source.leader_epoch}")
        text = " ".join([*parts, self.mode])
        room = REPR_WIDTH - len(text) - len("<Log   >")
        name = shortened(self.name, max(room // 2, room - len(self.path)))
        return f"<Log {name} {text} {shortened(self.path, room - len(name))}>"
