"""One record of one batch found by time, without a table: what a look-up by time ends with."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkalog._core.batch cimport BatchRow, peek_batch, read_row
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.fields cimport Fields, take_record
from kafkalog._core.layout cimport CODEC_MASK, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT

NOT_HERE = -1
NOT_READABLE = -2


cdef inline int64_t find_in_batch(
    const uint8_t* p, const BatchRow* row, int64_t timestamp, int64_t start_offset, int64_t* found
) noexcept nogil:
    cdef Cursor c
    cdef Fields f
    cdef int32_t i
    cdef int64_t ts, offset
    cdef bint stamped = (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    for i in range(row.count):
        if take_record(&c, &f) != OK:
            return -2
        offset = <int64_t>(<uint64_t>row.base_offset + <uint64_t><int64_t>f.offset_delta)
        ts = row.max_timestamp if stamped else <int64_t>(<uint64_t>row.base_timestamp + <uint64_t>f.timestamp_delta)
        if ts >= timestamp and offset >= start_offset:
            found[0] = ts
            return offset
    return -1


def find_record_by_time(buf, int64_t start, int64_t timestamp, int64_t start_offset) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp` ms and `start_offset`.

    Looks into the one batch that begins at byte `start` of `buf`. The offset is NOT_HERE where the batch has no such
    record, NOT_READABLE where it is not whole, not v2, compressed, or damaged before such a record was met.
    """
    cdef Py_buffer view
    cdef BatchRow row
    cdef int64_t size = 0
    cdef int64_t found = -1
    cdef int64_t offset = -2
    cdef int magic = 0
    cdef const uint8_t* p
    row.leader_epoch = -1
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    if 0 <= start < view.len:
        p = <const uint8_t*>view.buf + start
        if peek_batch(p, view.len - start, True, &size, &magic) == -1 and V2_RECORDS_AT <= size <= view.len - start:
            read_row(p, size, magic, False, &row)
            if magic == 2 and not row.attributes & CODEC_MASK:
                if size < 32768:
                    offset = find_in_batch(p, &row, timestamp, start_offset, &found)
                else:
                    with nogil:
                        offset = find_in_batch(p, &row, timestamp, start_offset, &found)
    PyBuffer_Release(&view)
    return offset, found, row.leader_epoch
