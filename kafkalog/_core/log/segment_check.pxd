from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.walk cimport BatchWalk
from kafkalog._core.log.ids cimport IdTable


cdef struct EpochRun:
    int64_t position                # of the first batch of the run
    int64_t first_offset            # the last offset of its first batch: a log start may lie inside that
    int64_t last_offset
    int32_t epoch


cdef struct AbortMarker:
    int64_t producer_id
    int64_t offset
    int64_t first_offset            # of the transaction's data in this file and above the log start, -1 for none


cdef struct Entries:
    const uint8_t* data
    int64_t count
    int64_t at                      # the next one to be met
    int64_t wrong
    int64_t odd                     # right enough for a look-up, but not as the present releases write them
    int64_t first_wrong             # number of the first wrong entry, what it says and what is there
    int64_t indexed
    int64_t found


cdef class BatchCheck(BatchWalk):
    cdef readonly int64_t next_offset
    cdef readonly int64_t last_good
    cdef readonly int64_t batches
    cdef readonly int64_t records
    cdef readonly int64_t gaps
    cdef readonly int64_t gap_position
    cdef readonly int64_t gap_from
    cdef readonly int64_t gap_to
    cdef readonly int64_t thinned
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t first_offset
    cdef int64_t log_start_offset
    cdef int64_t fault_from
    cdef Entries index
    cdef Entries times
    cdef int64_t pending
    cdef object index_bytes
    cdef object time_bytes
    cdef EpochRun* runs
    cdef Py_ssize_t run_count
    cdef Py_ssize_t run_room
    cdef AbortMarker* aborts
    cdef Py_ssize_t abort_count
    cdef Py_ssize_t abort_room
    cdef IdTable ids                # of the producers with transactions
    cdef int64_t* open_from         # of each, where its open transaction begins
    cdef Py_ssize_t open_room

    cdef int accept(self, const uint8_t* batch) noexcept nogil
    cdef int header_fault(self) noexcept nogil
    cdef void meet_index(self) noexcept nogil
    cdef void meet_times(self) noexcept nogil
    cdef int note_epoch(self) noexcept nogil
    cdef int note_transaction(self, const uint8_t* batch) noexcept nogil
    cdef int note_abort(self, int64_t first_offset) noexcept nogil
    cdef int64_t* transaction_of(self, int64_t producer_id) noexcept nogil
