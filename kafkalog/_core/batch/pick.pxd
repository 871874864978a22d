"""One record of a chunk, for other compiled modules."""
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.layout cimport TIMESTAMP_TYPE_BIT
from kafkalog._core.batch.record cimport Record
from kafkalog._core.bytes.wrap cimport added


cdef inline int64_t timestamp_of(const BatchRow* row, const Fields* f) noexcept nogil:
    """The time of a record of a v2 batch."""
    if row.attributes & TIMESTAMP_TYPE_BIT:
        return row.max_timestamp
    return added(row.base_timestamp, f.timestamp_delta)


cdef const uint8_t* find_record(
    const uint8_t* p, const uint8_t* end, int64_t offset, BatchRow* row, Fields* f, bint at_end
) noexcept nogil

cdef Record copied_out(const uint8_t* start, const BatchRow* row, const Fields* f, int64_t offset)
