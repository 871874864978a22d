from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.scan cimport BatchTable

cdef enum:
    DAMAGED = -2                    # size of a field that runs past its message, in a lenient table


cdef struct RecordPlace:
    # positions are bytes in the chunk; sizes are -1 for null; headers_at of a v0 or v1 message is where it begins
    int32_t key_at
    int32_t key_size
    int32_t value_at
    int32_t value_size
    int32_t headers_at
    int32_t header_count
    int32_t record_size             # with its length field


cdef class RecordTable:
    cdef Py_buffer view
    cdef object own                 # a memoryview whose bytes these are, where the chunk is one
    cdef bint held
    cdef bint is_in_no_cycle        # the chunk refers to no other object
    cdef const uint8_t* data
    cdef size_t capacity
    cdef int64_t* offset_column
    cdef int64_t* timestamp_column
    cdef RecordPlace* places
    cdef readonly BatchTable batches
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t first_batch
    cdef readonly Py_ssize_t last_batch
    cdef int64_t base_position      # what the positions of `batches` have in front of those in the chunk
    cdef readonly int status
    cdef readonly Py_ssize_t error_batch
    cdef readonly int64_t error_position
    cdef readonly int64_t error_record

    cdef int allocate(self, Py_ssize_t rows) except -1
    cdef BatchRow* batch_row(self, Py_ssize_t i) noexcept nogil
    cdef object key_at(self, Py_ssize_t i)
    cdef object value_at(self, Py_ssize_t i)
    cdef tuple headers_at(self, Py_ssize_t i)
    cdef Py_ssize_t check(self, Py_ssize_t i) except -1
