"""The writing half of `Log`: append, ready batches, replication, roll, truncate, delete, flush."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never

from kafkalog._core.encode import BadRecord, encode_batch
from kafkalog._core.record import Record
from kafkalog._core.scan import scan
from kafkalog.arrow_append import append_arrow
from kafkalog.durability import Sync
from kafkalog.errors import IllegalArgument, InvalidTimestamp, KafkalogError, ReadOnlyLog, StorageError
from kafkalog.keywords import unknown_keyword
from kafkalog.records.packing import choose, parse_compression
from kafkalog.records.placer import BATCH_BYTES as ARROW_BATCH_BYTES
from kafkalog.storage.failure import is_disk_failure
from kafkalog.types import LogAppendInfo
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.writer import BATCH_BYTES, BUFFER_MEMORY, Writer, refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.opened import OpenedLog
    from kafkalog.records.packing import Compression

BytesLike = bytes | bytearray | memoryview
OneRecord = BytesLike | tuple[Any, ...] | Record | dict[str, Any]

_AS_BUILT = frozenset({"producer", "uncompressed"})
_ONE_RECORD = (bytes, bytearray, memoryview, tuple, Record, dict, str)
_MAX_EPOCH = 2**31 - 1


class AppendMixin:
    """Methods of a log opened with mode "a"; in mode "r" each raises ReadOnlyLog.

    Threads: all methods, from any thread; appends are put in order by the log's lock.
    """

    __slots__ = ()

    _opened: OpenedLog | None

    def opened_for_append(self) -> OpenedLog:
        """The open log behind this face; ReadOnlyLog in mode "r", LogClosed after `close`, IllegalState in a fork.

        >>> log.opened_for_append().path == log.path
        True
        """
        opened = self._opened
        if opened is None:
            raise ReadOnlyLog(f"{self!r} was opened for reading")
        if opened.closed:
            opened.refuse()
        return opened

    def append(
        self, records: OneRecord | Iterable[OneRecord], *, compression: str | None = None, **unknown: Never
    ) -> LogAppendInfo:
        """The offsets and times of one batch made of `records`, once it is in the log.

        One record, or an iterable of them, which makes ONE batch. A record is its value (bytes-like), a
        tuple `(key, value)`, `(key, value, timestamp)` or `(key, value, timestamp, headers)`, a `Record`,
        or a dict with those names. None as key or value is Kafka's null. A timestamp is in ms; records
        without one get the clock's, one reading for the whole batch. An empty iterable writes nothing.

        `compression` is gzip, snappy, lz4 or zstd, with a level where the codec has some ("zstd:9"). A topic whose
        `compression.type` is a codec, or `uncompressed`, decides itself.

        Raises TypeError for a str (encode it first), RecordTooLarge over max.message.bytes (of what is
        written: after compression), InvalidTimestamp, InvalidRecord, UnsupportedCompression for an unknown
        codec, IllegalArgument for a level that a codec does not have. Nothing is written when it raises.

        >>> info = log.append([b"value", (b"key", b"value"), (b"key", b"value", 1000)], compression="zstd")
        >>> info.first_offset, info.last_offset
        (2, 4)
        >>> log.append({"value": b"v", "headers": [("source", b"web")]}).last_offset
        5
        """
        opened = self._opened
        if opened is None:
            opened = self.opened_for_append()
        if unknown:
            raise unknown_keyword("append", unknown, ("records", "compression"))
        asked = None if compression is None else parse_compression(compression)
        if type(records) is not list:
            records = [records] if isinstance(records, _ONE_RECORD) else _as_list(records)
        try:
            batch = encode_batch(records, timestamp=opened.milliseconds())
            if asked is None and opened.log.config.compression_type in _AS_BUILT:
                info = opened.append_as_leader(batch)
            else:
                info = append_built(opened, batch, asked)
        except BadRecord as error:
            raise refused(error, opened.path) from None
        except OverflowError:
            raise InvalidTimestamp(
                "a timestamp is too large for 64 bits: ms since 1970 are meant", path=opened.path
            ) from None
        except KafkalogError as error:
            _locate(error, opened.path)
            raise
        if opened.after_append is not None:
            opened.after_append()
        return info

    def append_bytes(self, batches: Buffer, **unknown: Never) -> LogAppendInfo:
        """The offsets of ready-made batches, whatever base offset they carry: the log assigns its own.

        `batches` holds whole batches of any format and codec back to back; a torn batch at the end is left out, as
        the reference does (`valid_bytes` of the result says how much was taken). Messages of format v0 and v1 become
        v2 batches, plain ones joined as far as max.message.bytes allows, and a topic whose `compression.type` is a
        codec gets all in that codec. What needs none of this is edited in place in a writable bytearray (base offset,
        leader epoch, append time); anything else is copied. Several batches count as several appends; all are checked
        before the first is written.

        Raises CorruptRecord, RecordTooLarge (also for what conversion made too large), InvalidRecord (control batches
        among others) and InvalidTimestamp, IllegalArgument for an unknown codec.

        >>> batch = bytes(next(log.batches()))
        >>> log.append_bytes(batch + batch).last_offset
        5
        """
        opened = self._opened
        if opened is None:
            opened = self.opened_for_append()
        if unknown:
            raise unknown_keyword("append_bytes", unknown, ("batches",))
        if type(batches) is bytearray:
            buffer = batches
        else:
            buffer = bytearray(batches if type(batches) is bytes else memoryview(batches))
        table = scan(buffer)
        try:
            if table.count == 1:
                info = opened.append_as_leader(buffer, table=table, any_base_offset=True)
            else:
                info = opened.append_batches(buffer, table)
        except KafkalogError as error:
            _locate(error, opened.path)
            raise
        if opened.after_append is not None:
            opened.after_append()
        return info

    def append_arrow(
        self,
        data: Any,
        *,
        columns: Mapping[str, str | None] | None = None,
        compression: str | None = None,
        batch_bytes: int = ARROW_BATCH_BYTES,
        **unknown: Never,
    ) -> LogAppendInfo:
        """The offsets of the rows of `data`, Arrow data of any library, each row a record (docs/arrow.md).

        A column `value` (binary or string) there must be; `key` (the same), `timestamp` (any unit, or int64 ms; null
        is now) and `headers` (list of structs key, value) may be, other columns are passed over. `columns` says what
        a part is called where that is not its name ({"value": "payload"}), None leaves it out. Rows become batches of
        at most `batch_bytes` and max.message.bytes; `compression` as for `append`.

        Data is written as it is read, some megabytes at a time: what it raises after that leaves the rows before in
        the log, and the error's `offset` is where they end. Offsets of other writers may lie between.

        Raises TypeError for what is no Arrow data, IllegalArgument for a missing column, one of a wrong type, and data
        that contradicts itself, RecordTooLarge, InvalidTimestamp, InvalidRecord.

        >>> log.append_arrow(log.table(["value"])).last_offset
        3
        """
        opened = self.opened_for_append()
        if unknown:
            raise unknown_keyword("append_arrow", unknown, ("data", "columns", "compression", "batch_bytes"))
        asked = None if compression is None else parse_compression(compression)
        info = append_arrow(opened, data, columns, asked, batch_bytes)
        if opened.after_append is not None:
            opened.after_append()
        return info

    def replicate(self, batches: Buffer, *, leader_epoch: int | None = None, **unknown: Never) -> LogAppendInfo:
        """The offsets of batches copied from another log: they keep offset, epoch and time (a follower's append).

        Batches from the first one whose leader epoch is above `leader_epoch` on are left out (LOG-81);
        None takes all. Gaps between offsets stay. Raises UnexpectedAppendOffset below the log end,
        OffsetsOutOfOrder, CorruptRecord.

        >>> with kafkalog.open("data/copy-0", "a") as copy:
        ...     copy.replicate(b"".join(map(bytes, log.batches()))).last_offset
        1
        """
        opened = self.opened_for_append()
        if unknown:
            raise unknown_keyword("replicate", unknown, ("batches", "leader_epoch"))
        epoch = _MAX_EPOCH if leader_epoch is None else max(min(operator.index(leader_epoch), _MAX_EPOCH), -_MAX_EPOCH)
        buffer = batches if isinstance(batches, bytes | bytearray) else bytes(memoryview(batches))
        try:
            info = opened.append_as_follower(buffer, epoch)
        except KafkalogError as error:
            _locate(error, opened.path)
            raise
        if opened.after_append is not None:
            opened.after_append()
        return info

    def writer(
        self,
        *,
        linger_ms: float | None = None,
        batch_bytes: int = BATCH_BYTES,
        buffer_memory: int = BUFFER_MEMORY,
        compression: str | None = None,
        sync: Sync | None = None,
        **unknown: Never,
    ) -> Writer:
        """A `Writer` that joins single records of many threads into batches; `compression` as for `append`.

        `sync` as for `kafkalog.open`, which it has from there where it is None: with True a handle has its result
        when the record is on disk, and all threads that wait share one sync.

        >>> with log.writer(compression="lz4", sync=True) as writer:
        ...     writer.append(b"value", key=b"key").result()
        2
        """
        if unknown:
            known = ("linger_ms", "batch_bytes", "buffer_memory", "compression", "sync")
            raise unknown_keyword("writer", unknown, known)
        return Writer(
            self,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_memory=buffer_memory,
            compression=compression,
            sync=sync,
        )

    def flush(self) -> None:
        """Returns when all data appended so far, its indexes and directory entries are on disk.

        >>> log.flush()
        """
        with deferred_interrupts():
            self.opened_for_append().log.flush()

    def roll(self) -> int:
        """The base offset of the new active segment (the log end; an empty active segment is replaced).

        >>> log.roll(), len(log.segments)
        (2, 2)
        """
        with deferred_interrupts():
            return self.opened_for_append().log.roll().base_offset

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log back so that it ends at `offset`; False where it ended there or before already.

        Inside a batch the whole batch goes while the log end is the offset asked for, as in the reference.

        >>> log.truncate_to(1), log.end_offset, list(log)
        (True, 1, [])
        """
        with deferred_interrupts():
            opened = self.opened_for_append()
            with opened.left_alone():
                opened.announce_cut(operator.index(offset))
                cut = opened.log.truncate_to(operator.index(offset))
                if cut:
                    opened.record_cut()
            return cut

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log: it begins and ends at `offset`, the one that the next record gets.

        A copy of a log whose first records are gone begins so; on what was in the log this has no mercy.
        IllegalArgument for an offset that is negative or has more than 63 bits.

        >>> log.truncate_fully_and_start_at(1000)
        >>> log.append(b"value").first_offset
        1000
        """
        offset = operator.index(offset)
        if not 0 <= offset < 2**63:
            raise IllegalArgument(f"a log cannot start at {offset}", hint="give the offset of its next record")
        with deferred_interrupts():
            opened = self.opened_for_append()
            with opened.left_alone():
                opened.announce_cut(offset)
                opened.log.truncate_fully_and_start_at(offset)
                opened.record_cut()

    def delete_before(self, offset: int) -> int:
        """The new log start, after records below `offset` are given up (-1: all up to the log end).

        Whole segments below it are deleted; reads below it raise OffsetOutOfRange, also after a reopen: the
        start is on disk when this returns. OffsetOutOfRange for an offset beyond the log end.

        >>> log.delete_before(1), [record.offset for record in log]
        (1, [1])
        """
        with deferred_interrupts():
            opened = self.opened_for_append()
            upto = opened.log.high_watermark if offset == -1 else operator.index(offset)
            # before the first file goes: a crash among them must not give back part of what they held
            try:
                if opened.log.maybe_increment_log_start_offset(upto):
                    opened.record_log_start()
            except StorageError as error:
                if is_disk_failure(error):
                    raise
                # a full disk: it is tried again once the deletes have made room
            start = opened.log.delete_before(upto)
            opened.record_log_start()
            return start

    @property
    def settings(self) -> dict[str, str]:
        """The topic settings that differ from the defaults, by their dotted names.

        >>> with kafkalog.open("data/clicks-0", "a", retention_ms=86_400_000) as clicks:
        ...     clicks.settings
        {'retention.ms': '86400000'}
        """
        return dict(self.opened_for_append().log.config.overrides())


def append_built(opened: OpenedLog, batch: bytearray, asked: Compression | None) -> LogAppendInfo:
    """Appends one uncompressed batch, compressed as the topic wants it or else as `asked`; errors as `Log.append`."""
    compression = choose(opened.log.config, asked)
    if not compression:
        return opened.append_as_leader(batch)
    return opened.append_batches(opened.pack(batch, compression, check_records=True), check_records=False)


def _locate(error: KafkalogError, path: str) -> None:
    """Gives an error that names no file the partition's directory."""
    if error.path is None:
        error.path = path


def _as_list(records: object) -> list[Any]:
    """`records` as a list; TypeError that says what is taken."""
    if records is None or not isinstance(records, Iterable):
        raise TypeError(
            f"cannot append {type(records).__name__}: give bytes, (key, value[, timestamp[, headers]]), "
            "a Record, a dict, or an iterable of these"
        )
    return list(records)
