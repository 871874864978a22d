# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.batch cimport BatchRow
from kafkalog._core.plan cimport SegmentTail
from kafkalog._core.trace cimport ProducerTrace


cdef struct Epoch:
    int64_t start_offset
    int32_t epoch


cdef struct Growing:
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t room


cdef class RecoveryPass:
    cdef readonly int64_t base_offset
    cdef readonly int64_t position      # the byte to go on at
    cdef readonly int64_t end
    cdef readonly int64_t batches
    cdef readonly int64_t bad_offset    # of the batch that does not fit the segment
    cdef readonly SegmentTail tail
    cdef readonly ProducerTrace producers
    cdef int64_t index_interval_bytes
    cdef bint check_crc
    cdef bint busy                      # a thread is in `check`, without the GIL
    cdef BatchRow row
    cdef int64_t stream_left
    cdef uint32_t stream_crc
    cdef Growing offset_entries
    cdef Growing time_entries
    cdef Growing epochs

    cdef int step(self, const uint8_t* data, int64_t length) noexcept nogil
    cdef int judge(self, const uint8_t* batch) noexcept nogil
    cdef int add_entries(self, int64_t position, int64_t timestamp) noexcept nogil
    cdef int add_time(self, int64_t timestamp, int64_t offset) noexcept nogil
    cdef int add_epoch(self, int64_t offset, int32_t epoch) noexcept nogil
