"""The marker that a control batch of a producer holds: how its transaction ended (format.md section 3)."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.layout cimport CODEC_MASK, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load16, load32
from kafkalog._core.bytes.wrap cimport added


cdef enum Marker:
    ABORT = 0
    COMMIT = 1
    OTHER = 2
    UNREADABLE = 3


cdef inline int read_marker(
    const uint8_t* p, int64_t size, const BatchRow* row, int32_t* coordinator_epoch, int64_t* timestamp
) noexcept nogil:
    """The kind of the first record of a control batch, and its fields; p points to the `size` bytes of the batch."""
    cdef Cursor c
    cdef Fields f
    cdef int16_t kind
    c.p = p + V2_RECORDS_AT
    c.end = p + size
    if size < V2_RECORDS_AT or row.attributes & CODEC_MASK or take_record(&c, &f) != OK:
        return UNREADABLE
    if f.key_size < 4 or load16(f.key) < 0:
        return UNREADABLE
    timestamp[0] = row.max_timestamp if row.attributes & TIMESTAMP_TYPE_BIT else added(row.base_timestamp, f.timestamp_delta)
    kind = load16(f.key + 2)
    if kind != ABORT and kind != COMMIT:
        return OTHER
    if f.value_size < 6 or load16(f.value) < 0:
        return UNREADABLE
    coordinator_epoch[0] = load32(f.value + 2)
    return kind


cdef inline int marker_kind(const uint8_t* p, const BatchRow* row) noexcept nogil:
    """The kind of the first record of a control batch by its key alone; p points to the whole batch."""
    cdef Cursor c
    cdef Fields f
    cdef int16_t kind
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    if row.size < V2_RECORDS_AT or row.attributes & CODEC_MASK or row.count < 1 or take_record(&c, &f) != OK:
        return UNREADABLE
    if f.key_size < 4 or load16(f.key) < 0:
        return UNREADABLE
    kind = load16(f.key + 2)
    return kind if kind == ABORT or kind == COMMIT else OTHER
