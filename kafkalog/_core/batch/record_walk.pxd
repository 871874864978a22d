"""The walk over the records of plain batches that nothing but a checksum vouches for, without an object for a record.

A reader of keys calls these for the rows of a chunk, for each row, and for each record of a row; `first_larger` is for
the limit of decompressed records.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_NEGATIVE, ERR_MAGIC, ERR_SHORT, ERR_WRAPPER_NESTED, OK,
    V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.cursor cimport Cursor, take_varint
from kafkalog._core.bytes.prefetch cimport kl_prefetch

cdef enum:
    SET_ENDS = -2                   # no status of a reader: a set of messages has no further one


cdef inline int check_rows(
    BatchTable batches, Py_ssize_t first, Py_ssize_t last, int64_t base_position, int64_t size
) except -1:
    """ValueError unless rows `first` up to `last` are in the table, and their batches within the bytes given."""
    cdef Py_ssize_t i
    if first < 0 or last > batches.count or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    for i in range(first, last):
        if place_of(&batches.rows[i], base_position, size) < 0:
            raise ValueError(f"batch {i} of the table lies outside the {size} bytes given")
    return 0


cdef inline int check_plain(const BatchRow* row) noexcept nogil:
    """OK for a batch whose records can be walked, or what is wrong with it."""
    if row.magic < 0 or row.magic > 2:
        return ERR_MAGIC
    if row.attributes & CODEC_MASK:
        return ERR_COMPRESSED
    if row.magic == 2 and row.count < 0:
        return ERR_COUNT_NEGATIVE
    if row.magic == 2 and row.size < V2_RECORDS_AT:
        return ERR_COUNT_HIGH
    return OK


cdef inline int next_record(Cursor* c, Fields* f) noexcept nogil:
    """Takes one of the records that a v2 batch counts; OK, or what is wrong with it."""
    kl_prefetch(c.p + 768)
    if c.p == c.end:
        return ERR_COUNT_HIGH
    return OK if take_small_record(c, f) else take_record(c, f)


cdef inline int next_message(Cursor* c, Message* m) noexcept nogil:
    """Takes the next message of a v0 or v1 set; one that is cut off at its end ends it, as in the reference: SET_ENDS."""
    cdef int status = take_frame(c, m)
    if status == ERR_SHORT:
        return SET_ENDS
    if status != OK:
        return status
    return ERR_WRAPPER_NESTED if m.attributes & CODEC_MASK else take_fields(m)


cdef inline int64_t first_larger(
    const uint8_t* p, int64_t size, int32_t count, int64_t most_bytes, int64_t* position
) noexcept nogil:
    """Number of the first record of more than `most_bytes` in a batch at `p`; -1 if none is before a broken one."""
    cdef Cursor c
    cdef int32_t body_size
    cdef int64_t i
    c.p = p + V2_RECORDS_AT
    c.end = p + size
    for i in range(count):
        position[0] = c.p - p
        if take_varint(&c, &body_size) != OK or body_size < 0 or body_size > c.end - c.p:
            return -1
        if body_size > most_bytes:
            return i
        c.p += body_size
    return -1
