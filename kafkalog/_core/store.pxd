# cython: language_level=3
from libc.stdint cimport uint8_t


cdef class Store:
    cdef object out
    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int cut(self, Py_ssize_t size) except -1
