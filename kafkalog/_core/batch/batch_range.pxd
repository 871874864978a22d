# cython: language_level=3
"""The one thing about a v2 batch's range of offsets that no checksum vouches for, and that a cleaner must not believe."""
from kafkalog._core.batch.check cimport BatchRow

cdef enum:
    ERR_BATCH_RANGE = 105           # a status beside those of layout.pxd: the batch ends below its base offset


cdef inline bint ends_below_base(const BatchRow* row) noexcept nogil:
    """True where the last offset lies below the base offset; a v0 or v1 wrapper may have offset 0."""
    return row.magic >= 2 and row.last_offset < row.base_offset
