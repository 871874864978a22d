from libc.stdint cimport int64_t

from kafkalog._core.batch.check cimport BatchRow


cdef struct Range:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset             # of the marker


cdef class AbortedRanges:
    cdef Range* ranges
    cdef readonly Py_ssize_t count

    cdef bint holds(self, const BatchRow* row) noexcept nogil
