from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.log.ids cimport IdTable
from kafkalog._core.log.producer_state cimport Batch, WINDOW


cdef enum Step:
    TXN_ABORTED = 0                 # as the marker's number
    TXN_COMMITTED = 1
    TXN_BEGINS = 2


cdef struct Traced:
    int64_t producer_id
    int64_t last_timestamp
    Batch window[WINDOW]            # oldest first
    int32_t count
    int32_t first_epoch             # of its first batch or marker here: what was known of that epoch goes on
    int32_t epoch
    int32_t coordinator_epoch
    int8_t was_reset                # another epoch came: what was known before is gone
    int8_t has_marker
    int8_t is_open                  # its transaction, as far as these batches show it


cdef struct TxnStep:
    int64_t offset
    int32_t producer                # its number in the trace
    int32_t step


cdef class ProducerTrace:
    cdef IdTable ids
    cdef Traced* all                # by the number of the id
    cdef Py_ssize_t room
    cdef Py_ssize_t latest          # the number of the producer last met, -1 at first
    cdef TxnStep* steps
    cdef Py_ssize_t step_count
    cdef Py_ssize_t step_room

    cdef int note(self, const BatchRow* row, const uint8_t* batch) noexcept nogil
    cdef int note_marker(self, const BatchRow* row, const uint8_t* batch) noexcept nogil
    cdef int note_step(self, int64_t offset, int step) noexcept nogil
    cdef Traced* traced(self, const BatchRow* row) noexcept nogil
