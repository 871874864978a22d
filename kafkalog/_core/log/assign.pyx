"""Offsets, epoch and times of a leader's batches, set in place before they are written."""
from cpython.buffer cimport Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.layout cimport (
    LEGACY_ATTRIBUTES_AT, LEGACY_CRC_AT, MAGIC_AT, TIMESTAMP_TYPE_BIT, V1_KEY_AT, V1_TIMESTAMP_AT, V2_ATTRIBUTES_AT,
    V2_CRC_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.crc cimport kl_crc32, kl_crc32c
from kafkalog._core.bytes.endian cimport store16, store32, store64

cdef int64_t LAST_OFFSET = 0x7FFFFFFFFFFFFFFF

cdef enum:
    MOST_RECORDS = 0x7FFFFFFF
    USED_BITS = 0x7F            # a v2 header that is written again has no other attributes


def assign(
    buf, BatchTable batches not None, int64_t first_offset, int32_t leader_epoch=-1, int64_t append_time=-1, *,
    Py_ssize_t first=0, Py_ssize_t last=-1, int64_t base_position=0,
) -> int:
    """Gives the v2 batches `first` up to `last` of a writable buffer consecutive offsets; returns the next free one.

    Base offset and leader epoch lie outside the checksum, so nothing else changes (REC-17). With an `append_time`
    (ms) of 0 or more every batch becomes LogAppendTime with that time, and its checksum is computed again (LOG-77). The
    table's rows are changed with the bytes: next offset 10 and five records give 10 to 14. ValueError, with nothing
    changed, for a batch of another format, one that ends below its base offset, or offsets past the largest there is.
    """
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    return assign_rows(buf, batches, first, last, first_offset, leader_epoch, append_time, base_position)


cdef int64_t assign_rows(
    object buf, BatchTable batches, Py_ssize_t first, Py_ssize_t last, int64_t first_offset, int32_t leader_epoch,
    int64_t append_time, int64_t base_position,
) except? -1:
    """`assign` for rows that the table has."""
    cdef Py_buffer view
    cdef Py_ssize_t i
    cdef int64_t next_offset = first_offset
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        for i in range(first, last):
            next_offset = _next_offset(batches, i, next_offset, base_position, view.len)
        next_offset = first_offset
        for i in range(first, last):
            next_offset = assign_one(
                <uint8_t*>view.buf + place_of(&batches.rows[i], base_position, view.len), &batches.rows[i],
                next_offset, leader_epoch, append_time,
            )
    finally:
        PyBuffer_Release(&view)
    batches.summarise()
    return next_offset


cdef int64_t _next_offset(
    BatchTable batches, Py_ssize_t i, int64_t offset, int64_t base_position, int64_t length
) except? -1:
    """The offset after batch `i` once it begins at `offset`; ValueError where it cannot."""
    cdef BatchRow* row = &batches.rows[i]
    if place_of(row, base_position, length) < 0:
        raise ValueError(f"batch {i} of the table lies outside the {length} bytes given")
    if row.magic != 2 or row.size < V2_RECORDS_AT:
        raise ValueError(f"batch {i} is not of format v2: its offsets cannot be set in place")
    if row.last_delta < 0 or offset < 0 or offset > LAST_OFFSET - row.last_delta - 1:
        raise ValueError(f"batch {i} cannot have offsets {offset} to {offset} + {row.last_delta}")
    return offset + row.last_delta + 1


cdef int64_t assign_one(
    uint8_t* p, BatchRow* row, int64_t offset, int32_t leader_epoch, int64_t append_time
) noexcept nogil:
    """Writes offset, epoch and, from 0 on, time; returns the offset after the batch."""
    store64(p, offset)
    store32(p + V2_LEADER_EPOCH_AT, leader_epoch)
    row.base_offset = offset
    row.last_offset = offset + row.last_delta
    row.leader_epoch = leader_epoch
    if append_time >= 0:
        stamp_row(p, row, True, append_time)
    return row.last_offset + 1


cdef void stamp_row(uint8_t* p, BatchRow* row, bint by_log, int64_t timestamp) noexcept nogil:
    """Sets timestamp type and max timestamp of a v2 batch or a v1 message, checksum too."""
    if ((row.attributes & TIMESTAMP_TYPE_BIT) != 0) == by_log and row.max_timestamp == timestamp:
        return                  # nothing changes: the bytes stay untouched (REC-19)
    if by_log:
        row.attributes |= TIMESTAMP_TYPE_BIT
    else:
        row.attributes &= ~TIMESTAMP_TYPE_BIT
    row.max_timestamp = timestamp
    if row.magic >= 2:
        row.attributes &= USED_BITS
        store16(p + V2_ATTRIBUTES_AT, row.attributes)
        store64(p + V2_MAX_TIMESTAMP_AT, timestamp)
        row.crc = kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(row.size - V2_ATTRIBUTES_AT))
        store32(p + V2_CRC_AT, <int32_t>row.crc)
    else:
        p[LEGACY_ATTRIBUTES_AT] = <uint8_t>row.attributes
        store64(p + V1_TIMESTAMP_AT, timestamp)
        row.crc = kl_crc32(0, p + MAGIC_AT, <size_t>(row.size - MAGIC_AT))
        store32(p + LEGACY_CRC_AT, <int32_t>row.crc)
    row.computed_crc = row.crc
    row.valid = 1


def stamp_batch(buf, BatchTable batches not None, Py_ssize_t i, *, bint append_time_type, int64_t timestamp) -> None:
    """Sets timestamp type and max timestamp (ms) of one v2 batch in place, checksum too; equal values change no byte."""
    cdef Py_buffer view
    cdef BatchRow* row = batches.row_at(i)
    cdef bint now_append = (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    if row.magic != 2 or row.size < V2_RECORDS_AT:
        raise ValueError(f"batch {i} is not of format v2")
    if now_append == append_time_type and row.max_timestamp == timestamp:
        return
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        stamp_row(bytes_of(&view, row, i), row, append_time_type, timestamp)
    finally:
        PyBuffer_Release(&view)
    batches.summarise()


cdef uint8_t* bytes_of(Py_buffer* view, const BatchRow* row, Py_ssize_t i) except NULL:
    """Return the address of a batch in a buffer that must hold all of it."""
    cdef int64_t at = place_of(row, 0, view.len)
    if at < 0:
        raise ValueError(f"batch {i} of the table lies outside the {view.len} bytes given")
    return <uint8_t*>view.buf + at


def assign_messages(
    buf, BatchTable batches not None, int64_t first_offset, *, bint append_time_type=False, int64_t timestamp=-1,
    int64_t records=-1,
) -> int:
    """Gives the v0 or v1 messages of a writable buffer consecutive offsets, in place; returns the next free one.

    A plain message gets one offset; a wrapper around `records` messages that of the last of them. v1 messages get the
    timestamp type, and `timestamp` (ms) where it is given or the type is LogAppendTime. Offsets lie outside the
    checksum. ValueError for a batch of format v2, or offsets past the largest there is.
    """
    cdef Py_buffer view
    cdef BatchRow* row
    cdef uint8_t* p
    cdef Py_ssize_t i
    cdef int64_t step = max(records, 1)
    if records > MOST_RECORDS:
        raise ValueError(f"{records} records are more than a wrapper can hold")
    if first_offset < 0 or first_offset > LAST_OFFSET - step * (batches.count + 1):
        raise ValueError(f"{batches.count} messages cannot begin at offset {first_offset}")
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        for i in range(batches.count):
            row = &batches.rows[i]
            p = bytes_of(&view, row, i)
            if row.magic >= 2 or row.size < V1_KEY_AT - 8:
                raise ValueError(f"batch {i} is no message of format v0 or v1")
            row.base_offset = first_offset
            row.last_offset = first_offset + step - 1
            store64(p, row.last_offset)
            first_offset += step
            if row.magic == 1 and row.size >= V1_KEY_AT:
                stamp_row(p, row, append_time_type, timestamp if append_time_type or records > 0 else row.max_timestamp)
    finally:
        PyBuffer_Release(&view)
    batches.summarise()
    return first_offset
