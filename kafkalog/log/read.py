"""The reading half of `Log`: slices, records, batches, new records, and look-ups by time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, overload

from kafkalog._core.batch.record import Record
from kafkalog.errors import IllegalArgument
from kafkalog.log.slice import LogSlice, clamped
from kafkalog.reading import chunks
from kafkalog.reading.source import end_of, first_offset, isolation_of, look, refresh, refreshed, skipped_of
from kafkalog.reading.tail import check_timeout
from kafkalog.reading.tail import tail as new_records
from kafkalog.records.batch import RecordBatch
from kafkalog.types import Isolation, OffsetAndTimestamp
from kafkalog.util.keywords import unknown_keyword
from kafkalog.util.times import Time, moment_ms

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.log.matching import DecodedRecord
    from kafkalog.storage.damage import Skipped
    from kafkalog.where import Expression

Item = TypeVar("Item")
_DECODING: Final = (
    "key", "value", "on_undecodable", "schema", "schemas", "registry", "subject", "message", "framing",
)  # fmt: skip
_RANGE: Final = ("start", "stop", "since", "until", "isolation", "on_damage", "skipped")


def slice(
    log: Log,
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
    source = refreshed(log._source)
    first = source.log_start_offset
    end = max(first, end_of(source, level))
    return LogSlice(log, clamped(start, first, first, end), clamped(stop, end, first, end), isolation)


@overload
def records(
    log: Log,
    start: int | None = None,
    stop: int | None = None,
    *,
    since: Time | None = ...,
    until: Time | None = ...,
    isolation: str | None = ...,
    on_damage: str = ...,
    skipped: list[Skipped] | None = ...,
    where: str | Expression | None = ...,
) -> Iterator[Record]: ...
@overload
def records(
    log: Log, start: int | None = None, stop: int | None = None, **arguments: Any
) -> Iterator[DecodedRecord]: ...
def records(
    log: Log,
    start: int | None = None,
    stop: int | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    where: str | Expression | None = None,
    **typed: Any,
) -> Iterator[Record] | Iterator[DecodedRecord]:
    """Yield the records with offsets in [start, stop), in order; default: from the log start to the log end.

    `since` and `until` are bounds by time instead: reading starts at the first record at or after `since`, and ends
    before the first one at or after `until`. Control records are left out, as for a consumer.

    `isolation` sets the end of reading: the log end for None, "log_end" and "read_uncommitted"; the high watermark
    for "high_watermark"; the last stable offset for "read_committed", which also leaves out records of aborted
    transactions. Negative offsets count back from that end.

    Every record of every intact batch is yielded, or an error is raised. `on_damage="skip"` skips bytes that are no
    intact batch and continues after them; each skipped range is logged as a warning and appended to the list
    `skipped`.

    With `where`, a condition (docs/where.md), only the records for which it is true are yielded.

    With `key` or `value`, the name of a decoder, each is a `DecodedRecord`: a named tuple with the decoded key or value
    and the stored `record`. `on_undecodable`, `schema`, `schemas`, `registry`, `subject`, `message` and `framing` are
    as for `scan`. A condition may then look into the decoded value.

    Raises OffsetOutOfRange for a start outside the log. Iteration raises CorruptRecord at damage, after all records
    before it; InvalidRecord for damage inside a batch whose checksum is right; IllegalArgument for an unknown
    codec; OffsetOutOfRange when the log is truncated or deleted below the reader.

    >>> [record.value for record in log.records(start=1)]
    [b'second']
    >>> [record.offset for record in log.records(where="value like 's%' or header.trace is not null")]
    [1]
    >>> list(log.records(since="2100-01-01"))
    []
    >>> [(one.offset, one.value) for one in log.records(value="string", where="value == 'second'")]
    [(1, 'second')]
    """
    if unknown := {one: 0 for one in typed if one not in _DECODING}:
        raise unknown_keyword("records", unknown, (*_RANGE, "where", *_DECODING))
    decoded = [root for root in ("key", "value") if typed.get(root) is not None]
    if where is None and not decoded:
        if given := next((name for name, value in typed.items() if value is not None), None):
            raise IllegalArgument(f"{given} is given, but nothing is decoded", hint="give value= or key= as well")
        return _read(chunks.records, log, (start, stop, since, until), isolation, on_damage, skipped)
    from kafkalog.log.matching import matching_records, records_decoded
    from kafkalog.log.typed_scan import typed_scan

    level = isolation_of(isolation)
    first, last = offset_range(log, start, stop, since, until, level, on_damage == "skip")
    options = {"isolation": isolation, "on_damage": on_damage, "skipped": skipped}
    if decoded:
        return records_decoded(log, (first, last), decoded, where, typed, options)
    return matching_records(typed_scan(log, first, last, ["offset"], {"where": where, **typed}, options))


def batches(
    log: Log,
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
    return _read(chunks.batches, log, (start, stop, since, until), isolation, on_damage, skipped)


def _read(
    read: Callable[..., Iterator[Item]],
    log: Log,
    bounds: tuple[int | None, int | None, Time | None, Time | None],
    isolation: str | None,
    on_damage: str,
    skipped: list[Skipped] | None,
) -> Iterator[Item]:
    """Return the iterator of `chunks.records` or `chunks.batches` for the arguments of `records`."""
    level = isolation_of(isolation)
    damage = skipped_of(on_damage, skipped)
    first, last = offset_range(log, *bounds, level, damage is not None)
    return read(log._source, first, last, owner=log, committed=level == "committed", skipped=damage)


def tail(
    log: Log,
    timeout: float | None = None,
    start: int | None = None,
    *,
    isolation: str | None = None,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **unknown: Never,
) -> Iterator[Record]:
    """Yield records from `start` (default: the current end) and wait for new ones; keywords as for `records`.

    Ends after `timeout` seconds without a new record; None waits forever. Raises OffsetOutOfRange for a start
    outside the log, and when the log is truncated below the reader.

    >>> [record.offset for record in log.tail(timeout=0, start=0)]
    [0, 1]
    """
    if unknown:
        raise unknown_keyword("tail", unknown, ("timeout", "start", "isolation", "on_damage", "skipped"))
    level = isolation_of(isolation)
    check_timeout(timeout)
    source = refreshed(log._source)
    end = end_of(source, level)
    damage = skipped_of(on_damage, skipped)
    # the last stable offset may lie below the log start, in the batch of an open transaction (LOG-30)
    first = max(end, source.log_start_offset) if start is None else first_offset(source, start, end, damage is not None)
    return new_records(source, first, timeout, owner=log, isolation=level, skipped=damage)


def offset_range(
    log: Log,
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
            "one bound has both an offset and a time", hint="give start or since, stop or until"
        )
    source = refreshed(log._source)
    end = end_of(source, isolation)
    if since is not None:  # the record, or the last stable offset, may lie below the log start
        start = max(_offset_of_time(log, since, end), source.log_start_offset)
    if until is not None:
        stop = _offset_of_time(log, until, end)
    first = source.log_start_offset if start is None else first_offset(source, start, end, skips)
    if stop is None:
        return first, end
    stop = operator.index(stop)
    return first, min(end, max(stop + end if stop < 0 else stop, 0))


def _offset_of_time(log: Log, time: Time, end: int) -> int:
    found = _find_time(log, moment_ms(time))
    return end if found is None else found.offset


def offset_for_time(
    log: Log, time: Time, *, isolation: str | None = None, **unknown: Never
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
    return _find_time(log, moment_ms(time), isolation_of(isolation))


def _find_time(log: Log, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
    source = log._source
    if timestamp < 0:
        if timestamp < -3:
            raise IllegalArgument(f"time {timestamp} is before 1970", hint="no record has a negative timestamp")
        refresh(source)
    else:
        look(source)
    found = source.offset_for_time(timestamp, isolation)
    if found is None:
        refresh(source)  # the record may be newer than the last look
        found = source.offset_for_time(timestamp, isolation)
    return found
