"""Compressed v0 and v1 messages: where their payload lies, and the offsets of the messages in it (format.md section 4)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, ERR_SHORT, ERR_WRAPPER_CODEC, ERR_WRAPPER_EMPTY, ERR_WRAPPER_NESTED, ERR_WRAPPER_NULL,
    ERR_WRAPPER_OFFSET, LOG_OVERHEAD, OK, SIZE_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load32, load64, store64
from kafkalog._core.bytes.wrap cimport added, subtracted

cdef enum:
    WRAPPER_ZSTD = 4                # a codec id that wrappers cannot have


cdef inline int wrapper_payload(
    const uint8_t* p, const BatchRow* row, const uint8_t** payload, int64_t* size
) noexcept nogil:
    """The compressed bytes of the wrapper at p."""
    cdef Cursor c
    cdef Message m
    cdef int status
    c.p = p
    c.end = p + row.size
    status = take_frame(&c, &m)
    if status == OK:
        status = take_fields(&m)
    if status == OK and m.value_size < 0:
        status = ERR_WRAPPER_NULL
    if status == OK and row.attributes & CODEC_MASK == WRAPPER_ZSTD:
        status = ERR_WRAPPER_CODEC
    if status == OK:
        payload[0] = m.value
        size[0] = m.value_size
    return status


cdef inline int settle(uint8_t* p, int64_t size, BatchRow* row) noexcept nogil:
    """Gives the inner messages of a wrapper their absolute offsets, in place, and the row first offset and count.

    Offsets of a v0 wrapper are absolute already; those of a v1 wrapper are relative, and the wrapper's offset is that
    of the last one, or 0 from an old librdkafka.
    """
    cdef Cursor c
    cdef Message m
    cdef int status
    cdef int64_t base = 0
    cdef int32_t count = 0
    cdef int32_t _
    c.p = p
    c.end = p + size
    while True:
        status = take_frame(&c, &m)
        if status != OK:
            break
        if m.attributes & CODEC_MASK:
            return ERR_WRAPPER_NESTED
        base = m.offset
        if count == 0:
            row.base_offset = base
        count += 1
    if status != ERR_SHORT:
        return status
    if count == 0:
        return ERR_WRAPPER_EMPTY
    row.count = count
    if row.magic == 0:
        return OK
    if row.last_offset != 0 and row.last_offset < base:
        return ERR_WRAPPER_OFFSET
    base = 0 if row.last_offset == 0 else subtracted(row.last_offset, base)
    row.base_offset = added(row.base_offset, base)
    # the frames were looked at above
    for _ in range(count):
        store64(p, added(load64(p), base))
        p += LOG_OVERHEAD + load32(p + SIZE_AT)
    return OK
