"""The constant words and numbers of the dump tool's lines, into a place the caller has reserved (format.md 12, 13 A1-A2)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.headers cimport Header, headers_of, take_header
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, LEGACY_CRC_AT, MAGIC_AT, OK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT,
)
from kafkalog._core.batch.legacy_message cimport Message
from kafkalog._core.bytes.crc cimport kl_crc32
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load32, loadu32
from kafkalog._core.bytes.wrap cimport added, increment_sequence
from kafkalog._core.text.text_buffer cimport put, put_java_text, put_number, put_unsigned

cdef enum:
    LINE_SPACE = 640            # more than the constant parts and numbers of any one line
    BODY_EXPANSION = 4          # bytes of text for a byte of record: U+FFFD takes three, a header's comma is a fourth


cdef inline uint8_t* put_bool(uint8_t* d, bint value) noexcept nogil:
    return put(d, b"true", 4) if value else put(d, b"false", 5)


cdef inline uint8_t* put_codec(uint8_t* d, int codec) noexcept nogil:
    if codec == 0:
        return put(d, b"none", 4)
    if codec == 1:
        return put(d, b"gzip", 4)
    if codec == 2:
        return put(d, b"snappy", 6)
    return put(d, b"lz4", 3) if codec == 3 else put(d, b"zstd", 4)


cdef inline uint8_t* put_timestamp_type(uint8_t* d, BatchRow* row) noexcept nogil:
    if row.magic == 0:
        return put(d, b"NoTimestampType", 15)
    if row.attributes & TIMESTAMP_TYPE_BIT:
        return put(d, b"LogAppendTime", 13)
    return put(d, b"CreateTime", 10)


cdef inline uint8_t* put_batch_fields(uint8_t* d, BatchRow* row) noexcept nogil:
    """The part of a v2 batch line before its position."""
    cdef int32_t last_sequence = -1
    if row.base_sequence != -1:
        last_sequence = increment_sequence(row.base_sequence, row.last_delta)
    d = put_number(put(d, b"baseOffset: ", 12), row.base_offset)
    d = put_number(put(d, b" lastOffset: ", 13), row.last_offset)
    d = put_number(put(d, b" count: ", 8), row.count)
    d = put_number(put(d, b" baseSequence: ", 15), row.base_sequence)
    d = put_number(put(d, b" lastSequence: ", 15), last_sequence)
    d = put_number(put(d, b" producerId: ", 13), row.producer_id)
    d = put_number(put(d, b" producerEpoch: ", 16), row.producer_epoch)
    d = put_number(put(d, b" partitionLeaderEpoch: ", 23), row.leader_epoch)
    d = put_bool(put(d, b" isTransactional: ", 18), row.attributes & TRANSACTIONAL_BIT)
    d = put_bool(put(d, b" isControl: ", 12), row.attributes & CONTROL_BIT)
    if not row.attributes & DELETE_HORIZON_BIT:
        return put(d, b" deleteHorizonMs: OptionalLong.empty", 36)
    d = put_number(put(d, b" deleteHorizonMs: OptionalLong[", 31), row.base_timestamp)
    return put(d, b"]", 1)


cdef inline uint8_t* put_batch_start(uint8_t* d, BatchRow* row) noexcept nogil:
    """A batch line up to its position: all that the reference has printed when it meets an unknown codec or format."""
    if row.magic >= 2:
        return put_batch_fields(d, row)
    return put_number(put(d, b"offset: ", 8), row.last_offset)


cdef inline uint8_t* put_batch_rest(uint8_t* d, BatchRow* row, int64_t position) noexcept nogil:
    """The rest of the line that put_batch_start began."""
    d = put_number(put(d, b" position: ", 11), position)
    d = put_timestamp_type(put(d, b" ", 1), row)
    d = put_number(put(d, b": ", 2), row.max_timestamp)
    d = put_number(put(d, b" size: ", 7), row.size)
    d = put_number(put(d, b" magic: ", 8), row.magic)
    d = put_codec(put(d, b" compresscodec: ", 16), row.attributes & CODEC_MASK)
    d = put_unsigned(put(d, b" crc: ", 6), row.crc)
    d = put_bool(put(d, b" isvalid: ", 10), row.valid)
    return put(d, b"\n", 1)


cdef inline uint8_t* put_header_keys(uint8_t* d, Fields* r) noexcept nogil:
    """The names of headers that take_record has checked, between brackets, with commas."""
    cdef Cursor c = headers_of(r)
    cdef Header h
    cdef int32_t i
    for i in range(r.header_count):
        if take_header(&c, &h) != OK:
            break
        if i > 0:
            d = put(d, b",", 1)
        d = put_java_text(d, h.key, h.key_size)
    return d


cdef inline uint8_t* put_record_fields(uint8_t* d, Fields* r, BatchRow* row) noexcept nogil:
    """`| offset: ...` up to the header keys and their bracket."""
    cdef int64_t timestamp = added(row.base_timestamp, r.timestamp_delta)
    d = put_number(put(d, b"| offset: ", 10), added(row.base_offset, r.offset_delta))
    if row.attributes & TIMESTAMP_TYPE_BIT:
        timestamp = row.max_timestamp
        d = put(d, b" LogAppendTime: ", 16)
    else:
        d = put(d, b" CreateTime: ", 13)
    d = put_number(d, timestamp)
    if r.key_size < 0:
        d = put(d, b" keySize: -1 valueSize: ", 24)
    else:
        d = put_number(put(d, b" keySize: ", 10), r.key_size)
        d = put(d, b" valueSize: ", 12)
    d = put_number(d, r.value_size)
    if row.base_sequence < 0:
        d = put(d, b" sequence: -1 headerKeys: [", 27)
    else:
        d = put_number(put(d, b" sequence: ", 11), increment_sequence(row.base_sequence, r.offset_delta))
        d = put(d, b" headerKeys: [", 14)
    if r.header_count > 0:
        d = put_header_keys(d, r)
    return put(d, b"]", 1)


cdef inline uint8_t* put_message_fields(uint8_t* d, Message* m, BatchRow* row) noexcept nogil:
    """A record line of format v0 or v1 up to its checksum: that of the message itself, not of the wrapper around it.

    Sizes are as they are stored: any number below 0 is null.
    """
    cdef int64_t timestamp = m.timestamp
    cdef uint32_t crc = loadu32(m.start + LEGACY_CRC_AT)
    if m.magic == 1 and row.magic == 1 and row.attributes & TIMESTAMP_TYPE_BIT:
        timestamp = row.max_timestamp
    d = put_number(put(d, b"| offset: ", 10), m.offset)
    d = put_timestamp_type(put(d, b" ", 1), row)
    d = put_number(put(d, b": ", 2), timestamp)
    d = put_number(put(d, b" keySize: ", 10), load32(m.key - 4))
    d = put_number(put(d, b" valueSize: ", 12), load32(m.value - 4))
    d = put_bool(put(d, b" isValid: ", 10), crc == kl_crc32(0, m.start + MAGIC_AT, <size_t>(m.size - MAGIC_AT)))
    return put_unsigned(put(d, b" crc: ", 6), crc)


cdef inline uint8_t* put_data(
    uint8_t* d, const uint8_t* key, int32_t key_size, const uint8_t* value, int32_t value_size, bint first
) noexcept nogil:
    """Key and value; `first` on a line that holds nothing else, which begins with the bar of a record line."""
    if key_size >= 0:
        d = put(d, b"| key: ", 7) if first else put(d, b" key: ", 6)
        d = put_java_text(d, key, key_size)
        first = False
    if value_size >= 0:
        d = put(d, b"| payload: ", 11) if first else put(d, b" payload: ", 10)
        d = put_java_text(d, value, value_size)
    return d
