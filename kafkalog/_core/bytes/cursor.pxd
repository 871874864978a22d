"""The one place that moves a pointer through untrusted bytes: every read is checked against the end first."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.batch.layout cimport ERR_SHORT, ERR_VARINT, OK


cdef extern from *:
    """
    #include <stdint.h>
    enum { KL_LONG = 1 << 14 };

    /* the value of a varint of one or two bytes before zigzag; what is no such varint gives an odd one >= KL_LONG */
    static inline uint32_t kl_short(const uint8_t** p) {
        uint32_t low = (*p)[0], high = (*p)[1];
        if (low < 0x80) { *p += 1; return low; }
        *p += 2;
        return high < 0x80 ? (low & 0x7F) | high << 7 : KL_LONG | 1;
    }

    /* the two bytes that hold such a varint, or begin with it: where they are the same, its value is too */
    static inline uint32_t kl_head(const uint8_t* p) { return p[0] | (uint32_t)p[1] << 8; }

    /* p + step, where the step is a guess that the bytes at p confirmed: the processor is not to wait for them */
    static inline const uint8_t* kl_step(const uint8_t* p, int64_t step) {
    #if defined(__GNUC__)
        __asm__("" : "+r"(step));
    #endif
        return p + step;
    }
    """
    uint32_t kl_short(const uint8_t** p) noexcept nogil
    uint32_t kl_head(const uint8_t* p) noexcept nogil
    const uint8_t* kl_step(const uint8_t* p, int64_t step) noexcept nogil
    enum:
        KL_LONG

cdef enum:
    LONG_VARINT = -0x80000000       # no varint of two bytes has this value


cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end


cdef inline int take_i8(Cursor* c, int8_t* out) noexcept nogil:
    if c.p >= c.end:
        return ERR_SHORT
    out[0] = <int8_t>c.p[0]
    c.p += 1
    return OK


cdef inline int take_uvarint(Cursor* c, uint32_t* out) noexcept nogil:
    """Unsigned LEB128 of at most five bytes; bits past the 32nd in the fifth byte are dropped, as the reference does."""
    cdef uint32_t value = 0
    cdef uint32_t shift = 0
    cdef uint8_t b
    if c.p < c.end and c.p[0] < 0x80:
        out[0] = c.p[0]
        c.p += 1
        return OK
    while True:
        if c.p >= c.end:
            return ERR_SHORT
        b = c.p[0]
        c.p += 1
        value |= (<uint32_t>(b & 0x7F)) << shift
        if b < 0x80:
            out[0] = value
            return OK
        shift += 7
        if shift > 28:
            return ERR_VARINT


cdef inline int take_varint(Cursor* c, int32_t* out) noexcept nogil:
    """Zigzag 32-bit varint."""
    cdef uint32_t raw = 0
    cdef int status = take_uvarint(c, &raw)
    out[0] = <int32_t>((raw >> 1) ^ (~(raw & 1) + 1))
    return status


cdef inline int take_varlong(Cursor* c, int64_t* out) noexcept nogil:
    """Zigzag 64-bit varint of at most ten bytes."""
    cdef uint64_t value = 0
    cdef uint32_t shift = 0
    cdef uint8_t b
    while True:
        if c.p >= c.end:
            return ERR_SHORT
        b = c.p[0]
        c.p += 1
        value |= (<uint64_t>(b & 0x7F)) << shift
        if b < 0x80:
            out[0] = <int64_t>((value >> 1) ^ (~(value & 1) + 1))
            return OK
        shift += 7
        if shift > 63:
            return ERR_VARINT


cdef inline int skip(Cursor* c, int64_t n) noexcept nogil:
    """Moves n >= 0 bytes on."""
    if n < 0 or n > c.end - c.p:
        return ERR_SHORT
    c.p += n
    return OK


cdef inline int32_t short_varint(const uint8_t** p) noexcept nogil:
    """A zigzag varint of one or two bytes, both of which must be readable; INT32_MIN, and no move, for a longer one."""
    cdef uint32_t raw = p[0][0]
    if raw < 0x80:
        p[0] += 1
    else:
        if p[0][1] >= 0x80:
            return LONG_VARINT
        raw = (raw & 0x7F) | (<uint32_t>p[0][1] << 7)
        p[0] += 2
    return <int32_t>((raw >> 1) ^ (~(raw & 1) + 1))
