"""Sections of batches that were verified whole, so that a later look-up reads and verifies one section only.

The checksum of a batch is a running one: from its value before a section and the section's bytes follows the value
behind it. Both are kept, from when the whole batch matched its stored checksum; a section that does not lead from one
to the other is not the one that was verified.
"""
cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkalog._core.arrow.filling cimport take_head
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport CODEC_MASK, OK, V2_ATTRIBUTES_AT, V2_RECORDS_AT
from kafkalog._core.bytes.crc cimport kl_crc32c
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.large_pages cimport KL_LARGE_PAGE, kl_make_large, kl_new_area
from kafkalog._core.bytes.mutex cimport lock_mutex, unlock_mutex

cdef extern from "kmutex.h" nogil:
    Sections* load_sections "kl_load" (Sections** place)
    void publish_sections "kl_publish" (Sections** place, Sections* made)

cdef enum:
    SECTION_BYTES = 512             # of a section, at least: the kernel's call alone takes as long as copying 4 KiB
    LEAST_BATCH_BYTES = 2560        # smaller batches are read whole
    LARGEST_BATCH_BYTES = 1 << 20   # whose sections find room in a slab


cdef inline Section* sections_of(const Sections* batch) noexcept nogil:
    return <Section*>(batch + 1)


cdef inline size_t bytes_of(int64_t sections) noexcept nogil:
    return (sizeof(Sections) + <size_t>sections * sizeof(Section) + 7) & ~<size_t>7


cdef const Section* section_with(const Sections* batch, int64_t offset) noexcept nogil:
    """Return the section in which the record with this offset is, if there is one; NULL below the batch."""
    cdef Section* all_of = sections_of(batch)
    cdef int64_t delta = offset - batch.row.base_offset
    cdef int32_t low = 0
    cdef int32_t high = batch.count
    cdef int32_t middle
    while low < high:
        middle = (low + high) >> 1
        if all_of[middle].delta <= delta:
            low = middle + 1
        else:
            high = middle
    return NULL if low == 0 else &all_of[low - 1]


cdef const uint8_t* record_in_section(
    const Sections* batch, const Section* section, const uint8_t* data, int64_t offset, Fields* f
) noexcept nogil:
    """Return where the record begins in the `data` of a whole section; NULL if the bytes changed or do not have it."""
    cdef Cursor c
    cdef const uint8_t* start
    cdef int64_t delta = offset - batch.row.base_offset
    c.p = data
    c.end = data + (section[1].at - section.at)
    if kl_crc32c(section.crc, data, <size_t>(c.end - data)) != section[1].crc:
        return NULL
    while c.p < c.end:
        start = c.p
        if take_head(&c, f) != OK:
            return NULL
        if f.offset_delta >= delta:
            c.p = start
            if f.offset_delta != delta or not take_small_record(&c, f) and take_record(&c, f) != OK:
                return NULL
            return start
    return NULL


@cython.final
cdef class SectionTable:
    """Sections of up to `room` batches, by a number that the caller gives each.

    Threads: any, but for `clear`, while which no other thread may use them or look one up.
    """

    def __cinit__(self, int64_t room):
        self.room = room
        self.batches = <Sections**>calloc(<size_t>max(room, <int64_t>1), sizeof(void*))
        if self.batches == NULL:
            raise MemoryError("no memory for the sections of batches")

    def __dealloc__(self):
        if self.batches != NULL:
            self.clear()
        free(self.batches)

    cdef Sections* known(self, int64_t number) noexcept nogil:
        return load_sections(&self.batches[number]) if 0 <= number < self.room else NULL

    cdef void clear(self) noexcept nogil:
        cdef Slab* before
        while self.slab != NULL:
            before = self.slab.before
            free(self.slab)
            self.slab = before
        memset(self.batches, 0, <size_t>self.room * sizeof(void*))
        self.held_bytes = 0

    cdef void* room_for(self, size_t size) noexcept nogil:
        """Return room behind what is kept, in a slab that becomes a large page once it is full; NULL without memory."""
        cdef Slab* slab = self.slab
        if slab == NULL or slab.used + size > KL_LARGE_PAGE:
            if slab != NULL:
                kl_make_large(slab)
            slab = <Slab*>kl_new_area(KL_LARGE_PAGE)
            if slab == NULL:
                return NULL
            slab.before, slab.used = self.slab, sizeof(Slab)
            self.slab = slab
        return <uint8_t*>slab + slab.used

    cdef void learn(self, int64_t number, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """Keep the sections of a batch that matches its checksum, unless it is small, compressed or known.

        Without memory, or for offsets that do not rise, nothing is kept: the batch is read whole each time.
        """
        lock_mutex(&self.guard)
        self.keep(number, batch, row)
        unlock_mutex(&self.guard)

    cdef void keep(self, int64_t number, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """`learn`, with `guard` held."""
        cdef int64_t most = row.size // SECTION_BYTES + 2
        cdef size_t size = bytes_of(most)
        cdef Sections* made
        if not 0 <= number < self.room or self.batches[number] != NULL:
            return
        if row.magic != 2 or row.attributes & CODEC_MASK or not LEAST_BATCH_BYTES <= row.size <= LARGEST_BATCH_BYTES:
            return
        made = <Sections*>self.room_for(size)
        if made == NULL:
            return
        made.row = row[0]
        if not fill(made, batch, row):
            return
        size = bytes_of(made.count + 1)
        self.slab.used += size
        self.held_bytes += <int64_t>size
        publish_sections(&self.batches[number], made)


cdef bint fill(Sections* made, const uint8_t* batch, const BatchRow* row) noexcept nogil:
    """Divide a batch into sections; False if its records do not fill it with rising offsets and its checksum."""
    cdef Section* all_of = sections_of(made)
    cdef uint32_t crc = kl_crc32c(0, batch + V2_ATTRIBUTES_AT, V2_RECORDS_AT - V2_ATTRIBUTES_AT)
    cdef const uint8_t* begin = batch + V2_RECORDS_AT
    cdef const uint8_t* start
    cdef int64_t before = -1
    cdef int32_t count = 0
    cdef int32_t i
    cdef Cursor c
    cdef Fields f
    c.p = begin
    c.end = batch + row.size
    for i in range(row.count):
        start = c.p
        if take_record(&c, &f) != OK or f.offset_delta <= before:
            return False
        before = f.offset_delta
        if i == 0 or start - begin >= SECTION_BYTES:
            crc = kl_crc32c(crc, begin, <size_t>(start - begin))
            begin = start
            all_of[count] = Section(f.offset_delta, <uint32_t>(start - batch), crc)
            count += 1
    all_of[count] = Section(0x7FFFFFFF, <uint32_t>row.size, kl_crc32c(crc, begin, <size_t>(c.end - begin)))
    made.count = count
    return count > 0 and c.p == c.end and all_of[count].crc == row.crc
