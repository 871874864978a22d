"""One v0 or v1 message, field by field, every length checked against the message's end: format.md section 4."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.batch.layout cimport (
    ERR_KEY_SIZE, ERR_MAGIC, ERR_MESSAGE_SIZE, ERR_SHORT, ERR_VALUE_SIZE, LEGACY_ATTRIBUTES_AT, LOG_OVERHEAD,
    MAGIC_AT, MIN_SIZE_FIELD, OK, SIZE_AT, V0_KEY_AT, V0_MIN_MESSAGE, V1_KEY_AT, V1_MIN_MESSAGE, V1_TIMESTAMP_AT,
)
from kafkalog._core.bytes.cursor cimport Cursor, skip
from kafkalog._core.bytes.endian cimport load32, load64


cdef struct Message:
    const uint8_t* start
    const uint8_t* key              # valid where key_size >= 0
    const uint8_t* value
    int64_t offset
    int64_t timestamp               # -1 in a v0 message, which has none
    int64_t size                    # with the 12 bytes of offset and size field
    int32_t key_size                # -1 is null
    int32_t value_size
    int16_t attributes
    int8_t magic


cdef inline int take_sized32(Cursor* c, int32_t* size, const uint8_t** start, int error) noexcept nogil:
    """An i32 length (below 0 is null) and as many bytes."""
    if c.end - c.p < 4:
        return error
    size[0] = load32(c.p)
    c.p += 4
    start[0] = c.p
    if size[0] < 0:
        size[0] = -1
        return OK
    return error if skip(c, size[0]) != OK else OK


cdef inline int take_frame(Cursor* c, Message* m) noexcept nogil:
    """The message at the cursor without key and value; moves to the next one.

    ERR_SHORT where the data ends inside it (the cursor stays), ERR_MESSAGE_SIZE where it is shorter than its header.
    """
    cdef int32_t field
    if c.end - c.p < LOG_OVERHEAD:
        return ERR_SHORT
    field = load32(c.p + SIZE_AT)
    if field < MIN_SIZE_FIELD:
        return ERR_MESSAGE_SIZE
    m.size = <int64_t>field + LOG_OVERHEAD
    if m.size > c.end - c.p:
        return ERR_SHORT
    m.start = c.p
    m.offset = load64(c.p)
    m.magic = <int8_t>c.p[MAGIC_AT]
    m.attributes = c.p[LEGACY_ATTRIBUTES_AT]
    m.timestamp = -1
    if m.magic < 0 or m.magic > 1:
        return ERR_MAGIC
    if m.size < (V0_MIN_MESSAGE if m.magic == 0 else V1_MIN_MESSAGE):
        return ERR_MESSAGE_SIZE
    if m.magic == 1:
        m.timestamp = load64(c.p + V1_TIMESTAMP_AT)
    c.p += m.size
    return OK


cdef inline int take_fields(Message* m) noexcept nogil:
    """Key and value of a message that take_frame gave; bytes after the value are left alone, as the reference does."""
    cdef Cursor c
    cdef int status
    c.p = m.start + (V0_KEY_AT if m.magic == 0 else V1_KEY_AT)
    c.end = m.start + m.size
    status = take_sized32(&c, &m.key_size, &m.key, ERR_KEY_SIZE)
    if status == OK:
        status = take_sized32(&c, &m.value_size, &m.value, ERR_VALUE_SIZE)
    return status
