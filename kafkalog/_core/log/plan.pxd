from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.log.roll cimport RollRules, SegmentTail


cdef inline bint pass_batch(
    SegmentTail tail, int64_t index_interval_bytes, const BatchRow* batch, int64_t* timestamp
) noexcept nogil:
    """Moves the tail over one batch; True where it brings an entry of the offset index (SEG-3, SEG-4, SEG-5).

    `timestamp` is then that of its entry in the time index, with the offset of the tail's largest; -1 brings none.
    """
    cdef bint is_indexed = False
    timestamp[0] = -1
    if batch.max_timestamp > tail.max_timestamp:
        tail.max_timestamp = batch.max_timestamp
        tail.offset_of_max_timestamp = batch.last_offset
    if tail.size == 0:
        tail.rolling_timestamp = batch.max_timestamp
    if tail.bytes_since_index_entry > index_interval_bytes:
        if tail.offset_slots > 0:
            if tail.max_timestamp > tail.last_time_entry and tail.time_slots > 0:
                timestamp[0] = tail.last_time_entry = tail.max_timestamp
                tail.time_slots -= 1
            tail.offset_slots -= 1
            is_indexed = True
        tail.bytes_since_index_entry = 0
    tail.size = added(tail.size, batch.size)
    tail.bytes_since_index_entry = added(tail.bytes_since_index_entry, batch.size)
    tail.last_offset = batch.last_offset
    return is_indexed


cdef class AppendPlan:
    cdef readonly int roll_reason
    cdef readonly Py_ssize_t start_row
    cdef readonly Py_ssize_t stop_row
    cdef readonly int64_t start_byte
    cdef readonly int64_t stop_byte
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int32_t last_leader_epoch
    cdef readonly SegmentTail tail
    cdef readonly list entries


cdef AppendPlan planned(
    BatchTable table, Py_ssize_t row, SegmentTail tail, RollRules rules, int64_t now, bint whole, bint fresh
)
