"""A growing list of pairs of numbers: offsets that do not follow each other."""
from libc.stdint cimport int64_t
from libc.stdlib cimport realloc

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK


cdef struct Jumps:
    int64_t* pairs
    int64_t count
    int64_t space


cdef inline int add_jump(Jumps* jumps, int64_t before, int64_t after) noexcept nogil:
    cdef int64_t* grown
    if jumps.count == jumps.space:
        grown = <int64_t*>realloc(jumps.pairs, <size_t>(16 + 2 * jumps.space) * 2 * sizeof(int64_t))
        if grown == NULL:
            return ERR_MEMORY
        jumps.pairs = grown
        jumps.space = 16 + 2 * jumps.space
    jumps.pairs[2 * jumps.count] = before
    jumps.pairs[2 * jumps.count + 1] = after
    jumps.count += 1
    return OK
