"""LogValidator: checks that a leader makes before it assigns offsets to a batch, and the batch that results.

The rules and their order are those of format.md section 11, stage C. A batch in the log's format and codec is checked
in place, or decompressed once into an arena; it is written unchanged except for offset, epoch and timestamp. Any other
batch is rebuilt from the uncompressed records (VAL-7, VAL-8). All code that touches records is compiled.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import BatchHeader, BatchTable, scan
from kafkalog._core.log.admit import RecordCheck, check_rows, end_of_magic
from kafkalog._core.log.assign import stamp_batch
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, InvalidRecord, UnsupportedForFormat
from kafkalog.records.compression import check_codec
from kafkalog.records.convert import Rebuilt, rebuild, repack
from kafkalog.records.format import (
    BATCH_OVERHEAD_BYTES,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    NO_TIMESTAMP,
    CompressionType,
)
from kafkalog.records.packing import topic_compression
from kafkalog.records.plain_runs import plain_row
from kafkalog.records.refusals import ValidatorMetrics, header_error, record_validation_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.util.buffers import Data

__all__ = [
    "Checked",
    "ValidationRules",
    "ValidationStats",
    "ValidatorMetrics",
    "check_append",
    "check_batches",
]

_MAX_LONG: Final = 2**63 - 1
_WRAPPER_OVERHEAD: Final = {MAGIC_V0: 26, MAGIC_V1: 34}


@dataclass(slots=True, eq=False)
class ValidationRules:
    """A topic's requirements for batches: codec and level, timestamp type and bounds, keys.

    `codec` None keeps the producer's; `append_time` selects LogAppendTime; the bounds are ms around now. A record of a
    compressed batch may have `most_bytes`.
    """

    codec: CompressionType | None = None
    _: KW_ONLY
    level: int | None = None
    append_time: bool = False
    before_ms: int = _MAX_LONG
    after_ms: int = _MAX_LONG
    need_keys: bool = False
    most_bytes: int = _MAX_LONG

    @classmethod
    def of(cls, config: LogConfig) -> ValidationRules:
        """Return the rules of a topic's settings."""
        required = topic_compression(config)
        return cls(
            None if required is None else required.codec,
            level=None if required is None else required.level,
            append_time=config.message_timestamp_type == "LogAppendTime",
            before_ms=config.message_timestamp_before_max_ms,
            after_ms=config.message_timestamp_after_max_ms,
            need_keys=config.compact,
            most_bytes=config.max_decompressed_message_bytes,
        )

    def bounds(self, now_ms: int) -> tuple[int, int]:
        """Return the oldest and newest timestamp (ms) that a record may have."""
        return max(now_ms - self.before_ms, -_MAX_LONG), min(now_ms + self.after_ms, _MAX_LONG)


class ValidationStats(NamedTuple):
    """Cost of validation: bytes of uncompressed records made besides the batch, and records rebuilt (VAL-21)."""

    temporary_memory_bytes: int = 0
    records_converted: int = 0


class Checked(NamedTuple):
    """A batch that may be appended: `data` is what to write, the given buffer itself or one made from it.

    `table` is the batch table of `data`. `rebuilt` is None unless the batch was rebuilt, so that its size may have
    changed. `max_timestamp` (ms) and `record_count` are those of its records.
    """

    data: Data
    table: BatchTable
    rebuilt: Rebuilt | None
    max_timestamp: int
    record_count: int
    stats: ValidationStats


def check_append(
    buffer: Data,
    table: BatchTable,
    rules: ValidationRules,
    now_ms: int,
    *,
    from_client: bool = True,
    magic: int = MAGIC_V2,
    first_offset: int = 0,
    any_base_offset: bool = False,
    partition: str | None = None,
    metrics: ValidatorMetrics | None = None,
) -> Checked:
    """Return the batch of `table`, or its plain v0 or v1 messages, in a form that may be appended in format `magic`.

    Offsets are still to be assigned, except those of a v0 wrapper, which begins at `first_offset`. A rebuilt batch has
    its final timestamps. In place, a wrong max timestamp or type in the header is corrected, which requires a writable
    `buffer`. Batch checksums are not checked. `from_client` enables the rules for clients. `any_base_offset` states
    that the base offset of a compressed v2 batch has no meaning. `partition` is named in errors sent to the client;
    `metrics` counts faults.

    Raises InvalidRecord and InvalidTimestamp (with `record_errors`), CorruptRecord for a checksum inside a wrapper, and
    UnsupportedForFormat for a producer id in v0 or v1. Raises IllegalArgument for an unknown codec, for headers in v0
    or v1, and if the producer of a batch to be rebuilt has no epoch or sequence.
    """
    rows = table.count
    if rows == 0:
        raise InvalidRecord("the append has no batch")
    source_magic, source = table.magic(0), table.codec
    if rows > 1 and (source_magic >= MAGIC_V2 or source):
        raise InvalidRecord(f"{rows} batches in one append: a compressed batch, or one of format v2, must be alone")
    target = source if rules.codec is None else rules.codec
    same = source == target and source_magic == magic
    packed = bool(source or target)
    in_place = same and not (packed and magic == MAGIC_V0)
    if packed and not source and source_magic == MAGIC_V2 and table.attributes(0) & CONTROL_BIT:
        in_place = source_magic == magic  # control records stay unchanged (VAL-4)
    _check_header(table, from_client, magic, metrics)
    data, plain = (buffer, table) if not source else plain_row(buffer, table, 0)
    check = _check_records(data, plain, table, rules, now_ms, partition, metrics)
    if check.count == 0:  # compaction leaves such batches; appended, one would take no offset
        raise InvalidRecord("the batch has no records", offset=table[0].base_offset)
    if in_place and packed and source:
        in_place = _can_keep_payload(check, plain, magic, any_base_offset)
    if in_place:
        if magic == MAGIC_V2 and not any_base_offset and table[0].last_offset < table[0].base_offset:
            raise InvalidRecord("the batch ends below its base offset", offset=table[0].base_offset)
        if magic == MAGIC_V2 and not rules.append_time:
            stamp_batch(buffer, table, 0, append_time_type=False, timestamp=check.max_timestamp)
        size = check.size + _overhead(magic, source) if packed else 0
        return Checked(buffer, table, None, check.max_timestamp, check.count, ValidationStats(size))
    _check_producer(table[0])
    rebuilt = _rewrite(data, plain, check, rules, target, magic, first_offset, now_ms)
    used = rebuilt.plain_size + (_overhead(magic, target) if magic < MAGIC_V2 and target else 0)
    if packed:
        used += check.size + rows * _overhead(magic, source)
    stats = ValidationStats(used, rebuilt.record_count)
    return Checked(rebuilt.data, scan(rebuilt.data), rebuilt, rebuilt.max_timestamp, rebuilt.record_count, stats)


def _rewrite(
    data: Buffer,
    plain: BatchTable,
    check: RecordCheck,
    rules: ValidationRules,
    codec: int,
    magic: int,
    first_offset: int,
    now_ms: int,
) -> Rebuilt:
    """Rebuild the records in another codec, format or order; if they are fresh, only the header is rebuilt."""
    level = rules.level if rules.codec is not None else None
    append_time = now_ms if rules.append_time else NO_TIMESTAMP
    if check.fresh and plain.magic(0) == magic == MAGIC_V2 and not plain.attributes(0) & DELETE_HORIZON_BIT:
        return repack(
            data,
            plain,
            max_timestamp=check.max_timestamp,
            codec=codec,
            level=level,
            first_offset=first_offset,
            append_time=append_time,
        )
    return rebuild(
        data, plain, magic=magic, codec=codec, level=level, first_offset=first_offset, append_time=append_time
    )


def check_batches(buffer: Data, table: BatchTable, rules: ValidationRules, now_ms: int) -> None:
    """Raise the error for the first batch that a leader would reject from a client, if there is one.

    The batches are uncompressed v2 batches that this library has just built. Raises InvalidRecord and InvalidTimestamp
    as `check_append` does.
    """
    for row in range(table.count):
        fault = table.header_fault(row)
        if fault:
            raise header_error(table[row], fault, None)
        _check_records(buffer, table, table, rules, now_ms, None, None, row, row + 1)


def _check_header(table: BatchTable, from_client: bool, magic: int, metrics: ValidatorMetrics | None) -> None:
    """Check the batch headers (stage C2); `_check_records` finds a second format in the append when it gets there."""
    check_codec(table.codec)
    fault = table.header_fault(0, from_client)
    if fault:
        raise header_error(table[0], fault, metrics)
    if magic < MAGIC_V2 and table.magic(0) >= MAGIC_V2:
        header = table[0]
        what = "Transactional" if header.is_transactional else "Idempotent"
        if header.is_transactional or header.producer_id >= 0:
            raise UnsupportedForFormat(f"{what} records cannot be used with format v{magic}", offset=header.base_offset)


def _check_producer(header: BatchHeader) -> None:
    """Raise IllegalArgument for invalid producer fields, since a rebuilt batch must have valid ones (REC-26)."""
    if header.is_transactional and header.producer_id < 0:
        raise IllegalArgument("a transactional batch needs a producer id", offset=header.base_offset)
    if header.producer_id >= 0 and not header.is_control:
        for name, value in (("epoch", header.producer_epoch), ("base sequence", header.base_sequence)):
            if value < 0:
                raise IllegalArgument(
                    f"producer id {header.producer_id} needs a {name}, not {value}", offset=header.base_offset
                )


def _check_records(
    data: Buffer,
    plain: BatchTable,
    table: BatchTable,
    rules: ValidationRules,
    now_ms: int,
    partition: str | None,
    metrics: ValidatorMetrics | None,
    first: int = 0,
    last: int = -1,
) -> RecordCheck:
    """Check the records (stage C3) and return their summary; raise the error for those that break a rule."""
    bounds = rules.bounds(now_ms)
    last = plain.count if last < 0 else last
    end = min(end_of_magic(plain, first), last)
    check = check_rows(
        data,
        plain,
        first,
        end,
        oldest=bounds[0],
        newest=bounds[1],
        check_times=not rules.append_time,
        need_keys=rules.need_keys,
        inner=plain is not table,
        most_bytes=rules.most_bytes if plain is not table else _MAX_LONG,
    )
    if check.row >= 0:
        raise record_validation_error(
            check, table[check.row], bounds, partition=partition, plain=plain is table, metrics=metrics
        )
    if end < last:
        if metrics is not None:
            metrics.invalid_magic += 1
        raise InvalidRecord(
            f"a batch of format v{plain.magic(end)} follows one of format v{plain.magic(0)} in the same append",
            position=plain.position(end),
        )
    return check


def _can_keep_payload(check: RecordCheck, plain: BatchTable, magic: int, any_base_offset: bool) -> bool:
    """Return True if a compressed batch can keep its payload: its inner offsets are 0, 1, 2 ...

    Some old clients number the messages of a v1 wrapper wrongly; such wrappers are rebuilt (VAL-16). A v2 batch with
    other offsets is rejected: the reference can neither accept nor reject it properly.
    """
    if magic < MAGIC_V2:
        return check.consecutive
    if not check.consecutive:
        raise InvalidRecord("the offsets inside the compressed batch are not consecutive", offset=plain.base_offset(0))
    if plain.base_offset(0) and not any_base_offset:
        raise InvalidRecord(
            f"a compressed batch must begin at offset 0, not {plain.base_offset(0)}", offset=plain.base_offset(0)
        )
    return True


def _overhead(magic: int, codec: int) -> int:
    """Return the bytes of a batch's header or of a wrapper around its messages."""
    if magic == MAGIC_V2:
        return BATCH_OVERHEAD_BYTES
    return _WRAPPER_OVERHEAD[magic] if codec else 0
