"""LegacyBuilder: builds messages of format v0 and v1, plain or in a compressed wrapper, as the reference does."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.records.compression import compress
from kafkalog.records.format import (
    MAGIC_V0,
    MAGIC_V1,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    CompressionType,
    TimestampType,
    codec_name,
)

Headers = Iterable[tuple[str, bytes | None]]


class LegacyBuilder:
    """Builder of format v0 or v1 messages that start at `base_offset` (format.md section 4).

    Without a codec each record is a message, and a batch of its own. With a codec all records become one wrapper with
    the offset of the last record; inner offsets are absolute in v0 and relative in v1. With LogAppendTime (v1) all
    records have the timestamp `log_append_time` (ms). Features that only v2 has, and zstd, raise IllegalArgument
    (REC-27).
    """

    def __init__(
        self,
        base_offset: int = 0,
        *,
        magic: int = MAGIC_V1,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
    ) -> None:
        if magic not in (MAGIC_V0, MAGIC_V1):
            raise IllegalArgument(f"format v{magic} has no messages", hint="RecordsBuilder builds batches of format v2")
        if compression == CompressionType.ZSTD:
            raise IllegalArgument(f"format v{magic} has no {codec_name(compression)}")
        by_log = timestamp_type == TimestampType.LOG_APPEND_TIME
        if by_log and (magic == MAGIC_V0 or log_append_time < 0):
            raise IllegalArgument("LogAppendTime needs format v1 and the append time")
        self.base_offset = base_offset
        self.magic = magic
        self.compression = compression
        self._level = level
        self._append_time = log_append_time if by_log else NO_TIMESTAMP
        self._messages = MessageSet(magic)
        self._last_offset: int | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = -1
        self._built: bytearray | None = None

    @property
    def count(self) -> int:
        """Number of records appended, until `build`."""
        return self._messages.count

    @property
    def next_offset(self) -> int:
        """Offset of the next record appended."""
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
        if self._built is not None:
            raise IllegalState("this builder is closed: it accepts no more records")
        if tuple(headers):
            raise IllegalArgument(f"format v{self.magic} has no headers")
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise IllegalArgument(f"timestamp {timestamp} is negative: give ms since 1970, or -1 for none")
        at = self.next_offset if offset is None else offset
        if at < self.next_offset:
            raise IllegalArgument(f"offset {at} is below the next one, {self.next_offset}: offsets must increase")
        by_log = self._append_time >= 0
        plain = self.compression == CompressionType.NONE
        written = self._append_time if by_log and plain else timestamp
        inner = at if plain or self.magic == MAGIC_V0 else at - self.base_offset
        self._messages.append(inner, written, key, value, attributes=TIMESTAMP_TYPE_BIT if by_log else 0)
        self._last_offset = at
        if self.magic == MAGIC_V1 and timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = at
        return at

    def build(self) -> bytearray:
        """Return the messages or their wrapper; 0 bytes without a record. Later calls return the same bytes."""
        if self._built is None:
            plain = self._messages.build()
            if self.compression == CompressionType.NONE or self._last_offset is None:
                self._built = plain
            else:
                by_log = self._append_time >= 0
                self._built = wrapper(
                    compress(self.compression, plain, level=self._level, magic=self.magic),
                    magic=self.magic,
                    codec=self.compression,
                    offset=self._last_offset,
                    timestamp=self._append_time if by_log else self._max_timestamp,
                    append_time=by_log,
                )
        return self._built

    def info(self) -> tuple[int, int]:
        """Return the largest timestamp and the offset the reference reports with it; (-1, -1) without one (REC-36).

        If the records are compressed, that is the last record's offset. Otherwise it is the offset of the first record
        with that timestamp, or the base offset for LogAppendTime.
        """
        self.build()
        if self._last_offset is None or self.magic == MAGIC_V0:
            return NO_TIMESTAMP, -1
        by_log = self._append_time >= 0
        if not by_log and self._max_timestamp < 0:
            return NO_TIMESTAMP, -1
        largest = self._append_time if by_log else self._max_timestamp
        if self.compression != CompressionType.NONE:
            return largest, self._last_offset
        return largest, self.base_offset if by_log else self._offset_of_max_timestamp
