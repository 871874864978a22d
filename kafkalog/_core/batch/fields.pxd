"""One record of a v2 batch, field by field, every length checked against the record's end: format.md section 2."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.batch.layout cimport (
    ERR_HEADER_COUNT, ERR_HEADER_KEY, ERR_HEADER_VALUE, ERR_KEY_SIZE, ERR_RECORD_BODY, ERR_RECORD_SIZE,
    ERR_VALUE_SIZE, OK,
)
from kafkalog._core.bytes.cursor cimport KL_LONG, Cursor, kl_short, skip, take_i8, take_varint, take_varlong


cdef struct Fields:
    const uint8_t* key          # valid where key_size >= 0
    const uint8_t* value
    const uint8_t* headers      # the first header, behind the count
    const uint8_t* end          # first byte after the record
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size            # -1 is null
    int32_t value_size
    int32_t header_count
    int32_t body_size           # what the length field says


cdef inline int take_bytes(Cursor* c, int32_t* size, const uint8_t** start, int error) noexcept nogil:
    """A varint length (below 0 is null) and as many bytes."""
    cdef int status = take_varint(c, size)
    if status != OK:
        return status
    start[0] = c.p
    if size[0] < 0:
        size[0] = -1
        return OK
    if skip(c, size[0]) != OK:
        return error
    return OK


cdef inline int walk_headers_of(Cursor* c, int32_t count) noexcept nogil:
    """Moves over `count` headers; each must have a key and may have a null value."""
    cdef int32_t i
    cdef int32_t size = 0
    cdef const uint8_t* start = NULL
    cdef int status
    for i in range(count):
        status = take_varint(c, &size)
        if status != OK:
            return status
        if size < 0 or skip(c, size) != OK:
            return ERR_HEADER_KEY
        status = take_bytes(c, &size, &start, ERR_HEADER_VALUE)
        if status != OK:
            return status
    return OK


cdef enum:
    HEAD_BYTES = 9                  # the most that take_small_record reads before the key: two for each number, one flag


cdef inline bint take_small_record(Cursor* c, Fields* f) noexcept nogil:
    """Reads the record at the cursor and moves on if it is of the common kind, sound and without headers.

    True then; False, and no move, for any other: take_record says what it is. Common is what has all its numbers in
    one or two bytes, so that one look at the bytes left stands for many. They are looked at before zigzag: an even one
    is half as much, 1 is -1. What is read lies in front of the record's end, or within HEAD_BYTES of its start.
    """
    cdef const uint8_t* p = c.p
    cdef const uint8_t* end
    cdef uint32_t size, time, offset, key_size, value_size
    if c.end - p < HEAD_BYTES:
        return False
    size = kl_short(&p)
    end = p + (size >> 1)
    p += 1
    time = kl_short(&p)
    offset = kl_short(&p)
    key_size = kl_short(&p)
    f.key = p
    f.key_size = <int32_t>(key_size >> 1)
    if key_size & 1:
        if key_size != 1:
            return False
        f.key_size = -1
    p += key_size >> 1
    if end > c.end or p > end - 2:
        return False
    value_size = kl_short(&p)
    f.value = p
    f.value_size = <int32_t>(value_size >> 1)
    if value_size & 1:
        if value_size != 1:
            return False
        f.value_size = -1
    p += (value_size >> 1) + 1
    if size & 1 or p != end or (end - 1)[0] != 0 or time >= KL_LONG or offset >= KL_LONG:
        return False
    f.timestamp_delta = <int64_t>(time >> 1) ^ -<int64_t>(time & 1)
    f.offset_delta = <int32_t>(offset >> 1) ^ -<int32_t>(offset & 1)
    f.body_size = <int32_t>(size >> 1)
    f.header_count = 0
    f.headers = f.end = c.p = end
    return True


cdef inline int take_record(Cursor* c, Fields* f) noexcept nogil:
    """Reads the record at the cursor and moves to the next; on damage the cursor's place has no meaning."""
    cdef Cursor body
    cdef int8_t attributes = 0
    cdef int status = take_varint(c, &f.body_size)
    if status != OK:
        return status
    if f.body_size < 0 or f.body_size > c.end - c.p:
        return ERR_RECORD_SIZE
    body.p = c.p
    body.end = c.p + f.body_size
    f.end = body.end
    status = take_i8(&body, &attributes)
    if status == OK:
        status = take_varlong(&body, &f.timestamp_delta)
    if status == OK:
        status = take_varint(&body, &f.offset_delta)
    if status == OK:
        status = take_bytes(&body, &f.key_size, &f.key, ERR_KEY_SIZE)
    if status == OK:
        status = take_bytes(&body, &f.value_size, &f.value, ERR_VALUE_SIZE)
    if status == OK:
        status = take_varint(&body, &f.header_count)
    if status != OK:
        return status
    f.headers = body.p
    if f.header_count != 0:
        if f.header_count < 0 or f.header_count > body.end - body.p:
            return ERR_HEADER_COUNT
        status = walk_headers_of(&body, f.header_count)
        if status != OK:
            return status
    if body.p != body.end:
        return ERR_RECORD_BODY
    c.p = body.end
    return OK
