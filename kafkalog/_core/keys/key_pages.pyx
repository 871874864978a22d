"""The pages of a key index's file: each is read and checked when it is first needed, and kept."""
from threading import get_ident

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kafkalog._core.bytes.crc cimport kl_crc32c
from kafkalog._core.bytes.large_pages cimport KL_LARGE_PAGE, kl_make_large, kl_new_area
from kafkalog._core.bytes.mutex cimport lock_mutex, unlock_mutex


cdef class KeyPages:
    """Pages of `pages_bytes` bytes from `pages_at` on, and the sections of batches that were read by them.

    `checksums` are those of the pages. Pages and sections stay while a search is in progress. Threads: any.
    """

    def __cinit__(self, *args, **keywords):
        self.sections = SectionTable(0)     # of no batch, until a derived class knows their number

    cdef int begin(self, object read, uint64_t pages_at, uint64_t pages_bytes, bytes checksums) except -1:
        self.read = read
        self.pages_at = pages_at
        self.pages_bytes = pages_bytes
        self.page_count = (pages_bytes + PAGE_BYTES - 1) // PAGE_BYTES
        if self.page_count != <uint64_t>len(checksums) // 4 or len(checksums) % 4:
            raise ValueError("the sizes of a key index do not fit together")
        self.held = <uint8_t*>PyMem_Calloc(self.page_count + 1, 1)
        self.filled = <uint8_t*>PyMem_Calloc(pages_bytes // KL_LARGE_PAGE + 1, 1)
        self.checksums = <uint32_t*>PyMem_Calloc(self.page_count + 1, sizeof(uint32_t))
        if self.held == NULL or self.filled == NULL or self.checksums == NULL:
            raise MemoryError("no memory for a key index")
        memcpy(self.checksums, PyBytes_AS_STRING(checksums), <size_t>len(checksums))
        return 0

    def __dealloc__(self):
        free(self.area)
        PyMem_Free(self.held)
        PyMem_Free(self.filled)
        PyMem_Free(self.checksums)

    @property
    def held_bytes(self) -> int:
        """Bytes of the pages and sections that are held."""
        cdef int64_t total
        lock_mutex(&self.guard)
        total = self.page_bytes
        unlock_mutex(&self.guard)
        lock_mutex(&self.sections.guard)
        total += self.sections.held_bytes
        unlock_mutex(&self.sections.guard)
        return total

    def release(self) -> None:
        """Frees the pages and sections, unless a search that let others run uses them."""
        lock_mutex(&self.guard)
        if self.searches == 0:
            free(self.area)
            self.area = NULL
            self.page_bytes = 0
            memset(self.held, 0, self.page_count)
            memset(self.filled, 0, self.pages_bytes // KL_LARGE_PAGE)
            lock_mutex(&self.sections.guard)
            self.sections.clear()
            unlock_mutex(&self.sections.guard)
        unlock_mutex(&self.guard)

    cdef void begin_search(self) noexcept:
        """Keep the pages and sections until `end_search`."""
        lock_mutex(&self.guard)
        self.searches += 1
        unlock_mutex(&self.guard)

    cdef int end_search(self) except -1:
        """End a search; raise the interrupt that a read of it met."""
        lock_mutex(&self.guard)
        self.searches -= 1
        unlock_mutex(&self.guard)
        if self.interrupt is not None and self.interrupted == get_ident():
            with cython.critical_section(self):
                error, self.interrupt = self.interrupt, None
            if error is not None:
                raise error
        return 0

    def is_sound(self) -> bool:
        """True if each page can be read and matches its checksum; none is kept that was not there."""
        cdef uint64_t i
        for i in range(self.page_count):
            if not has_page(self, i) and self.checked(i) is None:
                return False
        return True

    cdef bytes checked(self, uint64_t number):
        """A page, read and checked; None where that fails."""
        cdef uint64_t at = number * PAGE_BYTES
        cdef Py_ssize_t size = <Py_ssize_t>min(self.pages_bytes - at, <uint64_t>PAGE_BYTES)
        try:
            page = self.read(size, self.pages_at + at)
        except Exception as error:
            with cython.critical_section(self):
                self.error = error
            return None
        if not PyBytes_Check(page) or PyBytes_GET_SIZE(page) != size:
            return None
        if kl_crc32c(0, <const uint8_t*>PyBytes_AS_STRING(page), <size_t>size) != self.checksums[number]:
            return None
        return page

    cdef bint load(self, uint64_t number) noexcept:
        """Put a page that was read and checked into the area; False where that fails."""
        cdef bytes page
        cdef bint is_kept
        try:
            page = self.checked(number)
        except BaseException as error:      # the search is compiled, and cannot raise: its end does
            with cython.critical_section(self):
                self.interrupt, self.interrupted = error, get_ident()
            return False
        if page is None:
            return False
        lock_mutex(&self.guard)
        is_kept = self.keep(number, page)
        unlock_mutex(&self.guard)
        return is_kept

    cdef bint keep(self, uint64_t number, bytes page) noexcept:
        """Put a page into the area, with `guard` held; False without memory."""
        cdef uint64_t at = number * PAGE_BYTES
        cdef uint64_t large = at // KL_LARGE_PAGE
        cdef uint8_t* area = self.area
        if area == NULL:
            area = <uint8_t*>kl_new_area(self.pages_bytes)
            if area == NULL:
                return False
            publish_area(&self.area, area)
        if not self.held[number]:
            memcpy(area + at, PyBytes_AS_STRING(page), <size_t>PyBytes_GET_SIZE(page))
            publish_byte(&self.held[number], 1)
            self.page_bytes += PyBytes_GET_SIZE(page)
            self.filled[large] += 1
            if self.filled[large] == KL_LARGE_PAGE // PAGE_BYTES:
                kl_make_large(area + large * KL_LARGE_PAGE)
        return True
