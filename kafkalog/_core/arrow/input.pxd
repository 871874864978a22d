from libc.stdint cimport int64_t

from kafkalog._core.arrow.abi cimport ArrowArray, ArrowArrayStream, ArrowSchema


cdef class HeldSchema:
    """A schema that was moved here, and is released with this object."""
    cdef ArrowSchema schema


cdef class HeldArray:
    """An array that was moved here, and is released with this object."""
    cdef ArrowArray array


cdef class ArrowSource:
    """The record batches of an object that speaks the Arrow PyCapsule interface, one after the other."""
    cdef readonly HeldSchema schema
    cdef HeldArray only
    cdef ArrowArrayStream stream
    cdef bint busy

    cdef HeldArray next_array(self)
    cdef object _failed(self, int number)


cdef bint shaped(const ArrowArray* array, int64_t buffers, int64_t children) noexcept nogil
cdef bint valid_of(const ArrowArray* array, const unsigned char** valid) noexcept nogil
