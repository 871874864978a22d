"""The 32-bit murmur2 of Kafka's default partitioner (format.md section 16); header-only, for any compiled module."""
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    MURMUR_SHIFT = 24

cdef extern from *:
    """
    static const uint32_t MURMUR_SEED = 0x9747B28CU;
    """
    const uint32_t MURMUR_SEED


cdef inline int32_t murmur2_of(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """The hash of n bytes. Words are little-endian; arithmetic wraps at 32 bits, as Java's does."""
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t h = MURMUR_SEED ^ <uint32_t>n
    cdef uint32_t k
    while n >= 4:
        memcpy(&k, p, 4)
        k *= multiplier
        k ^= k >> MURMUR_SHIFT
        k *= multiplier
        h = h * multiplier ^ k
        p += 4
        n -= 4
    if n == 3:
        h ^= <uint32_t>p[2] << 16
    if n >= 2:
        h ^= <uint32_t>p[1] << 8
    if n >= 1:
        h = (h ^ p[0]) * multiplier
    h = (h ^ h >> 13) * multiplier
    return <int32_t>(h ^ h >> 15)


cdef inline int32_t partition_of(const uint8_t* key, Py_ssize_t n, int32_t partitions) noexcept nogil:
    """The partition of a key among `partitions` > 0."""
    return (murmur2_of(key, n) & 0x7FFFFFFF) % partitions
