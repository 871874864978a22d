from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.walk cimport BatchWalk
from kafkalog._core.log.roll cimport SegmentTail
from kafkalog._core.log.trace cimport ProducerTrace


cdef struct Epoch:
    int64_t start_offset
    int32_t epoch


cdef struct Growing:
    uint8_t* data
    Py_ssize_t count                # of values
    Py_ssize_t room


cdef class RecoveryPass(BatchWalk):
    cdef readonly int64_t batches
    cdef readonly bint ends_below
    cdef readonly int64_t bad_offset    # of the batch that does not fit the segment
    cdef readonly SegmentTail tail
    cdef readonly ProducerTrace producers
    cdef int64_t most_offset            # that a batch of the segment may have
    cdef int64_t index_interval_bytes
    cdef Growing offset_entries
    cdef Growing time_entries
    cdef Growing epochs
    cdef int32_t last_epoch             # of them, -1 for none

    cdef int add_entries(self, int64_t position, int64_t timestamp) noexcept nogil
    cdef int add_time(self, int64_t timestamp, int64_t offset) noexcept nogil
    cdef int add_epoch(self, int64_t offset, int32_t epoch) noexcept nogil
