from libc.stdint cimport int32_t, int64_t


cdef class LogState:
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t end_base              # base offset of the active segment
    cdef readonly int64_t end_position          # bytes in the active segment
    cdef readonly int64_t high_watermark
    cdef readonly int64_t high_watermark_base   # -1: only the offset is known
    cdef readonly int64_t high_watermark_position
    cdef readonly int64_t first_unstable_offset # -1: none
    cdef readonly int64_t recovery_point
    cdef readonly int32_t leader_epoch          # the latest of the log, -1: none yet
    cdef readonly object segments
    # what was appended since the log was opened: writes, batches, bytes, offsets
    cdef readonly int64_t appends
    cdef readonly int64_t appended_batches
    cdef readonly int64_t appended_bytes
    cdef readonly int64_t appended_offsets

    cdef LogState copy(self)
    cdef int check(self) except -1
    cdef LogState written(
        self, int64_t batches, int64_t size, int64_t first_offset, int64_t last_offset, int32_t leader_epoch,
        int64_t end_position, bint high_watermark_follows,
    )
