"""The search in the key index of a segment, for other compiled modules."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.keys.key_pages cimport KeyPages

cdef enum:
    DAMAGED_INDEX = -2


cdef struct Block:
    uint64_t start                  # where its directory begins, in the pages
    uint64_t entries_at
    uint64_t marks_at
    uint32_t entries
    uint32_t marks
    int bits


cdef struct MarkedRange:            # batches that follow each other, for which the index has one mark
    int64_t base_offset             # of the first one, or below it where a cleaner left a gap
    int64_t position
    int64_t size
    bint is_last                    # in the segment


cdef struct Asked:
    uint64_t hashed
    int64_t number                  # of the key


cdef class KeyIndex(KeyPages):
    cdef Block* blocks
    cdef Py_ssize_t block_count
    cdef int64_t base_offset
    cdef int64_t span               # offsets that the segment may have
    cdef int64_t segment_bytes

    cdef int bucket(self, const Block* block, uint64_t hashed, uint64_t* first, uint64_t* last) noexcept nogil
    cdef int entry(self, const Block* block, uint64_t number, uint64_t* out) noexcept nogil
    cdef int64_t count_below(self, const Block* block, uint64_t first, uint64_t last, uint64_t limit) noexcept nogil
    cdef int64_t last_in(self, const Block* block, uint64_t hashed, int64_t below) noexcept nogil
    cdef int64_t last_below(self, uint64_t hashed, int64_t below) noexcept nogil
    cdef int64_t last_of(self, const uint8_t* bucket, uint64_t count, uint32_t tag, int64_t below) noexcept nogil
    cdef list all_within(self, uint64_t hashed, int64_t start, int64_t stop, int64_t most)
    cdef bint find_all_of(self, const uint64_t* hashes, int64_t* found, int64_t count, int64_t below) noexcept nogil
    cdef bint find_in_order(self, const uint64_t* hashes, int64_t* found, int64_t count, int64_t below) noexcept nogil
    cdef bint find_asked(self, const Asked* asked, int64_t* found, int64_t count, int64_t below) noexcept nogil
    cdef bint find_group(self, const Asked* asked, int64_t* found, int64_t count, int64_t below) noexcept nogil
    cdef void find_buckets(
        self, const Asked* asked, const int64_t* found, int64_t count, uint64_t* places, uint32_t* sizes
    ) noexcept nogil
    cdef int64_t guess(self, int64_t offset) noexcept nogil
    cdef int64_t mark_of(self, int64_t offset, MarkedRange* found) noexcept nogil
    cdef bint marks_below(self, const Block* block, uint64_t limit, uint64_t* number) noexcept nogil
    cdef bint mark(self, const Block* block, uint64_t number, uint64_t* out) noexcept nogil
