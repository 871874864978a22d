"""A growing buffer that others write into: what a codec decompresses to, with no zeroing and no copy on the way."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkalog._core.bytes.endian cimport store32
from kafkalog._core.bytes.spare cimport give_memory, grow_memory, take_memory

cdef enum:
    SMALLEST = 256

MOST_BYTES = MOST


cdef inline void store32_little(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = v & 0xFF
    p[1] = (v >> 8) & 0xFF
    p[2] = (v >> 16) & 0xFF
    p[3] = v >> 24


@cython.final
cdef class Block:
    """Bytes that a store handed out: a read-only buffer, whose memory goes back when the last view of it is gone."""

    def __dealloc__(self):
        give_memory(<char*>self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* out, int flags):
        PyBuffer_FillInfo(out, self, self.data + self.start, self.size, not self.writable, flags)
        with cython.critical_section(self):     # views of it end in any thread
            self.exports += 1

    def __releasebuffer__(self, Py_buffer* out):
        with cython.critical_section(self):
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

    @cython.critical_section
    def fill(self, function, data, Py_ssize_t n) -> int:
        """Call `function(data, room)`, `room` being a buffer of `n` writable bytes behind the content.

        Return how many of them it filled, as it says itself: these are content then. ValueError where it says more than
        it got, or the store has changed meanwhile. The room is the block, since cramjam takes no memoryview to write to
        without the GIL.
        """
        return self.fill_block(function, data, n, None)

    @cython.critical_section
    def fill_sized(self, function, data, Py_ssize_t n, *, bint big_endian, uint32_t raw_flag=0) -> int:
        """`fill` with four bytes before what was filled, which say its size; returns how much there is more content.

        With a `raw_flag` a filling that is not shorter than `data` is replaced by `data`, and the size says so.
        """
        cdef Py_buffer raw
        if n > MOST - 4:
            raise OverflowError(f"{n} bytes and their size: at most {MOST} fit")
        # held while the function works: whoever owns `data` may run code when it is asked for and given back
        PyObject_GetBuffer(data, &raw, PyBUF_SIMPLE)
        try:
            return self._fill_sized(function, data, n, big_endian, raw_flag, <const uint8_t*>raw.buf, raw.len)
        finally:
            PyBuffer_Release(&raw)

    cdef Py_ssize_t _fill_sized(
        self, function, data, Py_ssize_t n, bint big_endian, uint32_t raw_flag, const uint8_t* raw, Py_ssize_t raw_size
    ) except -1:
        cdef Py_ssize_t at = self.size
        cdef Py_ssize_t filled
        cdef Block block
        cdef uint32_t size
        self.reserve(n + 4)
        block = self.block
        self.size = at + 4
        try:
            filled = self.fill_block(function, data, n, None)
        except BaseException:
            if self.block is block:
                self.size = at
            raise
        size = <uint32_t>filled
        if raw_flag and raw_size <= filled:
            memcpy(self.data + at + 4, raw, <size_t>raw_size)
            filled = raw_size
            size = <uint32_t>raw_size | raw_flag
        if big_endian:
            store32(self.data + at, <int32_t>size)
        else:
            store32_little(self.data + at, size)
        self.size = at + 4 + filled
        return filled + 4

    cdef Py_ssize_t fill_block(self, object function, object data, Py_ssize_t n, object last) except -1:
        """`fill` with `last` as a third argument of the function; None is none."""
        cdef Py_ssize_t filled
        cdef Py_ssize_t before = self.size
        cdef Block block
        self.reserve(n)
        block = self.block
        if block.exports:
            raise BufferError("a view of the last room is still held")
        block.start = self.size
        block.size = n
        block.writable = True
        try:
            filled = function(data, block) if last is None else function(data, block, last)
        finally:
            block.writable = False
            if block is self.block:     # else it was taken, and has its content
                block.start = block.size = 0
        if filled < 0 or filled > n:
            raise ValueError(f"{filled} bytes are more than the {n} that were given")
        if block is not self.block or self.size != before:
            raise ValueError("the store was used by another while it was filled")
        self.size += filled
        return filled

    cdef int put(self, const uint8_t* p, Py_ssize_t n) except -1:
        """Copies `n` bytes behind the content."""
        self.reserve(n)
        memcpy(self.data + self.size, p, <size_t>n)
        self.size += n
        return 0

    @cython.critical_section
    def append(self, data) -> None:
        """Copies `data` behind the content."""
        cdef Py_buffer piece
        PyObject_GetBuffer(data, &piece, PyBUF_SIMPLE)
        try:
            self.put(<const uint8_t*>piece.buf, piece.len)
        finally:
            PyBuffer_Release(&piece)

    @cython.critical_section
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
