from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.scan cimport BatchTable


cdef int64_t assign_rows(
    object buf, BatchTable batches, Py_ssize_t first, Py_ssize_t last, int64_t first_offset, int32_t leader_epoch,
    int64_t append_time, int64_t base_position,
) except? -1

cdef int64_t assign_one(
    uint8_t* p, BatchRow* row, int64_t offset, int32_t leader_epoch, int64_t append_time
) noexcept nogil
