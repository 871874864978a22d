from libc.stdint cimport int32_t, int64_t

from kafkalog._core.log.producer_state cimport ProducerState


cdef class CompletedTxn:
    cdef readonly int64_t producer_id
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly bint is_aborted


cdef class Staged:
    cdef readonly int fault
    cdef readonly Py_ssize_t row
    cdef readonly int64_t end_offset    # behind the last batch of the append
    cdef readonly tuple duplicate
    cdef readonly ProducerState known
    cdef readonly int32_t coordinator_epoch
    cdef readonly bint is_plain         # no transaction begins or ends in it
    cdef bint applied                   # it is true already
    cdef list events                    # begins and ends in their order: (first offset, producer id) or CompletedTxn
    cdef dict updated                   # producer id -> ProducerState; None while `latest` is the only one
    cdef ProducerState latest
    cdef ProducerState before           # the producer of `latest` as it is without this append, or None

    cdef int happens(self, event) except -1
