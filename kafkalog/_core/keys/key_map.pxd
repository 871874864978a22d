"""The map from the keys of a log's end to offsets, for other compiled modules."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from kafkalog._core.keys.key_walk cimport KeyWalk


cdef struct Entry:
    uint64_t hashed
    uint32_t relative
    uint32_t older                  # entry of the same hash before this one
    uint32_t other                  # newest entry of another hash in the same slot


cdef class KeyMap(KeyWalk):
    cdef Entry* entries
    cdef uint32_t* slots
    cdef int64_t room
    cdef int64_t count
    cdef int slot_bits
    cdef int64_t start_offset

    cdef uint32_t* slot_of(self, uint64_t hashed) noexcept nogil
    cdef void link(self, uint32_t number) noexcept nogil
    cdef bint grow(self) noexcept nogil
    cdef void move_to(self, uint32_t* slots, int bits) noexcept nogil
    cdef uint32_t newest(self, uint64_t hashed) noexcept nogil
    cdef int64_t last_below(self, uint64_t hashed, int64_t below) noexcept nogil
