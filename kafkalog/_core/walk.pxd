# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kafkalog._core.batch cimport BatchRow


cdef enum Stopped:
    # why a walk came back
    WALK_MORE = 0                   # the chunk is used up: bytes from `position` on are wanted
    WALK_END = 1                    # the file ends with a whole batch
    WALK_PARTIAL = 2                # what is left of the file is no whole batch; `value` is the size it claims, or 0
    WALK_SIZE = 3                   # a size field that no batch has: `value`; nobody knows where the next one begins
    WALK_CRC = 4                    # this and what follows: the walk has passed over the batch in `row`
    WALK_ORDER = 5
    WALK_RANGE = 6
    WALK_MAGIC = 7
    WALK_HEADER = 8
    WALK_MEMORY = -1

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
    cdef int step(self, const uint8_t* data, int64_t length) noexcept nogil
    cdef int finish_stream(self, const uint8_t* data, int64_t length, int64_t* at) noexcept nogil
    cdef bint begin_stream(self, const uint8_t* data, int64_t length, int64_t size, int magic, int64_t* at) noexcept nogil
    cdef int judge(self, const uint8_t* batch) noexcept nogil
