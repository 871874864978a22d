"""xxHash32 of bytes in memory."""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    STRIPE = 16

cdef extern from *:
    """
    static const uint32_t PRIME_1 = 0x9E3779B1U, PRIME_2 = 0x85EBCA77U, PRIME_3 = 0xC2B2AE3DU;
    static const uint32_t PRIME_4 = 0x27D4EB2FU, PRIME_5 = 0x165667B1U;
    """
    const uint32_t PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5


cdef inline uint32_t rotated(uint32_t v, int bits) noexcept nogil:
    return (v << bits) | (v >> (32 - bits))


cdef inline uint32_t word(const uint8_t* p) noexcept nogil:
    """Four bytes, little-endian."""
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint32_t stirred(uint32_t lane, const uint8_t* p) noexcept nogil:
    return rotated(lane + word(p) * PRIME_2, 13) * PRIME_1


cdef inline uint32_t hash_of(const uint8_t* p, Py_ssize_t size, uint32_t seed) noexcept nogil:
    cdef const uint8_t* end = p + size
    cdef uint32_t a = seed + PRIME_1 + PRIME_2
    cdef uint32_t b = seed + PRIME_2
    cdef uint32_t c = seed
    cdef uint32_t d = seed - PRIME_1
    cdef uint32_t h = seed + PRIME_5
    if size >= STRIPE:
        while end - p >= STRIPE:
            a = stirred(a, p)
            b = stirred(b, p + 4)
            c = stirred(c, p + 8)
            d = stirred(d, p + 12)
            p += STRIPE
        h = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)
    h += <uint32_t>size
    while end - p >= 4:
        h = rotated(h + word(p) * PRIME_3, 17) * PRIME_4
        p += 4
    while p < end:
        h = rotated(h + p[0] * PRIME_5, 11) * PRIME_1
        p += 1
    h = (h ^ (h >> 15)) * PRIME_2
    h = (h ^ (h >> 13)) * PRIME_3
    return h ^ (h >> 16)
