from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

from kafkalog._core.batch.check cimport BatchRow


cdef class ReadyBatch:
    cdef Py_buffer view
    cdef BatchRow row
    cdef int64_t oldest                 # of the times of its records (ms) that have one, where it was built here
    cdef int64_t newest
    cdef bint has_keys                  # each record of one that was built here
    cdef bint is_held
    cdef readonly bint is_built         # by this package, which knows what is in it


cdef ReadyBatch built_batch(bytearray data, int64_t oldest, int64_t newest, bint has_keys)
