"""The writing half of `Log`: records, ready-made batches, Arrow data, another log's batches, and a writer."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from kafkalog._core.batch.encode import BadRecord, encode_ready
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import scan
from kafkalog.errors import InvalidTimestamp, KafkalogError
from kafkalog.log import arrow_append
from kafkalog.log.writer import BATCH_BYTES, BUFFER_MEMORY, Writer, encoding_error
from kafkalog.records.packing import choose, parse_compression
from kafkalog.records.placer import BATCH_BYTES as ARROW_BATCH_BYTES
from kafkalog.storage.group_commit import Sync
from kafkalog.types import LogAppendInfo
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.log.log import Log
    from kafkalog.log.writable import WritableLog
    from kafkalog.records.packing import Compression

BytesLike = bytes | bytearray | memoryview
OneRecord = BytesLike | tuple[object, ...] | Record | dict[str, Any]

_ONE_RECORD = (bytes, bytearray, memoryview, tuple, Record, dict, str)
_MAX_EPOCH = 2**31 - 1


def append(
    log: Log, records: OneRecord | Iterable[OneRecord], *, compression: str | None = None, **unknown: Never
) -> LogAppendInfo:
    """Append `records` as one batch; return its offsets and times.

    `records` is one record or an iterable of records, which makes ONE batch. A record is its value (bytes-like), a
    tuple `(key, value)`, `(key, value, timestamp)` or `(key, value, timestamp, headers)`, a `Record`, or a dict
    with those names. None as key or value is Kafka's null. A timestamp is in ms; records without one get the
    current time, the same for the whole batch. An empty iterable writes nothing.

    `compression` is gzip, snappy, lz4 or zstd, with a level if the codec has levels ("zstd:9"). A topic whose
    `compression.type` is a codec, or `uncompressed`, overrides it.

    Raises TypeError for a str (encode it first), RecordTooLarge over max.message.bytes (measured after
    compression), InvalidTimestamp, InvalidRecord, UnsupportedCompression for an unknown codec, IllegalArgument for
    a level that a codec does not have. Nothing is written when it raises.

    >>> info = log.append([b"value", (b"key", b"value"), (b"key", b"value", 1000)], compression="zstd")
    >>> info.first_offset, info.last_offset
    (2, 4)
    >>> log.append({"value": b"v", "headers": [("source", b"web")]}).last_offset
    5
    """
    opened = log._opened
    if opened is None:
        opened = log.opened_for_append()
    if unknown:
        raise unknown_keyword("append", unknown, ("records", "compression"))
    after = opened.after_append  # before the append: a concurrent `close` removes it
    requested = None if compression is None else parse_compression(compression)
    if type(records) is not list:
        records = [records] if isinstance(records, _ONE_RECORD) else _as_list(records)
    try:
        now_ms = opened.milliseconds()
        batch = encode_ready(records, timestamp=now_ms)
        if requested is not None:
            info = None
        elif (commit := opened.commit) is None:
            info = opened.append_ready(batch, now_ms=now_ms)
        elif info := commit(partial(opened.append_ready, batch, now_ms=now_ms)):
            return info
        if info is None:
            info = append_built(opened, bytearray() if batch is None else batch.data, requested)
    except BadRecord as error:
        raise encoding_error(error, opened.path) from None
    except OverflowError:
        raise InvalidTimestamp(
            "a timestamp does not fit into 64 bits: give ms since 1970", path=opened.path
        ) from None
    except KafkalogError as error:
        _locate(error, opened.path)
        raise
    if after is not None:
        after()
    return info


def append_bytes(log: Log, batches: Buffer, **unknown: Never) -> LogAppendInfo:
    """Append ready-made batches with new offsets, and return these; base offsets in `batches` are ignored.

    `batches` holds whole batches of any format and codec back to back. An incomplete batch at the end is left out,
    as in Kafka (`valid_bytes` of the result is the number of bytes appended). Messages of format v0 and v1
    become v2 batches; uncompressed ones are joined up to max.message.bytes. A topic whose `compression.type` is a
    codec gets all batches in that codec. The bytes of one batch stay as they are. Several batches in a bytearray
    are edited in place (base offset, leader epoch, append time); other buffers are copied. Several batches count as
    several appends; all are checked before the first is written.

    Raises CorruptRecord, RecordTooLarge (also for a batch that conversion made too large), InvalidRecord (for
    control batches among others), InvalidTimestamp, and IllegalArgument for an unknown codec.

    >>> batch = bytes(next(log.batches()))
    >>> log.append_bytes(batch + batch).last_offset
    5
    """
    opened = log._opened
    if opened is None:
        opened = log.opened_for_append()
    if unknown:
        raise unknown_keyword("append_bytes", unknown, ("batches",))
    after = opened.after_append
    try:
        if (commit := opened.commit) is None:
            info = opened.append_ready(batches, any_base_offset=True)
        elif info := commit(partial(opened.append_ready, batches, any_base_offset=True)):
            return info
        if info is None:
            buffer = batches if type(batches) is bytearray else bytearray(memoryview(batches))
            table = scan(buffer)
            if table.count == 1:
                own = bytearray(buffer) if buffer is batches else buffer
                info = opened.append_as_leader(own, table=table, any_base_offset=True)
            else:
                info = opened.append_batches(buffer, table)
    except KafkalogError as error:
        _locate(error, opened.path)
        raise
    if after is not None:
        after()
    return info


def append_arrow(
    log: Log,
    data: object,
    *,
    columns: Mapping[str, str | None] | None = None,
    compression: str | None = None,
    batch_bytes: int = ARROW_BATCH_BYTES,
    **unknown: Never,
) -> LogAppendInfo:
    """Append each row of `data`, Arrow data of any library, as a record; return the offsets (docs/arrow.md).

    The column `value` (binary or string) is required. The columns `key` (of the same types), `timestamp` (any unit,
    or int64 ms; null is now) and `headers` (list of structs key, value) are optional; other columns are ignored.
    `columns` maps a part to a column of another name ({"value": "payload"}); None leaves the part out. Rows become
    batches of at most `batch_bytes` and max.message.bytes; `compression` as for `append`.

    Data is written as it is read, some megabytes at a time. After an error the rows written before it stay in the
    log, and the error's `offset` is the end of them. Records of other writers may lie between them.

    Raises TypeError for anything but Arrow data; IllegalArgument for a missing column, a column of a wrong type,
    and inconsistent data; RecordTooLarge, InvalidTimestamp, InvalidRecord.

    >>> log.append_arrow(log.table(["value"])).last_offset
    3
    """
    opened = log.opened_for_append()
    if unknown:
        raise unknown_keyword("append_arrow", unknown, ("data", "columns", "compression", "batch_bytes"))
    requested = None if compression is None else parse_compression(compression)
    after = opened.after_append
    info = arrow_append.append_arrow(opened, data, columns, requested, batch_bytes)
    if after is not None:
        after()
    return info


def replicate(log: Log, batches: Buffer, *, leader_epoch: int | None = None, **unknown: Never) -> LogAppendInfo:
    """Append batches of another log with their offsets, epochs and times (a follower's append); return the offsets.

    The first batch whose leader epoch is above `leader_epoch`, and all after it, are left out (LOG-81); None
    appends all. Gaps between offsets stay. Raises UnexpectedAppendOffset below the log end, OffsetsOutOfOrder,
    CorruptRecord.

    >>> with kafkalog.open("data/copy-0", "a") as copy:
    ...     copy.replicate(b"".join(map(bytes, log.batches()))).last_offset
    1
    """
    opened = log.opened_for_append()
    if unknown:
        raise unknown_keyword("replicate", unknown, ("batches", "leader_epoch"))
    after = opened.after_append
    epoch = _MAX_EPOCH if leader_epoch is None else max(min(operator.index(leader_epoch), _MAX_EPOCH), -_MAX_EPOCH)
    buffer = batches if isinstance(batches, bytes | bytearray) else bytes(memoryview(batches))
    try:
        info = opened.append_as_follower(buffer, epoch)
    except KafkalogError as error:
        _locate(error, opened.path)
        raise
    if after is not None:
        after()
    return info


def writer(
    log: Log,
    *,
    linger_ms: float | None = None,
    batch_bytes: int = BATCH_BYTES,
    buffer_memory: int = BUFFER_MEMORY,
    compression: str | None = None,
    sync: Sync | None = None,
    **unknown: Never,
) -> Writer:
    """Return a `Writer` that joins single records of many threads into batches; `compression` as for `append`.

    `sync` is as for `kafkalog.open`; None takes the value the log was opened with. With True a handle has its
    result when the record is on disk, and all waiting threads share one sync.

    >>> with log.writer(compression="lz4", sync=True) as writer:
    ...     writer.append(b"value", key=b"key").result()
    2
    """
    if unknown:
        known = ("linger_ms", "batch_bytes", "buffer_memory", "compression", "sync")
        raise unknown_keyword("writer", unknown, known)
    return Writer(
        log,
        linger_ms=linger_ms,
        batch_bytes=batch_bytes,
        buffer_memory=buffer_memory,
        compression=compression,
        sync=sync,
    )


def append_built(opened: WritableLog, batch: bytearray, requested: Compression | None) -> LogAppendInfo:
    """Append one uncompressed batch, compressed by the topic's setting, else by `requested`; errors as `Log.append`."""
    compression = choose(opened.log.config, requested)
    if not compression:
        return opened.append_as_leader(batch)
    return opened.append_batches(opened.pack(batch, compression, check_records=True), check_records=False)


def _locate(error: KafkalogError, path: str) -> None:
    """Set the partition's directory as the path of an error without one."""
    if error.path is None:
        error.path = path


def _as_list(records: object) -> list[Any]:
    """Return `records` as a list; raise TypeError, with the accepted types, if it is not iterable."""
    if records is None or not isinstance(records, Iterable):
        raise TypeError(
            f"cannot append {type(records).__name__}: give bytes, (key, value[, timestamp[, headers]]), "
            "a Record, a dict, or an iterable of these"
        )
    return list(records)
