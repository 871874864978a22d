"""The row that a scan writes for each batch, and the header walk that fills it; header-only, used by every reader."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, HEADER_TO_MAGIC, LEGACY_ATTRIBUTES_AT, LEGACY_CRC_AT, LOG_OVERHEAD, MAGIC_AT, MIN_SIZE_FIELD, SIZE_AT,
    TIMESTAMP_TYPE_BIT, V0_MIN_MESSAGE, V1_MIN_MESSAGE, V1_TIMESTAMP_AT, V2_ATTRIBUTES_AT, V2_BASE_SEQUENCE_AT,
    V2_BASE_TIMESTAMP_AT, V2_COUNT_AT, V2_CRC_AT, V2_LAST_DELTA_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_PRODUCER_EPOCH_AT,
    V2_PRODUCER_ID_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.crc cimport kl_crc32, kl_crc32c
from kafkalog._core.bytes.endian cimport load16, load32, load64, loadu32
from kafkalog._core.bytes.wrap cimport added, subtracted


cdef struct BatchRow:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp          # or the delete horizon, by its attribute bit
    int64_t max_timestamp
    int64_t producer_id
    int64_t position                # where the batch starts in the scanned buffer
    int64_t size                    # with the 12 bytes of offset and size field
    int32_t leader_epoch
    int32_t base_sequence
    int32_t count                   # records by the header; -1 for a compressed v0/v1 message
    int32_t last_delta
    uint32_t crc                    # as stored
    uint32_t computed_crc           # 0 where it was not asked for
    int16_t attributes
    int16_t producer_epoch
    int8_t magic
    int8_t valid                    # 1 yes, 0 no, -1 not checked


cdef enum Stop:
    STOP_END = 0                    # the data ends with a whole batch
    STOP_PARTIAL = 1                # the last batch is cut off
    STOP_SIZE = 2                   # a size field below the smallest legal one
    STOP_MAGIC = 3                  # an unknown format (in memory only; a file scan takes it as the nearest)
    STOP_LIMIT = 4                  # as many batches as were asked for


cdef inline int peek_batch(
    const uint8_t* p, int64_t available, bint file_mode, int64_t* size, int* magic
) noexcept nogil:
    """Size and format of the batch at p, or why there is none: format.md section 5.

    A file scan stops below 17 bytes without looking; a memory scan looks at the size field from 12 bytes on.
    """
    cdef int32_t field
    if available <= 0:
        return STOP_END
    if available < (HEADER_TO_MAGIC if file_mode else LOG_OVERHEAD):
        return STOP_PARTIAL
    field = load32(p + SIZE_AT)
    if field < MIN_SIZE_FIELD:
        size[0] = field
        return STOP_SIZE
    if available < HEADER_TO_MAGIC:
        return STOP_PARTIAL
    magic[0] = <int8_t>p[MAGIC_AT]
    size[0] = <int64_t>field + LOG_OVERHEAD
    if not file_mode and (magic[0] < 0 or magic[0] > 2):
        return STOP_MAGIC
    return -1


cdef inline void read_legacy_row(const uint8_t* p, int64_t size, int magic, bint check, BatchRow* row) noexcept nogil:
    """Fill a row from a whole v0 or v1 message; each message counts as a batch."""
    cdef bint enough = size >= (V0_MIN_MESSAGE if magic <= 0 else V1_MIN_MESSAGE)
    row.base_offset = load64(p)
    row.last_offset = row.base_offset
    row.leader_epoch = -1
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.last_delta = 0
    row.magic = <int8_t>magic
    row.crc = loadu32(p + LEGACY_CRC_AT)
    row.attributes = p[LEGACY_ATTRIBUTES_AT] & (CODEC_MASK | TIMESTAMP_TYPE_BIT)   # other bits mean nothing here
    row.count = 1 if (row.attributes & CODEC_MASK) == 0 else -1
    row.max_timestamp = load64(p + V1_TIMESTAMP_AT) if magic >= 1 and enough else -1
    row.base_timestamp = row.max_timestamp
    row.computed_crc = 0
    row.valid = -1
    if check:
        row.computed_crc = kl_crc32(0, p + MAGIC_AT, <size_t>(size - MAGIC_AT))
        row.valid = enough and row.computed_crc == row.crc


cdef inline void read_v2_row(const uint8_t* p, int64_t size, bint check, BatchRow* row) noexcept nogil:
    """Fills a row from a whole v2 batch; one shorter than its own header has unknown fields and is never valid."""
    row.base_offset = load64(p)
    row.leader_epoch = load32(p + V2_LEADER_EPOCH_AT)
    row.magic = <int8_t>p[MAGIC_AT]
    row.crc = loadu32(p + V2_CRC_AT)
    row.computed_crc = 0
    row.valid = -1
    if size < V2_RECORDS_AT:
        row.attributes = load16(p + V2_ATTRIBUTES_AT) if size >= V2_LAST_DELTA_AT else 0
        row.last_delta = load32(p + V2_LAST_DELTA_AT) if size >= V2_BASE_TIMESTAMP_AT else 0
        row.last_offset = added(row.base_offset, row.last_delta)
        row.base_timestamp = row.max_timestamp = -1
        row.producer_id = -1
        row.producer_epoch = -1
        row.base_sequence = -1
        row.count = 0
        row.valid = 0
        return
    row.attributes = load16(p + V2_ATTRIBUTES_AT)
    row.last_delta = load32(p + V2_LAST_DELTA_AT)
    row.last_offset = added(row.base_offset, row.last_delta)
    row.base_timestamp = load64(p + V2_BASE_TIMESTAMP_AT)
    row.max_timestamp = load64(p + V2_MAX_TIMESTAMP_AT)
    row.producer_id = load64(p + V2_PRODUCER_ID_AT)
    row.producer_epoch = load16(p + V2_PRODUCER_EPOCH_AT)
    row.base_sequence = load32(p + V2_BASE_SEQUENCE_AT)
    row.count = load32(p + V2_COUNT_AT)
    if check:
        row.computed_crc = kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(size - V2_ATTRIBUTES_AT))
        row.valid = row.computed_crc == row.crc


cdef inline void read_row(const uint8_t* p, int64_t size, int magic, bint check, BatchRow* row) noexcept nogil:
    """Fills a row from a whole batch of any format; a file's unknown magic counts as the nearest known one."""
    row.size = size
    if magic >= 2:
        read_v2_row(p, size, check, row)
    else:
        read_legacy_row(p, size, magic, check, row)


cdef inline int64_t place_of(const BatchRow* row, int64_t base_position, int64_t length) noexcept nogil:
    """Return the position of a batch in a buffer of `length` bytes that begins at `base_position`; -1 unless all is there.

    A table says where its batches were, not in which buffer: call this before touching bytes by a row.
    """
    cdef int64_t at = subtracted(row.position, base_position)
    return -1 if at < 0 or at > length or row.size > length - at else at


cdef enum HeaderFault:
    BAD_COUNT = 1
    BAD_CONTROL = 2
    BAD_SEQUENCE = 3


cdef inline int header_fault_of(const BatchRow* row) noexcept nogil:
    """0 for a header that a leader takes from a client: format.md section 11, stage C2. v0 and v1 say nothing wrong."""
    cdef int64_t span = <int64_t>row.last_delta + 1
    if row.magic < 2:
        return 0
    if span <= 0 or row.count <= 0 or row.count != span:
        return BAD_COUNT
    if row.attributes & CONTROL_BIT:
        return BAD_CONTROL
    return BAD_SEQUENCE if row.producer_id >= 0 and row.base_sequence < 0 else 0
