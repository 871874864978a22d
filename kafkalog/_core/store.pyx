"""A growing buffer that others write into: what a codec decompresses to, with no zeroing and no copy on the way."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from kafkalog._core.spare cimport give_memory, grow_memory, take_memory

cdef enum:
    MOST = 0x7FFFFFFF               # places in a record table are 32 bits wide
    SMALLEST = 256

MOST_BYTES = MOST


@cython.final
cdef class Block:
    """Bytes that a store handed out: a read-only buffer, whose memory goes back when the last view of it is gone."""

    def __dealloc__(self):
        give_memory(<char*>self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* out, int flags):
        PyBuffer_FillInfo(out, self, self.data + self.start, self.size, not self.writable, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* out):
        self.exports -= 1

    def __len__(self) -> int:
        return self.size

    def __repr__(self):
        return f"<Block of {self.size} B>"


@cython.final
cdef class Store:
    """At most 2 GiB of bytes, `size` of them content; memory that was not written to is never handed out.

    `fill` lets a function write behind the content; `append` copies. `take` hands the content out and leaves the
    store empty. OverflowError past 2 GiB, BufferError where a view of an earlier room is still held. A store belongs
    to one thread.
    """

    def __init__(self, capacity: int = 0):
        if capacity > 0:
            self.reserve(min(capacity, MOST))

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef size_t want
        cdef char* memory
        cdef Block block = self.block
        if more < 0 or more > MOST - self.size:
            raise OverflowError(f"{more} bytes behind {self.size}: at most {MOST} fit")
        want = <size_t>(self.size + more)
        if block is None:
            block = Block.__new__(Block)
            memory = take_memory(max(want, <size_t>SMALLEST), &block.capacity)
        elif want <= block.capacity:
            return 0
        elif block.exports:
            raise BufferError("a view of the last room is still held")
        else:
            memory = grow_memory(
                <char*>block.data, <size_t>self.size, min(max(want, 2 * block.capacity), <size_t>MOST), &block.capacity
            )
        if memory == NULL:
            raise MemoryError(f"no {want} bytes for decompressed records")
        block.data = self.data = <uint8_t*>memory
        self.block = block
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
        says more than it got, or the store has changed meanwhile.
        """
        cdef Py_ssize_t filled
        cdef Py_ssize_t before = self.size
        cdef Block block
        self.reserve(n)
        block = self.block
        block.start = self.size
        block.size = n
        block.writable = True
        room = PyMemoryView_FromObject(block)
        block.start = block.size = 0
        block.writable = False
        filled = function(data, room)
        if filled < 0 or filled > n:
            raise ValueError(f"{filled} bytes are more than the {n} that were given")
        if block is not self.block or self.size != before:
            raise ValueError("the store was used by another while it was filled")
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

    def take(self) -> Block:
        """The content; the store is empty then."""
        cdef Block block
        self.reserve(0)
        block = self.block
        block.size = self.size
        self.block = None
        self.data = NULL
        self.size = 0
        return block

    def __len__(self) -> int:
        return self.size
