"""RecordsBuilder: builds one v2 batch record by record, with the reference's offsets, flags and errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkalog._core.batch.encode import BatchBuilder
from kafkalog._core.batch.repack import with_payload
from kafkalog.errors import IllegalArgument, IllegalState, RecordBatchTooLarge
from kafkalog.records.compression import check_codec, compress
from kafkalog.records.control import control_type
from kafkalog.records.format import (
    BATCH_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    CompressionType,
    TimestampType,
)

_MAX_INT = 2**31 - 1
Headers = Iterable[tuple[str, bytes | None]]


class BuilderInfo(NamedTuple):
    """Largest timestamp (ms) of the built records and the offset reported with it; (-1, -1) without timestamps."""

    max_timestamp: int
    offset_of_max_timestamp: int


class RecordsBuilder:
    """Builder of one v2 batch that starts at `base_offset`.

    Offsets must strictly increase (REC-24); a timestamp is ms or -1 (REC-25); flags must be consistent (REC-26,
    REC-30). `level` is the codec's level, None for its default. LegacyBuilder builds formats v0 and v1.
    """

    def __init__(
        self,
        base_offset: int = 0,
        *,
        magic: int = MAGIC_V2,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        leader_epoch: int = -1,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if magic != MAGIC_V2:
            raise IllegalArgument(f"batches have format v2, not v{magic}", hint="LegacyBuilder builds v0 and v1")
        self._compression = check_codec(compression)
        self._level = level
        self._check_flags(producer_id, producer_epoch, base_sequence, is_transactional, is_control)
        if timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise IllegalArgument("format v2 needs CreateTime or LogAppendTime")
        if timestamp_type == TimestampType.LOG_APPEND_TIME and log_append_time < 0:
            raise IllegalArgument(f"LogAppendTime needs the append time, not {log_append_time}")
        self.base_offset = base_offset
        self.is_control = is_control
        self._append_time = log_append_time if timestamp_type == TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        self._header = {
            "base_offset": base_offset,
            "leader_epoch": leader_epoch,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": base_sequence,
            "transactional": is_transactional,
            "control": is_control,
            "append_time": self._append_time,
        }
        self._inner = BatchBuilder(_MAX_INT, delete_horizon_ms=delete_horizon_ms)
        self._last_offset: int | None = None
        self._built: bytearray | None = None
        self._info = BuilderInfo(NO_TIMESTAMP, -1)
        self._aborted = False

    @staticmethod
    def _check_flags(producer_id: int, epoch: int, sequence: int, transactional: bool, control: bool) -> None:
        if transactional and producer_id == NO_PRODUCER_ID:
            raise IllegalArgument("a transactional batch needs a producer id")
        if producer_id == NO_PRODUCER_ID:
            return
        if epoch == NO_PRODUCER_EPOCH:
            raise IllegalArgument(f"producer id {producer_id} needs a producer epoch")
        if sequence < 0 and not control:
            raise IllegalArgument(f"producer id {producer_id} needs a base sequence")

    @property
    def count(self) -> int:
        """Number of records appended so far."""
        return self._inner.count

    @property
    def is_closed(self) -> bool:
        """True once `build` was called."""
        return self._built is not None

    @property
    def next_offset(self) -> int:
        """Offset of the next record appended; the base offset for an empty builder (REC-28)."""
        return self.base_offset if self._last_offset is None else self._last_offset + 1

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Append a record and return its offset, which is the next one unless `offset` is given."""
        if self.is_control:
            raise IllegalArgument("only control records go into a control batch")
        return self._append(timestamp, key, value, headers, offset)

    def append_control(self, timestamp: int, key: bytes, value: bytes | None, *, offset: int | None = None) -> int:
        """Append a control record; only a control batch takes one, and a marker needs a transactional batch (REC-30).

        Unknown types are accepted unchanged. Raises InvalidRecord if `key` is not the key of a control record.
        """
        if not self.is_control:
            raise IllegalArgument("control records go into a control batch only")
        if control_type(key).is_marker and not self._header["transactional"]:
            raise IllegalArgument("a transaction marker needs a transactional batch with a producer")
        return self._append(timestamp, key, value, (), offset)

    def _append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, offset: int | None
    ) -> int:
        if self._aborted or self.is_closed:
            raise IllegalState("this builder is closed: it accepts no more records")
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise IllegalArgument(f"timestamp {timestamp} is negative: give ms since 1970, or -1 for none")
        at = self.next_offset if offset is None else offset
        if self._last_offset is not None and at <= self._last_offset:
            raise IllegalArgument(f"offset {at} is not above {self._last_offset}: offsets must increase")
        delta = at - self.base_offset
        if not 0 <= delta <= _MAX_INT:
            raise IllegalArgument(
                f"offset {at} is {delta} from base offset {self.base_offset}: 0 to {_MAX_INT} are allowed"
            )
        if not self._inner.append(value, key, timestamp, tuple(headers), offset_delta=delta):
            raise RecordBatchTooLarge(f"a batch has at most {_MAX_INT} bytes, and this record exceeds that")
        self._last_offset = at
        return at

    def build(self) -> bytearray:
        """Return the batch; 0 bytes if no record was appended (REC-28). Later calls return the same bytes."""
        if self._aborted:
            raise IllegalState("this builder was aborted: there is nothing to build")
        if self._built is None:
            inner = self._inner
            if inner.count and self._append_time >= 0:
                self._info = BuilderInfo(self._append_time, self.next_offset - 1)
            elif inner.count and inner.max_timestamp >= 0:
                self._info = BuilderInfo(inner.max_timestamp, self.next_offset - 1)
            self._built = self._compressed(inner.build(**self._header))  # type: ignore[arg-type]
        return self._built

    def _compressed(self, plain: bytearray) -> bytearray:
        if not plain or self._compression == CompressionType.NONE:
            return plain
        payload = compress(self._compression, memoryview(plain)[BATCH_OVERHEAD_BYTES:], level=self._level)
        return with_payload(plain, payload, self._compression)

    def info(self) -> BuilderInfo:
        """Return the largest timestamp and its offset; as in the reference for v2, that is the last offset (REC-36)."""
        self.build()
        return self._info

    def abort(self) -> None:
        """Discard the appended records; afterwards `append` and `build` raise IllegalState (REC-29)."""
        if self.is_closed:
            raise IllegalState("this builder is closed: it cannot be aborted")
        self._aborted = True
        self._inner = BatchBuilder(_MAX_INT)
