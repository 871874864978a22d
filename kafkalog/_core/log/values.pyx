"""Small immutable values that an append, a read or a lookup hands out: compiled, because making one costs 60 ns and not 600."""
cimport cython


@cython.final
cdef class OffsetPosition:
    """An offset and the byte position in its segment file where the batch that holds it begins."""

    def __init__(self, offset: int, position: int):
        self.offset = offset
        self.position = position

    def __eq__(self, other):
        if not isinstance(other, OffsetPosition):
            return NotImplemented
        cdef OffsetPosition o = other
        return self.offset == o.offset and self.position == o.position

    def __hash__(self):
        return hash((self.offset, self.position))

    def __iter__(self):
        yield self.offset
        yield self.position

    def __repr__(self):
        return f"OffsetPosition(offset={self.offset}, position={self.position})"

    def __reduce__(self):
        return OffsetPosition, (self.offset, self.position)


@cython.final
cdef class TimestampOffset:
    """A timestamp in ms and the offset of the batch or record that carries it; (-1, base) where there is none."""

    def __init__(self, timestamp: int, offset: int):
        self.timestamp = timestamp
        self.offset = offset

    def __eq__(self, other):
        if not isinstance(other, TimestampOffset):
            return NotImplemented
        cdef TimestampOffset o = other
        return self.timestamp == o.timestamp and self.offset == o.offset

    def __hash__(self):
        return hash((self.timestamp, self.offset))

    def __iter__(self):
        yield self.timestamp
        yield self.offset

    def __repr__(self):
        return f"TimestampOffset(timestamp={self.timestamp}, offset={self.offset})"

    def __reduce__(self):
        return TimestampOffset, (self.timestamp, self.offset)


@cython.final
cdef class LogOffsetMetadata:
    """An offset with the place it has in the log: base offset of its segment and byte position there.

    Both are unknown (-1) where only the offset is known; such a value compares by offset alone, and asking it about
    segments is a ValueError.
    """

    def __init__(self, message_offset: int, segment_base_offset: int = -1, relative_position_in_segment: int = -1):
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.relative_position_in_segment = relative_position_in_segment

    @property
    def message_offset_only(self) -> bool:
        """True where segment and position are unknown."""
        return self.segment_base_offset == -1 and self.relative_position_in_segment == -1

    cdef int _both_known(self, LogOffsetMetadata that) except -1:
        if self.segment_base_offset == -1 or that.segment_base_offset == -1:
            raise ValueError(f"{self!r} cannot be compared with {that!r}: one of them has the offset only")
        return 0

    def on_older_segment(self, LogOffsetMetadata that not None) -> bool:
        """True when this offset lies in an earlier segment than `that`; ValueError unless both segments are known."""
        self._both_known(that)
        return self.segment_base_offset < that.segment_base_offset

    def on_same_segment(self, LogOffsetMetadata that not None) -> bool:
        """True when both lie in one segment; ValueError unless both segments are known."""
        self._both_known(that)
        return self.segment_base_offset == that.segment_base_offset

    def precedes(self, LogOffsetMetadata that not None) -> bool:
        """True when this offset is lower."""
        return self.message_offset < that.message_offset

    def offset_diff(self, LogOffsetMetadata that not None) -> int:
        """This offset minus that one."""
        return <object>self.message_offset - <object>that.message_offset

    def position_diff(self, LogOffsetMetadata that not None) -> int:
        """Bytes from `that` to this position; ValueError unless both are known to lie in one segment."""
        if not self.on_same_segment(that):
            raise ValueError(f"{self!r} and {that!r} lie in different segments: they have no distance in bytes")
        if self.relative_position_in_segment == -1 or that.relative_position_in_segment == -1:
            raise ValueError(f"{self!r} or {that!r} has no position")
        return <object>self.relative_position_in_segment - <object>that.relative_position_in_segment

    def __eq__(self, other):
        if not isinstance(other, LogOffsetMetadata):
            return NotImplemented
        cdef LogOffsetMetadata o = other
        return (
            self.message_offset == o.message_offset
            and self.segment_base_offset == o.segment_base_offset
            and self.relative_position_in_segment == o.relative_position_in_segment
        )

    def __hash__(self):
        return hash((self.message_offset, self.segment_base_offset, self.relative_position_in_segment))

    def __repr__(self):
        return (
            f"LogOffsetMetadata(message_offset={self.message_offset}, "
            f"segment_base_offset={self.segment_base_offset}, "
            f"relative_position_in_segment={self.relative_position_in_segment})"
        )

    def __reduce__(self):
        return LogOffsetMetadata, (self.message_offset, self.segment_base_offset, self.relative_position_in_segment)


@cython.final
@cython.freelist(8)
cdef class LogAppendInfo:
    """Result of one append. Offsets are -1 where nothing was appended; times are ms, -1 for none.

    `first_offset` and `last_offset` bound the records (inclusive), `shallow_count` counts batches, `valid_bytes` the
    bytes of whole batches, `source_compression` and `target_compression` are codec ids (format.md section 1),
    `log_append_time` is -1 unless the topic stamps records itself, `offsets_monotonic` says that the batches came in
    rising order.
    """

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        *,
        last_leader_epoch: int = -1,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        log_append_time: int = -1,
        log_start_offset: int = -1,
        source_compression: int = 0,
        target_compression: int = 0,
        shallow_count: int = 0,
        valid_bytes: int = 0,
        offsets_monotonic: bool = True,
    ):
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_leader_epoch = last_leader_epoch
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.source_compression = source_compression
        self.target_compression = target_compression
        self.shallow_count = shallow_count
        self.valid_bytes = valid_bytes
        self.offsets_monotonic = offsets_monotonic

    @property
    def base_offset(self) -> int:
        """Alias of `first_offset`, for callers of `append`."""
        return self.first_offset

    @property
    def record_count(self) -> int:
        """Offsets taken by this append: last minus first plus one, 0 where nothing was appended."""
        return <object>self.last_offset - self.first_offset + 1 if self.first_offset >= 0 else 0

    cdef tuple _fields(self):
        return (
            self.first_offset, self.last_offset, self.last_leader_epoch, self.max_timestamp,
            self.offset_of_max_timestamp, self.log_append_time, self.log_start_offset, self.source_compression,
            self.target_compression, self.shallow_count, self.valid_bytes, self.offsets_monotonic,
        )

    def __eq__(self, other):
        if not isinstance(other, LogAppendInfo):
            return NotImplemented
        return self._fields() == (<LogAppendInfo>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"LogAppendInfo(first_offset={self.first_offset}, last_offset={self.last_offset}, "
            f"shallow_count={self.shallow_count}, valid_bytes={self.valid_bytes}, "
            f"max_timestamp={self.max_timestamp}, log_append_time={self.log_append_time})"
        )

    def __reduce__(self):
        return _append_info, self._fields()


def _append_info(*fields):
    """Rebuilds a LogAppendInfo from the tuple that pickle kept."""
    make: object = make_append_info         # called as Python calls: with the number of arguments checked
    return make(*fields)


cpdef LogAppendInfo make_append_info(
    int64_t first_offset, int64_t last_offset, int32_t last_leader_epoch, int64_t max_timestamp,
    int64_t offset_of_max_timestamp, int64_t log_append_time, int64_t log_start_offset, int32_t source_compression,
    int32_t target_compression, int64_t shallow_count, int64_t valid_bytes, bint offsets_monotonic,
):
    """A LogAppendInfo from positional values: the quick way for the append path."""
    cdef LogAppendInfo info = LogAppendInfo.__new__(LogAppendInfo)
    info.first_offset = first_offset
    info.last_offset = last_offset
    info.last_leader_epoch = last_leader_epoch
    info.max_timestamp = max_timestamp
    info.offset_of_max_timestamp = offset_of_max_timestamp
    info.log_append_time = log_append_time
    info.log_start_offset = log_start_offset
    info.source_compression = source_compression
    info.target_compression = target_compression
    info.shallow_count = shallow_count
    info.valid_bytes = valid_bytes
    info.offsets_monotonic = offsets_monotonic
    return info
