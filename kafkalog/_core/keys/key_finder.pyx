"""The search for keys in batches, where no index is: hashes are compared as the batches are walked over."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.keys.key_walk cimport NO_OFFSET, KeyWalk, check_unused

cdef enum:
    FIRST_ROOM = 64
    MOST_HASHES = 1 << 30


@cython.final
cdef class KeyFinder(KeyWalk):
    """The offsets in [start_offset, stop_offset) at which keys with given hashes lie.

    hashes: eight bytes each, a multiple of eight; each has its last offset in `last_offsets`, -1 for none. With `every`
    all offsets of all of them are kept, in rising order, for `take_found`. One thread. MemoryError.
    """

    cdef uint64_t* hashes
    cdef int64_t* last
    cdef uint32_t* slots            # of a table twice as large as there are hashes: a number from 1 on
    cdef int64_t count
    cdef int bits
    cdef bint every
    cdef int64_t* found
    cdef int64_t found_count
    cdef int64_t found_room

    def __cinit__(self, secret, hashes, int64_t start_offset, int64_t stop_offset, bint every=False):
        cdef Held given = hold(hashes)
        cdef int64_t i
        if given.size % 8 or given.size // 8 > MOST_HASHES:
            raise ValueError(f"{given.size} bytes are no hashes")
        self.begin(secret, start_offset, stop_offset)
        self.every = every
        self.count = given.size // 8
        self.bits = 1
        while (<int64_t>1 << self.bits) < 2 * self.count:
            self.bits += 1
        self.hashes = <uint64_t*>malloc(<size_t>max(self.count, <int64_t>1) * sizeof(uint64_t))
        self.last = <int64_t*>malloc(<size_t>max(self.count, <int64_t>1) * sizeof(int64_t))
        self.slots = <uint32_t*>calloc(<size_t>1 << self.bits, sizeof(uint32_t))
        if self.hashes == NULL or self.last == NULL or self.slots == NULL:
            raise MemoryError("no memory for the keys to find")
        memcpy(self.hashes, given.data, <size_t>given.size)
        for i in range(self.count):
            self.last[i] = NO_OFFSET
            self.slots[self.place(self.hashes[i])] = <uint32_t>(i + 1)

    def __dealloc__(self):
        free(self.hashes)
        free(self.last)
        free(self.slots)
        free(self.found)

    cdef uint64_t place(self, uint64_t hashed) noexcept nogil:
        """The slot that has this hash, or the empty one where it would be."""
        cdef uint64_t mask = (<uint64_t>1 << self.bits) - 1
        cdef uint64_t at = hashed >> (64 - self.bits)
        while self.slots[at] != 0 and self.hashes[self.slots[at] - 1] != hashed:
            at = (at + 1) & mask
        return at

    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i
        cdef uint32_t number
        for i in range(count):
            number = self.slots[self.place(hashes[i])]
            if number != 0:
                self.last[number - 1] = offsets[i]
                if self.every and not self.keep(offsets[i]):
                    return ERR_MEMORY
        return OK

    cdef bint keep(self, int64_t offset) noexcept nogil:
        cdef void* found
        cdef int64_t wanted
        if self.found_count == self.found_room:
            wanted = max(2 * self.found_room, <int64_t>FIRST_ROOM)
            found = realloc(self.found, <size_t>wanted * sizeof(int64_t))
            if found == NULL:
                return False
            self.found = <int64_t*>found
            self.found_room = wanted
        self.found[self.found_count] = offset
        self.found_count += 1
        return True

    @property
    @cython.critical_section
    def last_offsets(self) -> bytes:
        """The last offset of each hash, -1 for none, as int64."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, 8 * self.count)
        cdef int64_t* offsets = <int64_t*>PyBytes_AS_STRING(out)
        cdef int64_t i
        for i in range(self.count):
            offsets[i] = self.last[self.slots[self.place(self.hashes[i])] - 1]
        return out

    @cython.critical_section
    def take_found(self) -> list[int]:
        """The offsets found since the last call, rising; only with `every`."""
        cdef int64_t i
        check_unused(self)
        cdef list out = [self.found[i] for i in range(self.found_count)]
        self.found_count = 0
        return out
