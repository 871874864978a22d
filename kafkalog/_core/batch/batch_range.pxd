"""Ranges of offsets that a right checksum does not make right, and that a reader or cleaner must not believe."""
from libc.stdint cimport int64_t

from kafkalog._core.batch.check cimport BatchRow

cdef enum:
    ERR_BATCH_RANGE = 105           # a status beside those of layout.pxd: the batch ends below its base offset


cdef inline bint is_misplaced(const BatchRow* row, int64_t offset, bint has_before, int64_t lowest) noexcept nogil:
    """True for a v0 or v1 message below `lowest`, which is behind one before it, or above its wrapper.

    A wrapper of an old librdkafka has offset 0.
    """
    return (has_before and offset < lowest) or (row.last_offset != 0 and offset > row.last_offset)


cdef inline bint ends_below_base(const BatchRow* row) noexcept nogil:
    """True where the last offset lies below the base offset; a v0 or v1 wrapper may have offset 0."""
    return row.magic >= 2 and row.last_offset < row.base_offset
