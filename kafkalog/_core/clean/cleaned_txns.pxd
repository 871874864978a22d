from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.log.ids cimport IdTable

cdef enum TxnStep:
    TXN_STAYS = 0                   # data that counts, a marker that is needed
    TXN_MAY_GO = 1                  # data of an aborted transaction, a marker without any data before it
    TXN_NO_MEMORY = -1
    TXN_UNREADABLE = -2             # a control batch whose record says nothing that could be understood


cdef struct Aborted:
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    int64_t producer_id
    int64_t version


cdef struct Ongoing:
    # what is known of a producer's transaction at the place in the log that was reached
    Py_ssize_t aborted              # its number plus 1, where it will be aborted
    bint has_data


cdef class CleanedTxns:
    cdef Aborted* aborted
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t next            # the first whose beginning was not reached
    cdef IdTable ids
    cdef Ongoing* ongoing           # by the number of the producer
    cdef Py_ssize_t ongoing_room
    cdef Py_ssize_t ongoing_count
    cdef Py_ssize_t* retained       # numbers of those to be kept in an index
    cdef Py_ssize_t retained_room
    cdef Py_ssize_t retained_count

    cdef Ongoing* state_of(self, int64_t producer_id) noexcept nogil
    cdef int reach(self, int64_t offset) noexcept nogil
    cdef int on_batch(self, const BatchRow* row) noexcept nogil
    cdef int on_control(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    cdef int on_abort(self, Ongoing* state) noexcept nogil
