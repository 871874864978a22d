from libc.stdint cimport int64_t, uint64_t


cdef class LiveOffsets:
    cdef uint64_t* live             # a bit for each offset: the record there is the last of its key
    cdef uint64_t* odd              # a bit for each 64 offsets: one of them has no key or no value
    cdef int64_t room_end           # the first offset without a bit
    cdef int64_t told_from          # the base offset of the first batch added; below it nothing is known
    cdef int64_t reached            # the highest offset added
    cdef bint in_order              # offsets rose from record to record, none of which lay outside its batch
    cdef readonly int64_t first
    cdef readonly int64_t end       # of what is known; `first` before it was settled, and where nothing can be known
    cdef readonly bint left_out     # data of aborted transactions, none of whose offsets were added

    cdef void begin_batch(self, int64_t base_offset) noexcept nogil
    cdef void end_batch(self, int64_t last_offset) noexcept nogil
    cdef void mark_odd(self, int64_t offset) noexcept nogil
    cdef bint has_odd(self, int64_t first, int64_t last) noexcept nogil
    cdef int64_t live_in(self, int64_t first, int64_t last) noexcept nogil

    cdef inline bint covers(self, int64_t first, int64_t last) noexcept nogil:
        """True where all is known about [first, last]."""
        return self.first <= first <= last < self.end

    cdef inline bint is_live(self, int64_t offset) noexcept nogil:
        """True where the record at an offset that is covered is the last one of its key."""
        return (self.live[(offset - self.first) >> 6] >> ((offset - self.first) & 63)) & 1
