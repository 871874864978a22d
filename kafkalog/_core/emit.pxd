# cython: language_level=3
"""Sizes and writers of varints, and of the v2 batch header. The caller has made room; nothing here checks it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.crc cimport kl_crc32c
from kafkalog._core.endian cimport store16, store32, store64
from kafkalog._core.layout cimport (
    LOG_OVERHEAD, MAGIC_AT, SIZE_AT, V2_ATTRIBUTES_AT, V2_BASE_SEQUENCE_AT, V2_BASE_TIMESTAMP_AT, V2_COUNT_AT,
    V2_CRC_AT, V2_LAST_DELTA_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_PRODUCER_EPOCH_AT, V2_PRODUCER_ID_AT,
    V2_RECORDS_AT,
)


cdef inline uint32_t zigzag32(int32_t v) noexcept nogil:
    return ((<uint32_t>v) << 1) ^ <uint32_t>(v >> 31)


cdef inline uint64_t zigzag64(int64_t v) noexcept nogil:
    return ((<uint64_t>v) << 1) ^ <uint64_t>(v >> 63)


cdef inline int uvarint_size(uint64_t v) noexcept nogil:
    cdef int n = 1
    while v >= 0x80:
        v >>= 7
        n += 1
    return n


cdef inline int varint_size(int32_t v) noexcept nogil:
    return uvarint_size(zigzag32(v))


cdef inline int varlong_size(int64_t v) noexcept nogil:
    return uvarint_size(zigzag64(v))


cdef inline uint8_t* put_uvarint(uint8_t* p, uint64_t v) noexcept nogil:
    while v >= 0x80:
        p[0] = <uint8_t>(v | 0x80)
        p += 1
        v >>= 7
    p[0] = <uint8_t>v
    return p + 1


cdef inline uint8_t* put_varint(uint8_t* p, int32_t v) noexcept nogil:
    return put_uvarint(p, zigzag32(v))


cdef inline uint8_t* put_varlong(uint8_t* p, int64_t v) noexcept nogil:
    return put_uvarint(p, zigzag64(v))


cdef inline uint8_t* put_sized(uint8_t* p, const uint8_t* data, int32_t size) noexcept nogil:
    """A varint length and the bytes; size -1 is null."""
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, data, <size_t>size)
        p += size
    return p


cdef struct HeaderFields:
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t leader_epoch
    int32_t last_delta
    int32_t base_sequence
    int32_t count
    int16_t producer_epoch
    int16_t attributes


cdef inline void plain_header(HeaderFields* h) noexcept nogil:
    """A header without producer, epoch and flags."""
    h.base_offset = 0
    h.base_timestamp = h.max_timestamp = -1
    h.producer_id = -1
    h.leader_epoch = h.base_sequence = -1
    h.producer_epoch = -1
    h.last_delta = h.count = 0
    h.attributes = 0


cdef inline void put_header(uint8_t* p, int64_t size, const HeaderFields* h) noexcept nogil:
    """Writes the 61 header bytes of a batch of `size` bytes whose records are in place, checksum included."""
    cdef uint32_t crc
    store64(p, h.base_offset)
    store32(p + SIZE_AT, <int32_t>(size - LOG_OVERHEAD))
    store32(p + V2_LEADER_EPOCH_AT, h.leader_epoch)
    p[MAGIC_AT] = 2
    store16(p + V2_ATTRIBUTES_AT, h.attributes)
    store32(p + V2_LAST_DELTA_AT, h.last_delta)
    store64(p + V2_BASE_TIMESTAMP_AT, h.base_timestamp)
    store64(p + V2_MAX_TIMESTAMP_AT, h.max_timestamp)
    store64(p + V2_PRODUCER_ID_AT, h.producer_id)
    store16(p + V2_PRODUCER_EPOCH_AT, h.producer_epoch)
    store32(p + V2_BASE_SEQUENCE_AT, h.base_sequence)
    store32(p + V2_COUNT_AT, h.count)
    crc = kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(size - V2_ATTRIBUTES_AT))
    store32(p + V2_CRC_AT, <int32_t>crc)
