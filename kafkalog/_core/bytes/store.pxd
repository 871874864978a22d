from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    MOST = 0x7FFFFFFF               # places in a record table are 32 bits wide


cdef class Block:
    cdef uint8_t* data
    cdef size_t capacity
    cdef Py_ssize_t start           # what a buffer exported now covers: the content, or the room that is being filled
    cdef Py_ssize_t size
    cdef bint writable
    cdef readonly Py_ssize_t exports
    cdef object __weakref__


cdef class Store:
    cdef Block block
    cdef uint8_t* data
    cdef readonly Py_ssize_t size

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef Py_ssize_t fill_block(self, object function, object data, Py_ssize_t n, object last) except -1
    cdef int put(self, const uint8_t* p, Py_ssize_t n) except -1
    cdef int cut(self, Py_ssize_t size) except -1
    cdef Py_ssize_t _fill_sized(
        self, object function, object data, Py_ssize_t n, bint big_endian, uint32_t raw_flag, const uint8_t* raw,
        Py_ssize_t raw_size,
    ) except -1
