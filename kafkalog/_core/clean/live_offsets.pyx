"""The offsets that hold the last record of their key: an offset map the other way round.

A clean asks of each record whether a later one has its key. Asked of the map that is a hash and a miss of the cache a
record; here it is a bit, and a few words answer for a whole batch.
"""
cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kafkalog._core.clean.offset_map cimport SkimpyOffsetMap, Slot, is_empty

cdef extern from *:
    """
    #define kl_ones(word) __builtin_popcountll(word)
    """
    int kl_ones(uint64_t word) noexcept nogil

cdef enum:
    WORTH = 4                       # slots that may be visited for each record added
    FEW_SLOTS = 4096                # which are always gone over


@cython.final
cdef class LiveOffsets:
    """A bit for each offset of [first_offset, end_offset), as far as they fit in `most_bytes`.

    While the map is filled, each batch that may put a key is reported with all its records. `settle` then returns
    what is known: nothing if offsets did not rise from record to record, so that one offset may mean two of them.
    Threads: belongs to one clean. ValueError for a negative size, MemoryError.
    """

    def __cinit__(self, int64_t first_offset=0, int64_t end_offset=0, int64_t most_bytes=0):
        cdef int64_t words
        if most_bytes < 0:
            raise ValueError(f"there is no room of {most_bytes} bytes")
        self.first = self.end = first_offset
        self.room_end = max(first_offset, min(end_offset, first_offset + 8 * most_bytes))
        self.told_from = INT64_MAX
        self.reached = -1
        self.in_order = True
        words = (self.room_end - self.first + 63) // 64
        self.live = <uint64_t*>calloc(<size_t>words + 1, sizeof(uint64_t))
        self.odd = <uint64_t*>calloc(<size_t>words // 64 + 1, sizeof(uint64_t))
        if self.live == NULL or self.odd == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.live)
        free(self.odd)

    cdef void begin_batch(self, int64_t base_offset) noexcept nogil:
        """Begin a batch at this offset, above all records added so far."""
        if base_offset <= self.reached:
            self.in_order = False
        if base_offset < self.told_from:
            self.told_from = base_offset

    cdef void end_batch(self, int64_t last_offset) noexcept nogil:
        """End the batch: its records were added up to this offset."""
        if last_offset > self.reached:
            self.reached = last_offset

    cdef void mark_odd(self, int64_t offset) noexcept nogil:
        """The record at `offset` has no key or no value."""
        cdef int64_t bit = (offset - self.first) >> 6
        if self.first <= offset < self.room_end:
            self.odd[bit >> 6] |= <uint64_t>1 << (bit & 63)

    cdef bint has_odd(self, int64_t first, int64_t last) noexcept nogil:
        """False where every record in [first, last], which is covered, has a key and a value."""
        cdef int64_t bit
        for bit in range((first - self.first) >> 6, ((last - self.first) >> 6) + 1):
            if (self.odd[bit >> 6] >> (bit & 63)) & 1:
                return True
        return False

    cdef int64_t live_in(self, int64_t first, int64_t last) noexcept nogil:
        """Return the number of offsets in [first, last], a covered range, that hold the last record of their key."""
        cdef int64_t begin = first - self.first
        cdef int64_t end = last - self.first
        cdef int64_t at = begin >> 6
        cdef uint64_t word = self.live[at] >> (begin & 63) << (begin & 63)
        cdef int64_t found = 0
        while at < end >> 6:
            found += kl_ones(word)
            at += 1
            word = self.live[at]
        return found + kl_ones(word << (63 - (end & 63)))

    @cython.critical_section
    def settle(self, SkimpyOffsetMap offset_map not None, int64_t records) -> None:
        """Learn which records are the last of their keys, now that all keys of `records` records were put.

        Not learnt where the map has many more slots to look at than there were records.
        """
        cdef int64_t i
        cdef int64_t bit
        cdef int64_t end = max(self.first, min(self.room_end, offset_map.latest_offset + 1))
        cdef const Slot* slot
        if not self.in_order or offset_map.in_use > max(<int64_t>FEW_SLOTS, WORTH * records):
            return
        with nogil:
            for i in range(offset_map.in_use):
                slot = &offset_map.table[i]
                if not is_empty(slot) and self.first <= slot.offset < end:
                    bit = slot.offset - self.first
                    self.live[bit >> 6] |= <uint64_t>1 << (bit & 63)
        self.end = end

    def count(self, int64_t first_offset, int64_t last_offset) -> int:
        """Return the number of offsets in [first_offset, last_offset] that hold the last record of their key; -1: unknown."""
        return self.live_in(first_offset, last_offset) if self.covers(first_offset, last_offset) else -1

    def __repr__(self):
        return f"<LiveOffsets [{self.first}, {self.end})>"
