"""A growing buffer that others write into: what a codec decompresses to, with no zeroing and no copy on the way."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef enum:
    MOST = 0x7FFFFFFF               # places in a record table are 32 bits wide

MOST_BYTES = MOST


@cython.final
cdef class Store:
    """At most 2 GiB of bytes, `size` of them content; memory that was not written to is never handed out.

    `fill` lets a function write behind the content; `append` copies. `take` hands the content out as a bytearray and
    leaves the store empty. OverflowError past 2 GiB, BufferError where a view of an earlier room is still held. A
    store belongs to one thread.
    """

    def __cinit__(self):
        self.out = None

    def __init__(self, capacity: int = 0):
        if capacity > 0:
            self.reserve(min(capacity, MOST))

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t want
        if more < 0 or more > MOST - self.size:
            raise OverflowError(f"{more} bytes behind {self.size}: at most {MOST} fit")
        want = self.size + more
        if self.out is None:
            self.out = PyByteArray_FromStringAndSize(NULL, max(want, 256))
        elif want > self.capacity:
            PyByteArray_Resize(self.out, min(max(want, 2 * self.capacity), MOST))
        else:
            return 0
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.out)
        self.capacity = len(self.out)
        return 0

    cdef int cut(self, Py_ssize_t size) except -1:
        """Forgets the content behind `size` bytes."""
        if size < 0 or size > self.size:
            raise ValueError(f"{self.size} bytes cannot be cut to {size}")
        self.size = size
        return 0

    def fill(self, function, data, Py_ssize_t n) -> int:
        """Calls `function(data, room)`, `room` being `n` writable bytes behind the content.

        What it returns, and `fill` too, is how many of them it filled: these are content then. ValueError where it
        says more than it got.
        """
        cdef Py_ssize_t filled
        self.reserve(n)
        filled = function(data, memoryview(self.out)[self.size:self.size + n])
        if filled < 0 or filled > n or filled > self.capacity - self.size:
            raise ValueError(f"{filled} bytes are more than the {n} that were given")
        self.size += filled
        return filled

    def append(self, data) -> None:
        """Copies `data` behind the content."""
        cdef Py_buffer piece
        PyObject_GetBuffer(data, &piece, PyBUF_SIMPLE)
        try:
            self.reserve(piece.len)
            memcpy(self.data + self.size, piece.buf, <size_t>piece.len)
            self.size += piece.len
        finally:
            PyBuffer_Release(&piece)

    def take(self) -> bytearray:
        """The content; the store is empty then."""
        cdef object out
        self.reserve(0)
        out = self.out
        PyByteArray_Resize(out, self.size)
        self.out = None
        self.data = NULL
        self.size = self.capacity = 0
        return out

    def __len__(self) -> int:
        return self.size
