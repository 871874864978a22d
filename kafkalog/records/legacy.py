"""LegacyBuilder: messages of format v0 and v1, plain or wrapped in a compressed one, as the reference builds them."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog._core.legacy import MessageSet, wrapper
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

__all__ = ["LegacyBuilder"]

Headers = Iterable[tuple[str, bytes | None]]


class LegacyBuilder:
    """Builds messages of format v0 or v1 that start at `base_offset` (format.md section 4).

    Without a codec each record is a message, and a batch, of its own. With one all of them become one wrapper whose
    offset is that of the last; inner offsets are absolute in v0 and relative in v1. With LogAppendTime (v1) all report
    `log_append_time` (ms). What only v2 has, and zstd, is an illegal argument (REC-27).
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
        """Records appended, until `build`."""
        return self._messages.count

    @property
    def next_offset(self) -> int:
        """The offset a record appended now would get."""
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
        """Adds a record and returns its offset, the next one unless `offset` says otherwise."""
        if self._built is not None:
            raise IllegalState("this builder is closed: it takes no further record")
        if tuple(headers):
            raise IllegalArgument(f"format v{self.magic} has no headers")
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise IllegalArgument(f"timestamp {timestamp} is negative: ms since 1970, or -1 for none")
        at = self.next_offset if offset is None else offset
        if at < self.next_offset:
            raise IllegalArgument(f"offset {at} lies below {self.next_offset}, the next one: offsets must grow")
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
        """The messages, or their wrapper; 0 bytes where nothing was appended. Later calls give the same bytes."""
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
        """Largest timestamp and the offset that goes with it, (-1, -1) without any, as the reference has it (REC-36).

        The offset is that of the last record where they are compressed; else the first record with that time, or the
        base offset for LogAppendTime.
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
