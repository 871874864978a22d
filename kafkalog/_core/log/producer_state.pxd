from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.bytes.wrap cimport increment_sequence

cdef enum:
    WINDOW = 5                      # batches remembered of each producer (PSM-5)


cdef struct Batch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta


cdef inline int32_t last_sequence_of(const BatchRow* row) noexcept nogil:
    return -1 if row.base_sequence == -1 else increment_sequence(row.base_sequence, row.last_delta)


cdef class ProducerState:
    cdef Batch window[WINDOW]       # oldest first
    cdef int count
    cdef bint was_unknown           # nothing was known of it before the append that is being staged
    cdef readonly int64_t producer_id
    cdef readonly int32_t producer_epoch
    cdef readonly int32_t coordinator_epoch
    cdef readonly int64_t last_timestamp
    cdef readonly int64_t current_txn_first_offset

    cdef ProducerState copy(self)
    cdef void take_epoch(self, int32_t epoch) noexcept
    cdef void add(self, const BatchRow* row) noexcept
    cdef int find(self, const BatchRow* row) noexcept
    cdef bint continues(self, int32_t epoch, int32_t sequence) noexcept
