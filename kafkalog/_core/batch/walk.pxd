from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, LOG_OVERHEAD, MAGIC_AT, SIZE_AT, TRANSACTIONAL_BIT, V2_ATTRIBUTES_AT, V2_COUNT_AT, V2_CRC_AT,
    V2_LAST_DELTA_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.crc cimport kl_crc32c
from kafkalog._core.bytes.endian cimport load16, load32, loadu32


cdef enum Stopped:
    # why a walk came back
    WALK_MORE = 0                   # the chunk is used up: bytes from `position` on are wanted
    WALK_END = 1                    # the file ends with a whole batch
    WALK_PARTIAL = 2                # what is left of the file is no whole batch; `value` is the size it claims, or 0
    WALK_SIZE = 3                   # a size field that no batch has: `value`; the next batch cannot be found
    WALK_CRC = 4                    # this and what follows: the walk has passed over the batch in `row`
    WALK_ORDER = 5
    WALK_RANGE = 6
    WALK_MAGIC = 7
    WALK_HEADER = 8
    WALK_MEMORY = -1

    CODECS = 5                      # with none

    MOST_MARKER_BYTES = 65536       # a control batch is looked into where it is not longer: a marker has 78 bytes


cdef class BatchWalk:
    cdef readonly int64_t base_offset
    cdef readonly int64_t position      # the byte to go on at
    cdef readonly int64_t end           # of the file
    cdef readonly int64_t value         # what is wrong with the last size field
    cdef bint check_crc
    cdef bint busy                      # a thread is in `check`, without the GIL
    cdef BatchRow row                   # the batch last looked at
    cdef int64_t stream_left            # bytes of that batch that are still to come, where it is taken piece by piece
    cdef uint32_t stream_crc

    cdef int refuse_a_second(self) except -1
    cdef int64_t take_plain(self, const uint8_t* data, int64_t length) noexcept nogil
    cdef int step(self, const uint8_t* data, int64_t length) noexcept nogil
    cdef int finish_stream(self, const uint8_t* data, int64_t length, int64_t* at) noexcept nogil
    cdef bint begin_stream(self, const uint8_t* data, int64_t length, int64_t size, int magic, int64_t* at) noexcept nogil
    cdef int judge(self, const uint8_t* batch) noexcept nogil


cdef inline int64_t plain_size(const uint8_t* p, int64_t available) noexcept nogil:
    """The bytes of the whole v2 batch at `p`, if it is of no transaction and has an offset for each record; else 0."""
    cdef int64_t size
    cdef int attributes, last_delta, count
    if available < V2_RECORDS_AT or p[MAGIC_AT] != 2:
        return 0
    size = <int64_t>load32(p + SIZE_AT) + LOG_OVERHEAD
    attributes = load16(p + V2_ATTRIBUTES_AT)
    last_delta, count = load32(p + V2_LAST_DELTA_AT), load32(p + V2_COUNT_AT)
    if size < V2_RECORDS_AT or size > available or attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
        return 0
    if (attributes & CODEC_MASK) >= CODECS or last_delta < 0 or count < 0 or count > <int64_t>last_delta + 1:
        return 0
    return size


cdef inline bint checksum_holds(const uint8_t* p, int64_t size) noexcept nogil:
    """True where the bytes of a whole v2 batch are those that its checksum was made of."""
    return kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(size - V2_ATTRIBUTES_AT)) == loadu32(p + V2_CRC_AT)
