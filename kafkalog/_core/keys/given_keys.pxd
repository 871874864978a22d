"""The keys of one look-up of many, for other compiled modules."""
from kafkalog._core.arrow.cells cimport Slice


cdef class GivenKeys:
    cdef Slice* slices              # where each one is
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room
    cdef list objects               # bytes; None for keys of Arrow data
    cdef list arrays                # of Arrow, which hold the bytes

    cdef int make_room(self, Py_ssize_t room) except -1
    cdef bytes at(self, Py_ssize_t i)
    cdef bytes hashes(self, object secret)
