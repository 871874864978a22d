"""Records of one task as Arrow batches, in Spark's schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    KafkalogError,
    PartitionNotFound,
)
from kafkalog.log.log import Log
from kafkalog.log.scan import LogScan
from kafkalog.log.selection import Selection
from kafkalog.log.typed_keywords import selection_of
from kafkalog.log.typed_scan import SAMPLE_ROWS, first_values
from kafkalog.reading.chunks import IN_A_BATCH
from kafkalog.records.column_reader import COLUMNS
from kafkalog.spark.damage import SKIP_HINT, report_to
from kafkalog.spark.file_systems import file_system
from kafkalog.spark.range_scan import LOST_HINT, RangeScan, after_damage, check_topic, is_loss, warn_of_loss
from kafkalog.spark.row_schema import arrow_schema
from kafkalog.storage.readonly.view import LogView
from kafkalog.where.bounds import EVERY, Spans, shared

if TYPE_CHECKING:
    from kafkalog.exchange.ranges import OffsetRange
    from kafkalog.records.table import RecordBatchColumns
    from kafkalog.spark.options import SourceOptions
    from kafkalog.spark.typed_columns import TypedColumns
    from kafkalog.storage.damage import Skipped
    from kafkalog.util.checkpoint_cache import CheckpointCache

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 << 20
"""Most records, and most bytes of keys, values and headers, in an Arrow batch: Spark is fastest with these."""


UNDECODABLE_HINT: Final = "set onUndecodable to null to get null, and the reason in a column of its own"


def arrow_batches(
    part: OffsetRange,
    columns: tuple[str, ...],
    options: SourceOptions,
    *,
    checkpoints: CheckpointCache | None = None,
    times: Spans = EVERY,
    typed: TypedColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, as record batches of bounded size with Spark's types for `columns`.

    `typed` says how some of them are decoded. Batches whose header rules out `times` (ms) are left out. The ranges of a
    task, which are in the same data directories, share `checkpoints`. Raises as `Log.records` does, with file, offset
    and position; InvalidRecord for what does not decode. Options decide on missing records and damaged batches. What is
    left out for damage is logged, and written to `corrupt_report` when the range is finished.
    """
    skipped: list[Skipped] = []
    fs = file_system(options)
    try:
        with Log(LogView(part.directory, fs=fs, checkpoints=checkpoints), None) as log:
            check_topic(part)
            if typed is None:
                yield from _batches_of_log(log, part, columns, options, skipped, times)
            else:
                yield from _typed_batches(log, part, columns, options, skipped, times, typed)
    except KafkalogError as error:
        if not is_loss(error) or not _is_of(part, error):
            raise
        if options.fail_on_data_loss:
            error.hint = LOST_HINT
            raise
        warn_of_loss(str(part.topic_partition), part.start, part.stop, error)
    else:
        check_topic(part)  # files are opened on the way: their records may be the other topic's
    finally:
        report_to(options.corrupt_report, part, skipped)


def _is_of(part: OffsetRange, error: KafkalogError) -> bool:
    """Return False if it is this node that lacks a file: a schema, or the whole data directory."""
    if isinstance(error, PartitionNotFound) and not os.path.exists(os.path.dirname(part.directory)):
        return False
    return error.path is None or os.path.join(error.path, "").startswith(os.path.join(part.directory, ""))


def _batches_of_log(
    log: Log,
    part: OffsetRange,
    columns: tuple[str, ...],
    options: SourceOptions,
    skipped: list[Skipped],
    times: Spans,
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(columns)
    selection = condition_of(log, options)
    if selection is None:
        for piece in _pieces(log, part, columns, times, options, skipped):
            yield _as_arrow(piece, schema, part)
        return
    scanned = tuple(dict.fromkeys(("offset", *columns, *selection.columns)))
    for piece in _pieces(log, part, scanned, shared(times, selection.bounds.times), options, skipped):
        matching = _matching(pa.record_batch(piece), selection, part)
        if matching.num_rows:
            yield _as_arrow(_Rows(matching.select(columns)), schema, part)


def _typed_batches(
    log: Log,
    part: OffsetRange,
    columns: tuple[str, ...],
    options: SourceOptions,
    skipped: list[Skipped],
    times: Spans,
    typed: TypedColumns,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range with decoded columns; InvalidRecord names the file of what does not decode."""
    plain = [name for name in columns if name in arrow_schema(COLUMNS).names and name not in typed.settled]
    schema = arrow_schema(plain)
    condition = condition_of(log, options, typed)
    scanned = tuple(dict.fromkeys(
        ("offset", *plain, *typed.selection.columns, *(() if condition is None else condition.columns))
    ))  # fmt: skip
    if condition is not None:
        times = shared(times, condition.bounds.times)
    for piece in _pieces(log, part, scanned, times, options, skipped):
        matching = _matching(pa.record_batch(piece), condition, part)
        if not matching.num_rows:
            continue
        try:
            found = typed.selection.batch(matching)
        except InvalidRecord as error:
            error.path, error.hint = part.directory, UNDECODABLE_HINT
            raise
        rest = _as_arrow(_Rows(matching.select(plain)), schema, part)
        try:
            fit = typed.fit(found, rest, columns)
        except pa.ArrowInvalid as error:
            offsets = matching.column("offset")
            raise InvalidTimestamp(
                f"a time in a key or value at offsets {offsets[0]} to {offsets[-1]} is outside the range of Spark's "
                f"timestamps: {error}",
                path=part.directory,
                hint="give a schema of your own in which the column is binary",
            ) from None
        yield fit


def _matching(batch: pa.RecordBatch, condition: Selection | None, part: OffsetRange) -> pa.RecordBatch:
    """Return the rows for which a condition is true; InvalidRecord names the file of what does not decode."""
    try:
        mask = None if condition is None else condition.mask(batch)
    except InvalidRecord as error:
        error.path, error.hint = part.directory, UNDECODABLE_HINT
        raise
    return batch if mask is None else batch.filter(mask)


def condition_of(log: Log, options: SourceOptions, typed: TypedColumns | None = None) -> Selection | None:
    """Return the selection of the records that the option `where` asks for; None without it.

    Types of JSON that nothing else gives are those of the log's first values, where the condition fits them; others are
    those of `typed`, if it has them. Raises IllegalArgument for a condition or decoders that do not fit.
    """
    if options.where is None:
        return None
    given = dict(options.decoding)
    known: dict[str, Any] | None = None
    if typed is not None:
        roots = [root for root in ("key", "value") if root in given]
        if all(root in typed.settled for root in roots):
            known = {"where": options.where, **typed.lenient, **typed.selection.decoders}
            if "json" not in given.values():
                return selection_of(["offset"], known)

    def sample(root: str) -> list[bytes]:
        reading: dict[str, Any] = {"batch_rows": SAMPLE_ROWS, "on_damage": options.on_damage}
        return first_values([LogScan(log, log.start_offset, log.end_offset, [root], **reading)], root)

    try:
        return selection_of(["offset"], {"where": options.where, **given}, sample, log.topic)
    except IllegalArgument:
        if known is None:
            raise
        return selection_of(["offset"], known)  # the log's first values alone do not fit, or are no JSON


def _pieces(
    log: Log, part: OffsetRange, columns: tuple[str, ...], times: Spans, options: SourceOptions, skipped: list[Skipped]
) -> Iterator[RecordBatchColumns]:
    """Yield the columns of a range; damage inside a batch is raised, or left out, as the options say."""
    start = part.start
    while True:
        scan = RangeScan(
            log, start, part.stop, columns, options, skipped, batch_rows=BATCH_ROWS, batch_bytes=BATCH_BYTES,
            times=times,
        )  # fmt: skip
        try:
            for piece in scan:
                yield piece
                start = _after(piece, start)
            return
        except IN_A_BATCH as error:
            if options.on_damage != "skip":
                if isinstance(error, CorruptRecord):
                    error.hint = SKIP_HINT
                raise
            start = after_damage(log, error, start, options, skipped)


def _after(piece: RecordBatchColumns, start: int) -> int:
    """Return the offset after the yielded records; `start` without a column of offsets."""
    return int(piece.offsets[-1]) + 1 if len(piece) and "offset" in piece.columns else start


class _Rows:
    """A record batch whose columns are cast to a requested schema, as those of a scan are."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._batch.__arrow_c_array__(requested_schema)  # type: ignore[no-any-return]


def _as_arrow(piece: RecordBatchColumns | _Rows, schema: pa.Schema, part: OffsetRange) -> pa.RecordBatch:
    try:
        batch = pa.record_batch(piece, schema=schema)
    except ValueError as error:
        raise InvalidTimestamp(
            f"a timestamp at offsets {part.start} to {part.stop - 1} is outside the range of Spark's timestamps",
            path=part.directory,
            hint="set columns to read all but timestamp",
        ) from error
    return with_null_headers(batch) if "headers" in schema.names else batch


def with_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with null in place of empty headers, as the Kafka source returns them."""
    import pyarrow.compute as pc

    at = batch.schema.get_field_index("headers")
    headers = batch.column(at)
    empty = pc.equal(pc.list_value_length(headers), 0)
    if not pc.any(empty).as_py():
        return batch
    made = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=empty)
    return batch.set_column(at, batch.schema.field(at), made)
