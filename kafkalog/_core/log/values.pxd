from libc.stdint cimport int32_t, int64_t


cdef class OffsetPosition:
    cdef readonly int64_t offset
    cdef readonly int64_t position


cdef class TimestampOffset:
    cdef readonly int64_t timestamp
    cdef readonly int64_t offset


cdef class LogOffsetMetadata:
    cdef readonly int64_t message_offset
    cdef readonly int64_t segment_base_offset
    cdef readonly int64_t relative_position_in_segment

    cdef int _both_known(self, LogOffsetMetadata that) except -1


cdef class LogAppendInfo:
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int32_t last_leader_epoch
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t log_append_time
    cdef readonly int64_t log_start_offset
    cdef readonly int32_t source_compression
    cdef readonly int32_t target_compression
    cdef readonly int64_t shallow_count
    cdef readonly int64_t valid_bytes
    cdef readonly bint offsets_monotonic

    cdef tuple _fields(self)


cpdef LogAppendInfo make_append_info(
    int64_t first_offset, int64_t last_offset, int32_t last_leader_epoch, int64_t max_timestamp,
    int64_t offset_of_max_timestamp, int64_t log_append_time, int64_t log_start_offset, int32_t source_compression,
    int32_t target_compression, int64_t shallow_count, int64_t valid_bytes, bint offsets_monotonic,
)


cdef inline OffsetPosition offset_position(int64_t offset, int64_t position):
    """An OffsetPosition without the cost of argument parsing."""
    cdef OffsetPosition v = OffsetPosition.__new__(OffsetPosition)
    v.offset = offset
    v.position = position
    return v


cdef inline TimestampOffset timestamp_offset(int64_t timestamp, int64_t offset):
    """A TimestampOffset without the cost of argument parsing."""
    cdef TimestampOffset v = TimestampOffset.__new__(TimestampOffset)
    v.timestamp = timestamp
    v.offset = offset
    return v


cdef inline LogOffsetMetadata offset_metadata(int64_t offset, int64_t base, int64_t position):
    """A LogOffsetMetadata without the cost of argument parsing."""
    cdef LogOffsetMetadata v = LogOffsetMetadata.__new__(LogOffsetMetadata)
    v.message_offset = offset
    v.segment_base_offset = base
    v.relative_position_in_segment = position
    return v
