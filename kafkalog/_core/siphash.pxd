# cython: language_level=3
"""SipHash-2-4 with 128 bits of result: a hash whose collisions nobody can make who does not know its key."""
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define KL_SIP_0 0x736f6d6570736575ULL
    #define KL_SIP_1 0x646f72616e646f6dULL
    #define KL_SIP_2 0x6c7967656e657261ULL
    #define KL_SIP_3 0x7465646279746573ULL
    """
    const uint64_t KL_SIP_0, KL_SIP_1, KL_SIP_2, KL_SIP_3


cdef struct SipKey:
    uint64_t low
    uint64_t high


cdef struct SipState:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline uint64_t turned(uint64_t v, int bits) noexcept nogil:
    return (v << bits) | (v >> (64 - bits))


cdef inline void sip_round(SipState* s) noexcept nogil:
    s.a += s.b
    s.c += s.d
    s.b = turned(s.b, 13) ^ s.a
    s.d = turned(s.d, 16) ^ s.c
    s.a = turned(s.a, 32)
    s.c += s.b
    s.a += s.d
    s.b = turned(s.b, 17) ^ s.c
    s.d = turned(s.d, 21) ^ s.a
    s.c = turned(s.c, 32)


cdef inline void sip_take(SipState* s, uint64_t word) noexcept nogil:
    s.d ^= word
    sip_round(s)
    sip_round(s)
    s.a ^= word


cdef inline uint64_t last_word(const uint8_t* p, Py_ssize_t size, Py_ssize_t left) noexcept nogil:
    """The `left` < 8 bytes at p as a little-endian number, with the low byte of `size` above them; reads no other byte.

    Where there are eight bytes before the end, one load of them is shifted, since the bytes behind are not ours.
    """
    cdef uint64_t word = 0
    if left == 0:
        word = 0
    elif size >= 8:
        memcpy(&word, p + left - 8, 8)
        word >>= 8 * (8 - left)
    elif left >= 4:
        word = loaded32(p + left - 4) << (8 * (left - 4)) | loaded32(p)
    else:
        word = p[0] | <uint64_t>p[left >> 1] << (8 * (left >> 1)) | <uint64_t>p[left - 1] << (8 * (left - 1))
    return word | <uint64_t>size << 56


cdef inline uint64_t loaded32(const uint8_t* p) noexcept nogil:
    cdef unsigned int v
    memcpy(&v, p, 4)
    return v


cdef inline void siphash_128(const SipKey* key, const uint8_t* p, Py_ssize_t size, uint64_t* out) noexcept nogil:
    """The two words of the result, in the order in which the reference implementation writes them."""
    cdef SipState s
    cdef uint64_t word
    cdef const uint8_t* end = p + (size & ~7)
    cdef int i
    s.a = KL_SIP_0 ^ key.low
    s.b = KL_SIP_1 ^ key.high ^ 0xEE
    s.c = KL_SIP_2 ^ key.low
    s.d = KL_SIP_3 ^ key.high
    while p < end:
        memcpy(&word, p, 8)
        sip_take(&s, word)
        p += 8
    sip_take(&s, last_word(p, size, size & 7))
    s.c ^= 0xEE
    for i in range(4):
        sip_round(&s)
    out[0] = s.a ^ s.b ^ s.c ^ s.d
    s.b ^= 0xDD
    for i in range(4):
        sip_round(&s)
    out[1] = s.a ^ s.b ^ s.c ^ s.d
