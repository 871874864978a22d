from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.bytes.buffers cimport Column


cdef class BatchTable:
    cdef BatchRow* rows
    cdef BatchRow only              # the storage of a one-batch table, so that small appends allocate nothing more
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly int64_t stop_position
    cdef readonly int stop_reason
    cdef readonly int64_t stop_value
    cdef readonly int64_t valid_bytes
    cdef readonly Py_ssize_t first_invalid
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t record_count
    cdef readonly int64_t max_batch_size
    cdef readonly bint monotonic
    cdef readonly bint has_producers
    cdef readonly int codec
    cdef readonly int32_t last_leader_epoch

    cdef BatchRow* row_at(self, Py_ssize_t i) except NULL
    cdef int grow(self) noexcept nogil
    cdef void summarise(self) noexcept nogil


cdef class BatchHeader:
    cdef BatchRow row


cdef class HeaderWalk:
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly int64_t resume_position
    cdef readonly int stop_reason
    cdef readonly int64_t stop_value
