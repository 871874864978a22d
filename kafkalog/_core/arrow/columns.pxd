from libc.stdint cimport int64_t

from kafkalog._core.arrow.pieces cimport Piece


cdef class Columns:
    cdef Piece** pieces
    cdef int64_t* starts            # the first row of each piece, and the end of the last
    cdef bint joined                # columns with one value a row are contiguous over all pieces
    cdef readonly Py_ssize_t count
    cdef readonly bytes kinds

    cdef int adopt(self, Piece* piece) except -1
    cdef Piece* hold(self, Py_ssize_t i) noexcept
    cdef Py_ssize_t piece_of(self, int64_t row) noexcept nogil
