"""Two ways to hold bytes: a buffer that somebody gave us, and a column of our own memory that others may look at."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t


cdef class Held:
    """One Py_buffer, held for as long as this object lives."""
    cdef Py_buffer view
    cdef object own
    cdef bint taken
    cdef const uint8_t* data
    cdef Py_ssize_t size


cdef class Column:
    """A read-only strided view of memory that `owner` keeps alive; exports the buffer protocol."""
    cdef object owner
    cdef char* data
    cdef Py_ssize_t count
    cdef Py_ssize_t stride
    cdef Py_ssize_t itemsize
    cdef char* format


cdef Held hold(object source)
cdef object take_view(object source, Py_buffer* view)
cdef Column column(object owner, void* data, Py_ssize_t count, Py_ssize_t stride, char kind)
