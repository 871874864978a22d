from libc.stdint cimport int64_t


cdef enum:                          # why a segment is rolled before a write
    KEEP = 0
    ROLL_SIZE
    ROLL_TIME
    ROLL_INDEX
    ROLL_OFFSET


cdef class SegmentTail:
    cdef readonly int64_t size
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t rolling_timestamp
    cdef readonly int64_t bytes_since_index_entry
    cdef readonly int64_t offset_slots
    cdef readonly int64_t time_slots
    cdef readonly int64_t last_time_entry

    cdef SegmentTail copy(self)
    cdef tuple fields(self)


cdef class RollRules:
    cdef readonly int64_t base_offset
    cdef readonly int64_t max_size
    cdef readonly int64_t max_wait_ms
    cdef readonly int64_t created_ms
    cdef readonly int64_t index_interval_bytes


cdef int roll_reason(
    SegmentTail tail, RollRules rules, int64_t size, int64_t max_timestamp, int64_t last_offset, int64_t now
) noexcept
