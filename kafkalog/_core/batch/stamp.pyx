"""A producer's id, epoch and sequences, set in place in batches that were built without them."""
from cpython.buffer cimport Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.batch.layout cimport (
    CONTROL_BIT, LOG_OVERHEAD, MAGIC_AT, SIZE_AT, V2_ATTRIBUTES_AT, V2_BASE_SEQUENCE_AT, V2_COUNT_AT, V2_CRC_AT,
    V2_LAST_DELTA_AT, V2_PRODUCER_EPOCH_AT, V2_PRODUCER_ID_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.crc cimport kl_crc32c
from kafkalog._core.bytes.endian cimport load16, load32, loadu32, store16, store32, store64
from kafkalog._core.bytes.wrap cimport increment_sequence

cdef enum:
    # why a batch cannot be stamped
    FINE = 0
    NO_BATCH
    BAD_CHECKSUM
    BAD_HEADER


class BadBatch(ValueError):
    """A batch that cannot be stamped; `position` is where it begins in the buffer."""

    def __init__(self, message: str, position: int):
        super().__init__(message)
        self.position = position


def stamp_producer(batches, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence) -> int:
    """Gives the v2 batches in a writable buffer, back to back, to a producer; returns the sequence after the last.

    The first record has `base_sequence`, 0 follows 2147483647 (REC-13). Checksums are computed again, so the old ones are
    checked first: damage stays damage. BadBatch, a ValueError with `position`, for what is no whole v2 batch, for a
    checksum that does not fit, and for control batches and headers whose counts disagree; ValueError for an id, epoch
    or sequence below 0. Nothing is changed when it raises. Codecs do not matter: only headers are looked at.
    """
    cdef Py_buffer view
    cdef int64_t at = 0
    cdef int32_t sequence = base_sequence
    cdef int fault
    if producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
        raise ValueError(f"producer id {producer_id}, epoch {producer_epoch} and sequence {base_sequence}: none is below 0")
    PyObject_GetBuffer(batches, &view, PyBUF_WRITABLE)
    try:
        with nogil:
            fault = check_all(<const uint8_t*>view.buf, view.len, &at)
            if fault == FINE:
                sequence = stamp_all(<uint8_t*>view.buf, view.len, producer_id, producer_epoch, sequence)
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        raise BadBatch(words_of(fault, at), at)
    if sequence < 0:
        raise RuntimeError("the batches were changed by another thread while they were stamped: give each call its own")
    return sequence


cdef str words_of(int fault, int64_t at):
    if fault == NO_BATCH:
        return f"at byte {at} begins no whole batch of format v2"
    if fault == BAD_CHECKSUM:
        return f"the checksum of the batch at byte {at} does not fit its bytes"
    return f"the batch at byte {at} is a control batch, or its header disagrees with itself about the number of records"


cdef int check_all(const uint8_t* data, int64_t size, int64_t* at) noexcept nogil:
    """FINE where [data, data + size) is whole batches that may be stamped; else why not, and where."""
    cdef const uint8_t* p
    cdef int64_t batch
    cdef int64_t records
    while at[0] < size:
        p = data + at[0]
        if size - at[0] < V2_RECORDS_AT or p[MAGIC_AT] != 2:
            return NO_BATCH
        batch = <int64_t>load32(p + SIZE_AT) + LOG_OVERHEAD
        if batch < V2_RECORDS_AT or batch > size - at[0]:
            return NO_BATCH
        if loadu32(p + V2_CRC_AT) != kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(batch - V2_ATTRIBUTES_AT)):
            return BAD_CHECKSUM
        records = load32(p + V2_COUNT_AT)
        if records < 1 or records != <int64_t>load32(p + V2_LAST_DELTA_AT) + 1 or load16(p + V2_ATTRIBUTES_AT) & CONTROL_BIT:
            return BAD_HEADER
        at[0] += batch
    return FINE


cdef int32_t stamp_all(
    uint8_t* data, int64_t size, int64_t producer_id, int16_t producer_epoch, int32_t sequence
) noexcept nogil:
    """Stamps batches that `check_all` found fine; the sequence after the last, -1 where somebody changed them since."""
    cdef int64_t at = 0
    cdef int64_t batch
    cdef uint8_t* p
    while at < size:
        p = data + at
        if size - at < V2_RECORDS_AT:
            return -1
        batch = <int64_t>load32(p + SIZE_AT) + LOG_OVERHEAD
        if batch < V2_RECORDS_AT or batch > size - at:
            return -1
        store64(p + V2_PRODUCER_ID_AT, producer_id)
        store16(p + V2_PRODUCER_EPOCH_AT, producer_epoch)
        store32(p + V2_BASE_SEQUENCE_AT, sequence)
        store32(p + V2_CRC_AT, <int32_t>kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(batch - V2_ATTRIBUTES_AT)))
        sequence = increment_sequence(sequence, load32(p + V2_COUNT_AT))
        at += batch
    return sequence
