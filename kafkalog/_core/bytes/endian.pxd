"""Big-endian loads and stores through memcpy: safe for any alignment, one instruction when compiled."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define kl_swap16(x) __builtin_bswap16(x)
    #define kl_swap32(x) __builtin_bswap32(x)
    #define kl_swap64(x) __builtin_bswap64(x)
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #error "kafkalog is built for little-endian machines"
    #endif
    """
    uint16_t kl_swap16(uint16_t x) noexcept nogil
    uint32_t kl_swap32(uint32_t x) noexcept nogil
    uint64_t kl_swap64(uint64_t x) noexcept nogil


cdef inline int16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return <int16_t>kl_swap16(v)


cdef inline int32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return <int32_t>kl_swap32(v)


cdef inline uint32_t loadu32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return kl_swap32(v)


cdef inline int64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return <int64_t>kl_swap64(v)


cdef inline void store16(uint8_t* p, int16_t value) noexcept nogil:
    cdef uint16_t v = kl_swap16(<uint16_t>value)
    memcpy(p, &v, 2)


cdef inline void store32(uint8_t* p, int32_t value) noexcept nogil:
    cdef uint32_t v = kl_swap32(<uint32_t>value)
    memcpy(p, &v, 4)


cdef inline void store64(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t v = kl_swap64(<uint64_t>value)
    memcpy(p, &v, 8)
