"""MD5 of bytes in memory (RFC 1321): what the reference's offset map hashes keys with; for nothing that must be safe."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    BLOCK = 64
    LENGTH_AT = 56                  # of the message's bits, in its last block

cdef extern from *:
    """
    static const uint32_t KL_MD5_ADDED[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
        0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
        0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
        0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
        0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
        0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
        0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
    };
    static const unsigned char KL_MD5_TURNS[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21},
    };
    """
    const uint32_t KL_MD5_ADDED[64]
    const unsigned char KL_MD5_TURNS[4][4]


cdef inline void md5_block(uint32_t* state, const uint8_t* p) noexcept nogil:
    cdef uint32_t words[16]
    cdef uint32_t a = state[0]
    cdef uint32_t b = state[1]
    cdef uint32_t c = state[2]
    cdef uint32_t d = state[3]
    cdef uint32_t mixed
    cdef int turns
    cdef int which
    cdef int i
    memcpy(words, p, BLOCK)
    for i in range(64):
        if i < 16:
            mixed = d ^ (b & (c ^ d))
            which = i
        elif i < 32:
            mixed = c ^ (d & (b ^ c))
            which = (5 * i + 1) & 15
        elif i < 48:
            mixed = b ^ c ^ d
            which = (3 * i + 5) & 15
        else:
            mixed = c ^ (b | ~d)
            which = (7 * i) & 15
        mixed += a + KL_MD5_ADDED[i] + words[which]
        turns = KL_MD5_TURNS[i >> 4][i & 3]
        a = d
        d = c
        c = b
        b += (mixed << turns) | (mixed >> (32 - turns))
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d


cdef inline void md5_of(const uint8_t* p, Py_ssize_t size, uint8_t* out) noexcept nogil:
    """Writes the 16 bytes of the digest."""
    cdef uint32_t state[4]
    cdef uint8_t tail[BLOCK]
    cdef Py_ssize_t left = size
    cdef uint64_t bits = <uint64_t>size << 3
    state[0] = 0x67452301
    state[1] = 0xEFCDAB89
    state[2] = 0x98BADCFE
    state[3] = 0x10325476
    while left >= BLOCK:
        md5_block(state, p)
        p += BLOCK
        left -= BLOCK
    memset(tail, 0, BLOCK)
    if left > 0:
        memcpy(tail, p, <size_t>left)
    tail[left] = 0x80
    if left >= LENGTH_AT:
        md5_block(state, tail)
        memset(tail, 0, BLOCK)
    memcpy(tail + LENGTH_AT, &bits, 8)
    md5_block(state, tail)
    memcpy(out, state, 16)
