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
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.compression import check_codec
from kafkalog.records.convert import Rebuilt, rebuild, repack
from kafkalog.records.format import CONTROL_BIT, DELETE_HORIZON_BIT, MAGIC_V2, NO_TIMESTAMP, CompressionType
from kafkalog.records.packing import topic_compression
from kafkalog.records.plain_runs import plain_row
from kafkalog.records.refusals import ValidatorMetrics, header_error, record_validation_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.util.buffers import Data

__all__ = ["Checked", "ValidationRules", "ValidatorMetrics", "check_append", "check_batches"]

_MAX_LONG: Final = 2**63 - 1


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


def check_append(
    buffer: Data,
    table: BatchTable,
    rules: ValidationRules,
    now_ms: int,
    *,
    from_client: bool = True,
    any_base_offset: bool = False,
    partition: str | None = None,
    metrics: ValidatorMetrics | None = None,
) -> Checked:
    """Return the batch of `table`, or its plain v0 or v1 messages, as a v2 batch that may be appended.

    Offsets are still to be assigned. A rebuilt batch has its final timestamps. In place, a wrong max timestamp or type
    in the header is corrected, which requires a writable `buffer`. Batch checksums are not checked. `from_client`
    enables the rules for clients. `any_base_offset` states that the base offset of a compressed v2 batch has no
    meaning. `partition` is named in errors sent to the client; `metrics` counts faults.

    Raises InvalidRecord and InvalidTimestamp (with `record_errors`), CorruptRecord for a checksum inside a wrapper, and
    IllegalArgument for an unknown codec, and if the producer of a batch to be rebuilt has no epoch or sequence.
    """
    rows = table.count
    if rows == 0:
        raise InvalidRecord("the append has no batch")
    source_magic, source = table.magic(0), table.codec
    if rows > 1 and (source_magic >= MAGIC_V2 or source):
        raise InvalidRecord(f"{rows} batches in one append: a compressed batch, or one of format v2, must be alone")
    target = source if rules.codec is None else rules.codec
    in_place = source == target and source_magic == MAGIC_V2
    if not source and source_magic == MAGIC_V2 and table.attributes(0) & CONTROL_BIT:
        in_place = True  # control records stay unchanged (VAL-4)
    _check_header(table, from_client, metrics)
    data, plain = (buffer, table) if not source else plain_row(buffer, table, 0)
    check = _check_records(data, plain, table, rules, now_ms, partition, metrics)
    if check.count == 0:  # compaction leaves such batches; appended, one would take no offset
        raise InvalidRecord("the batch has no records", offset=table[0].base_offset)
    if in_place:
        if source:
            _check_payload_offsets(check, plain, any_base_offset)
        if not any_base_offset and table[0].last_offset < table[0].base_offset:
            raise InvalidRecord("the batch ends below its base offset", offset=table[0].base_offset)
        if not rules.append_time:
            stamp_batch(buffer, table, 0, append_time_type=False, timestamp=check.max_timestamp)
        return Checked(buffer, table, None, check.max_timestamp, check.count)
    _check_producer(table[0])
    rebuilt = _rewrite(data, plain, check, rules, target, now_ms)
    return Checked(rebuilt.data, scan(rebuilt.data), rebuilt, rebuilt.max_timestamp, rebuilt.record_count)


def _rewrite(
    data: Buffer, plain: BatchTable, check: RecordCheck, rules: ValidationRules, codec: int, now_ms: int
) -> Rebuilt:
    """Rebuild the records in another codec, format or order; if they are fresh, only the header is rebuilt."""
    level = rules.level if rules.codec is not None else None
    append_time = now_ms if rules.append_time else NO_TIMESTAMP
    if check.fresh and plain.magic(0) == MAGIC_V2 and not plain.attributes(0) & DELETE_HORIZON_BIT:
        largest = check.max_timestamp
        return repack(data, plain, max_timestamp=largest, codec=codec, level=level, append_time=append_time)
    return rebuild(data, plain, codec=codec, level=level, first_offset=0, append_time=append_time)


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


def _check_header(table: BatchTable, from_client: bool, metrics: ValidatorMetrics | None) -> None:
    """Check the batch headers (stage C2); `_check_records` finds a second format in the append when it gets there."""
    check_codec(table.codec)
    fault = table.header_fault(0, from_client)
    if fault:
        raise header_error(table[0], fault, metrics)


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


def _check_payload_offsets(check: RecordCheck, plain: BatchTable, any_base_offset: bool) -> None:
    """Raise InvalidRecord unless the inner offsets of a compressed batch that keeps its payload are 0, 1, 2 ...

    The reference can neither accept nor reject a batch with other offsets properly.
    """
    if not check.consecutive:
        raise InvalidRecord("the offsets inside the compressed batch are not consecutive", offset=plain.base_offset(0))
    if plain.base_offset(0) and not any_base_offset:
        raise InvalidRecord(
            f"a compressed batch must begin at offset 0, not {plain.base_offset(0)}", offset=plain.base_offset(0)
        )
