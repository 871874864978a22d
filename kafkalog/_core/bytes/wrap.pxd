"""Sums that wrap instead of overflowing: numbers from untrusted bytes may be anything, and a signed overflow is undefined."""
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef extern from *:
    """
    #define KL_INLINE static inline __attribute__((always_inline))
    KL_INLINE int64_t kl_added(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
    KL_INLINE int64_t kl_subtracted(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
    """
    int64_t added "kl_added"(int64_t a, int64_t b) noexcept nogil               # with the wrap of 64 bits
    int64_t subtracted "kl_subtracted"(int64_t a, int64_t b) noexcept nogil     # the same for a - b


cdef inline int32_t increment_sequence(int32_t sequence, int32_t increment) noexcept nogil:
    """Sequence arithmetic of the reference: 0 follows 2147483647 (format.md section 1), 32-bit wrap elsewhere."""
    cdef uint32_t room = 0x7FFFFFFFU - <uint32_t>increment
    if sequence > <int32_t>room:
        return <int32_t>(<uint32_t>increment - (0x7FFFFFFFU - <uint32_t>sequence) - 1)
    return <int32_t>(<uint32_t>sequence + <uint32_t>increment)
