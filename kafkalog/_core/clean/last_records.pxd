from libc.stdint cimport int16_t, int64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.log.ids cimport IdTable


cdef struct LastRecord:
    int64_t last_data_offset        # -1: nothing but a marker is known of the producer
    int16_t producer_epoch


cdef class LastRecords:
    cdef IdTable ids
    cdef LastRecord* records
    cdef list offsets               # of the last data, rising

    cdef bint holds(self, const BatchRow* row) noexcept nogil
