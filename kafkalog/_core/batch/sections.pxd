"""Sections of batches that were verified whole, each with the checksum of the bytes before it."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.bytes.mutex cimport Mutex


cdef struct Section:
    int32_t delta                   # offset of its first record, from the batch's base offset
    uint32_t at                     # where it begins in the batch
    uint32_t crc                    # of the batch up to there


cdef struct Sections:
    BatchRow row
    int32_t count                   # as many sections follow, and one that says where the last one ends


cdef struct Slab:                   # memory for sections, which follow
    Slab* before
    size_t used


cdef class SectionTable:
    cdef Mutex guard                # for what follows, but not for looking up a batch
    cdef Sections** batches
    cdef Slab* slab                 # the one that is being filled
    cdef int64_t room
    cdef int64_t held_bytes

    cdef Sections* known(self, int64_t number) noexcept nogil
    cdef void learn(self, int64_t number, const uint8_t* batch, const BatchRow* row) noexcept nogil
    cdef void keep(self, int64_t number, const uint8_t* batch, const BatchRow* row) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef void* room_for(self, size_t size) noexcept nogil


cdef const Section* section_with(const Sections* batch, int64_t offset) noexcept nogil

cdef const uint8_t* record_in_section(
    const Sections* batch, const Section* section, const uint8_t* data, int64_t offset, Fields* f
) noexcept nogil
