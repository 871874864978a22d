"""Sizes and writers of varints, of the v2 batch header and of v0 and v1 messages. The caller has made room."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.batch.layout cimport (
    LEGACY_ATTRIBUTES_AT, LEGACY_CRC_AT, LOG_OVERHEAD, MAGIC_AT, SIZE_AT, V0_KEY_AT, V1_KEY_AT, V1_TIMESTAMP_AT,
    V2_ATTRIBUTES_AT, V2_BASE_SEQUENCE_AT, V2_BASE_TIMESTAMP_AT, V2_COUNT_AT,
    V2_CRC_AT, V2_LAST_DELTA_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_PRODUCER_EPOCH_AT, V2_PRODUCER_ID_AT,
)
from kafkalog._core.bytes.crc cimport kl_crc32, kl_crc32c
from kafkalog._core.bytes.endian cimport store16, store32, store64


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


cdef inline uint8_t* put_bytes32(uint8_t* p, const uint8_t* data, int64_t size) noexcept nogil:
    """An i32 length and the bytes; a size below 0 is null."""
    if size < 0:
        store32(p, -1)
        return p + 4
    store32(p, <int32_t>size)
    if size > 0:
        memcpy(p + 4, data, <size_t>size)
    return p + 4 + size


cdef inline int64_t message_size(int magic, int64_t key_size, int64_t value_size) noexcept nogil:
    """Bytes of a v0 or v1 message with the 12 of offset and size field; a size below 0 is null."""
    return (
        (V0_KEY_AT if magic == 0 else V1_KEY_AT) + 8 + (key_size if key_size > 0 else 0)
        + (value_size if value_size > 0 else 0)
    )


cdef inline void put_message(
    uint8_t* p, int64_t size, int magic, int attributes, int64_t offset, int64_t timestamp, const uint8_t* key,
    int64_t key_size, const uint8_t* value, int64_t value_size,
) noexcept nogil:
    """Writes a whole message of `size` bytes, checksum last."""
    cdef uint8_t* q = p + V0_KEY_AT
    store64(p, offset)
    store32(p + SIZE_AT, <int32_t>(size - LOG_OVERHEAD))
    p[MAGIC_AT] = <uint8_t>magic
    p[LEGACY_ATTRIBUTES_AT] = <uint8_t>attributes
    if magic == 1:
        store64(p + V1_TIMESTAMP_AT, timestamp)
        q = p + V1_KEY_AT
    put_bytes32(put_bytes32(q, key, key_size), value, value_size)
    store32(p + LEGACY_CRC_AT, <int32_t>kl_crc32(0, p + MAGIC_AT, <size_t>(size - MAGIC_AT)))
