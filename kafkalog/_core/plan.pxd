# cython: language_level=3
from libc.stdint cimport int32_t, int64_t


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


cdef class AppendPlan:
    cdef readonly int roll_reason
    cdef readonly Py_ssize_t start_row
    cdef readonly Py_ssize_t stop_row
    cdef readonly int64_t start_byte
    cdef readonly int64_t stop_byte
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int32_t last_leader_epoch
    cdef readonly SegmentTail tail
    cdef readonly list entries
