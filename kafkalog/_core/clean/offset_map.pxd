from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkalog._core.bytes.siphash cimport SipKey

cdef enum:
    MAP_ABSENT = -1                 # what a key that is not there gives
    MAP_PUT = 0
    MAP_FULL = 1
    KEY_GROUP = 32                  # keys that put_many and get_many hash and fetch together: fill as many, or more


cdef struct KeyOffset:
    const uint8_t* key
    Py_ssize_t size
    int64_t offset                  # to put; a get leaves it alone


cdef struct Slot:
    uint64_t first                  # the hash; a slot of zeros is empty
    uint64_t second
    int64_t offset


cdef inline bint is_empty(const Slot* slot) noexcept nogil:
    return slot.first == 0 and slot.second == 0 and slot.offset == 0


cdef class SkimpyOffsetMap:
    cdef Slot* table
    cdef void* mapped               # what the system gave: `table` may begin later, where a huge page does
    cdef size_t mapped_bytes
    cdef SipKey secret
    cdef bint by_md5
    cdef int64_t in_use             # slots that keys go to now, `slots` or fewer
    cdef int64_t lookups
    cdef int64_t probes
    cdef readonly int64_t slots
    cdef readonly int64_t size
    cdef readonly int64_t latest_offset

    cdef int take_memory(self, size_t wanted) except -1
    cdef void hash_key(self, const uint8_t* key, Py_ssize_t size, Slot* hashed) noexcept nogil
    cdef void hash_group(self, const KeyOffset* keys, Py_ssize_t count, Slot* hashed) noexcept nogil
    cdef void hash_four(self, const KeyOffset* keys, Slot* hashed) noexcept nogil
    cdef int64_t place(self, const Slot* hashed, int64_t attempt) noexcept nogil
    cdef int64_t find(self, const Slot* hashed) noexcept nogil
    cdef int insert(self, const Slot* hashed) noexcept nogil
    cdef int64_t get_key(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef int put_key(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil
    cdef void get_many(self, const KeyOffset* keys, Py_ssize_t count, int64_t* found) noexcept nogil
    cdef Py_ssize_t put_many(self, const KeyOffset* keys, Py_ssize_t count, int64_t most) noexcept nogil
