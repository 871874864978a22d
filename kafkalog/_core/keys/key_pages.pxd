"""The pages of a key index's file, for other compiled modules."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.batch.sections cimport SectionTable
from kafkalog._core.bytes.mutex cimport Mutex
from kafkalog._core.keys.key_layout cimport PAGE_BYTES

cdef extern from "kmutex.h" nogil:
    uint8_t load_byte "kl_load" (uint8_t* place)
    uint8_t* load_area "kl_load" (uint8_t** place)
    void publish_byte "kl_publish" (uint8_t* place, uint8_t value)
    void publish_area "kl_publish" (uint8_t** place, uint8_t* area)


cdef class KeyPages:
    cdef object read
    cdef Mutex guard                # for the area, what is held and filled, and the two numbers that follow
    cdef int searches               # in progress; a page that is read lets others run
    cdef int64_t page_bytes         # of the pages that are held
    cdef uint8_t* area              # of the pages, in one piece; NULL while none is held
    cdef uint8_t* held              # 1 for each page that is in the area, checked
    cdef uint8_t* filled            # for each large page of the area, the number of pages that are in it
    cdef uint32_t* checksums
    cdef uint64_t page_count
    cdef uint64_t pages_at
    cdef uint64_t pages_bytes
    cdef readonly SectionTable sections     # of the batches of the segment, by the number of their mark
    cdef readonly object error
    cdef object interrupt           # an error of a read that is no Exception, as KeyboardInterrupt, until a search raises it
    cdef unsigned long interrupted  # the thread of that read

    cdef int begin(self, object read, uint64_t pages_at, uint64_t pages_bytes, bytes checksums) except -1
    cdef void begin_search(self) noexcept
    cdef int end_search(self) except -1
    cdef bytes checked(self, uint64_t number)
    cdef bint load(self, uint64_t number) noexcept
    cdef bint keep(self, uint64_t number, bytes page) noexcept


cdef inline bint has_page(KeyPages pages, uint64_t number) noexcept nogil:
    """True for a page that is in the area, where it stays during a search."""
    return load_byte(&pages.held[number])


cdef inline const uint8_t* bytes_at(KeyPages pages, uint64_t place) noexcept nogil:
    """The bytes at a place in the pages, as many as are behind it in its page; NULL where they are not sound."""
    cdef bint is_held
    if not has_page(pages, place // PAGE_BYTES):
        with gil:
            is_held = pages.load(place // PAGE_BYTES)
        if not is_held:
            return NULL
    return load_area(&pages.area) + place
