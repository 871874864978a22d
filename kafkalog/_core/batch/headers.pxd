"""One header at a time, of a record that take_record has already checked."""
from libc.stdint cimport int32_t, uint8_t

from kafkalog._core.batch.fields cimport Fields, take_bytes
from kafkalog._core.batch.layout cimport ERR_HEADER_KEY, ERR_HEADER_VALUE, OK
from kafkalog._core.bytes.cursor cimport Cursor, skip, take_varint


cdef struct Header:
    const uint8_t* key
    const uint8_t* value
    int32_t key_size
    int32_t value_size          # -1 is null


cdef inline Cursor headers_of(Fields* f) noexcept nogil:
    """A cursor at the first header, for `f.header_count` calls of take_header."""
    cdef Cursor c
    c.p = f.headers
    c.end = f.end
    return c


cdef inline int take_header(Cursor* c, Header* h) noexcept nogil:
    """Reads the header at the cursor and moves to the next."""
    cdef int status = take_varint(c, &h.key_size)
    if status != OK:
        return status
    h.key = c.p
    if h.key_size < 0 or skip(c, h.key_size) != OK:
        return ERR_HEADER_KEY
    return take_bytes(c, &h.value_size, &h.value, ERR_HEADER_VALUE)
